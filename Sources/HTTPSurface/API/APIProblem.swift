// An error of the HTTP APIs, in the format of RFC 9457.

internal import HTTPTypes
internal import Hummingbird
internal import Runtime

/// What is wrong with a request, as told to the client. Contains no token, no key and nothing of a payload.
struct APIProblem: Error, Equatable {
  var status: HTTPResponse.Status
  /// A word for programs: the last part of `type`.
  var name: String
  /// One sentence for people.
  var detail: String
  /// The member of the request that is wrong, such as `payload.from` or `recipients[1].fcmToken`.
  var field: String?
  var headers: HTTPFields = [:]
  /// For logs and metrics; nil if the request was not refused because of its key, rate or address.
  var refusal: APIRefusal?

  /// The body, in `application/problem+json`.
  var body: [UInt8] {
    var writer = JSONWriter()
    writer.beginObject()
    writer.key("type")
    writer.string("urn:push-gateway:problem:\(name)")
    writer.key("title")
    writer.string(status.reasonPhrase)
    writer.key("status")
    writer.integer(Int64(status.code))
    writer.key("detail")
    writer.string(detail)
    if let field {
      writer.key("field")
      writer.string(field)
    }
    writer.endObject()
    return writer.bytes
  }

  var response: Response {
    var fields = headers
    fields[.contentType] = "application/problem+json"
    fields[.cacheControl] = "no-store"
    return Response(status: status, headers: fields, body: ResponseBody(byteBuffer: ByteBuffer(bytes: body)))
  }
}

// MARK: - The refusals

extension APIProblem {
  static let malformed = APIProblem(
    status: .badRequest, name: "malformed-request", detail: "the request is not HTTP/1.1 as RFC 9112 defines it")

  /// 400: the body is not JSON.
  static func notJSON(_ error: JSONError) -> APIProblem {
    APIProblem(status: .badRequest, name: "malformed-body", detail: "the body is \(error.description)")
  }

  /// 401, with a challenge that says how to authenticate.
  static func unauthorized(_ detail: String, challenge: String, _ refusal: APIRefusal? = nil) -> APIProblem {
    APIProblem(
      status: .unauthorized, name: "unauthorized", detail: detail, headers: [.wwwAuthenticate: challenge],
      refusal: refusal)
  }

  static func forbidden(missing scope: APIScope, _ refusal: APIRefusal) -> APIProblem {
    APIProblem(
      status: .forbidden, name: "missing-scope", detail: "the key lacks the scope \(scope.rawValue)",
      headers: [.wwwAuthenticate: "Bearer error=\"insufficient_scope\", scope=\"\(scope.rawValue)\""], refusal: refusal)
  }

  /// 403: the key is good, but may not be used from this address.
  static func forbiddenAddress(_ refusal: APIRefusal) -> APIProblem {
    APIProblem(
      status: .forbidden, name: "address-not-allowed",
      detail: "the key may not be used from the address that this request comes from",
      headers: [.wwwAuthenticate: "Bearer"], refusal: refusal)
  }

  static let noSuchPath = APIProblem(status: .notFound, name: "not-found", detail: "there is nothing at this path")
  /// 404: a path of the other listener.
  static let pathOfOps = APIProblem(
    status: .notFound, name: "not-found",
    detail: "there is nothing at this path; http.listen has health checks and metrics")
  static let noSuchCall = APIProblem(
    status: .notFound, name: "unknown-call", detail: "the app of this key has no call with this id")
  /// 404: the dashboard's.
  static let noSuchCallOfApp = APIProblem(
    status: .notFound, name: "unknown-call", detail: "the app has no call with this id")
  static let ringsNoLonger = APIProblem(
    status: .conflict, name: "rings-no-longer",
    detail: "the call rings no longer; each call that rings needs an id of its own")
  static let noSuchRecipient = APIProblem(
    status: .conflict, name: "unknown-recipient", detail: "the call does not ring this user", field: "userId")

  static func methodNotAllowed(_ allowed: [HTTPRequest.Method]) -> APIProblem {
    let methods = allowed.map(\.rawValue).joined(separator: ", ")
    return APIProblem(
      status: .methodNotAllowed, name: "method-not-allowed", detail: "the methods of this path are \(methods)",
      headers: [.allow: methods])
  }

  static let tooManyUnanswered = tooMany(
    "more than \(HTTPConnectionState.owedMax) requests were sent over this connection without waiting for answers")
  static let tooSlow = APIProblem(
    status: .requestTimeout, name: "request-timeout", detail: "the request took too long to arrive")
  static let headersTooLarge = APIProblem(
    status: .requestHeaderFieldsTooLarge, name: "headers-too-large", detail: "the request's head is too large")

  static func tooLarge(limit: Int) -> APIProblem {
    APIProblem(status: .contentTooLarge, name: "body-too-large", detail: "the body may have at most \(limit) bytes")
  }

  static let notJSONType = APIProblem(
    status: .unsupportedMediaType, name: "unsupported-media-type",
    detail: "the body must be JSON, and Content-Type must be application/json")

  static let encoded = APIProblem(
    status: .unsupportedMediaType, name: "unsupported-media-type",
    detail: "the body must not be compressed: send it without Content-Encoding")
  static let notUTF8 = APIProblem(
    status: .unsupportedMediaType, name: "unsupported-media-type",
    detail: "the body is UTF-16 or UTF-32: send it in UTF-8")

  /// 422: a member of the request is invalid.
  static func invalid(_ field: String, _ detail: String) -> APIProblem {
    APIProblem(status: .unprocessableContent, name: "invalid-field", detail: detail, field: field)
  }

  /// 429: this key, or this peer, sends too many requests.
  static func tooMany(_ detail: String, _ refusal: APIRefusal? = nil) -> APIProblem {
    APIProblem(
      status: .tooManyRequests, name: "too-many-requests", detail: detail, headers: [.retryAfter: "1"],
      refusal: refusal)
  }

  /// 429: the app has used up its quota. Other requests of the key, such as the end of a call, are not affected.
  static func quotaExceeded(_ detail: String, retryAfterSeconds: Int) -> APIProblem {
    APIProblem(
      status: .tooManyRequests, name: "quota-exceeded", detail: detail,
      headers: [.retryAfter: String(retryAfterSeconds)], refusal: APIRefusal(reason: .quota))
  }

  /// 503: the same request may succeed later.
  static func unavailable(_ name: String, _ detail: String, retryAfterSeconds: Int) -> APIProblem {
    APIProblem(
      status: .serviceUnavailable, name: name, detail: detail, headers: [.retryAfter: String(retryAfterSeconds)])
  }

  static let overloaded = unavailable("overloaded", "too many requests wait for the database", retryAfterSeconds: 1)
  static let tooManyConnections = unavailable(
    "too-many-connections", "too many connections are open", retryAfterSeconds: 5)

  static let broken = APIProblem(
    status: .internalServerError, name: "internal-error", detail: "the gateway failed; its log says why")
}
