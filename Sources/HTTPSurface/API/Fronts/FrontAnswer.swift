// The answers of the paths of other push servers, in the form that those servers give them.

internal import HTTPTypes
internal import Hummingbird
internal import NIOCore
internal import Runtime

/// A successful answer.
struct FrontAnswer {
  /// JSON.
  var body: [UInt8]
  /// The calls that were enqueued or changed.
  var callIDs: [String]
  /// Number of tokens for which nothing was done, although the request succeeded.
  var refusedTokens: Int

  var response: Response {
    Response(
      status: .ok, headers: [.contentType: "application/json", .cacheControl: "no-store"],
      body: ResponseBody(byteBuffer: ByteBuffer(bytes: body)))
  }
}

extension APIProblem {
  /// The problem in the form of the server whose path it is.
  ///
  /// - Parameter operation: what the path is for; nil: it is none of another push server, or not known.
  func response(of operation: APIOperation?) -> Response {
    guard operation?.isOfOtherServer == true else { return response }
    var fields = headers
    fields[.contentType] = "application/json"
    fields[.cacheControl] = "no-store"
    return Response(
      status: status, headers: fields, body: ResponseBody(byteBuffer: ByteBuffer(bytes: body(of: operation))))
  }

  /// The body of `response(of:)`.
  func body(of operation: APIOperation?) -> [UInt8] {
    switch operation {
    case .notifyMatrix: matrixBody
    case .pushGorush: gorushBody
    default: body
    }
  }

  private var sentence: String { field.map { "\($0): \(detail)" } ?? detail }

  /// A standard error response of Matrix.
  private var matrixBody: [UInt8] {
    let code: StaticString =
      switch status.code {
      case 400 where name == "malformed-body": "M_NOT_JSON"
      case 400: "M_BAD_JSON"
      case 403: "M_FORBIDDEN"
      case 404 where name == "not-found": "M_UNRECOGNIZED"
      case 404: "M_NOT_FOUND"
      case 405: "M_UNRECOGNIZED"
      case 413: "M_TOO_LARGE"
      case 422: "M_INVALID_PARAM"
      case 429: "M_LIMIT_EXCEEDED"
      default: "M_UNKNOWN"
      }
    var writer = JSONWriter()
    writer.beginObject()
    writer.key("errcode")
    writer.string(code)
    writer.key("error")
    writer.string(sentence)
    if let seconds = headers[.retryAfter].flatMap(Int64.init) {
      writer.key("retry_after_ms")
      writer.integer(seconds * 1000)
    }
    writer.endObject()
    return writer.bytes
  }

  private var gorushBody: [UInt8] {
    var writer = JSONWriter()
    writer.beginObject()
    writer.key("code")
    writer.integer(Int64(status.code))
    writer.key("message")
    writer.string(sentence)
    writer.endObject()
    return writer.bytes
  }
}
