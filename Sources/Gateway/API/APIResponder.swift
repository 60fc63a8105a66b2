// From a request to an answer: path, key, limits, body, operation. Whatever goes wrong is answered as a problem.

internal import HTTPTypes
internal import Hummingbird
internal import Logging
internal import NIOCore
internal import Runtime

struct APIResponder: HTTPResponder {
  typealias Context = BasicRequestContext

  let keyring: APIKeyring
  let traffic: APITraffic
  let operations: APIOperations
  let bodyMaxBytes: Int
  let logger: Logger
  var clock: any GatewayClock = SystemClock()

  func respond(to request: Request, context: Context) async throws -> Response {
    let begun = clock.now()
    let response: Response
    do throws(APIProblem) {
      response = try await answer(request)
    } catch {
      response = error.response
    }
    logger.debug(
      "The API answered",
      metadata: [
        "method": "\(request.method.rawValue)", "status": "\(response.status.code)",
        "ms": "\((clock.now() - begun).milliseconds)",
      ])
    return request.method == .head ? response.createHeadResponse() : response
  }

  private func answer(_ request: Request) async throws(APIProblem) -> Response {
    guard let route = APIRoute(path: request.uri.path) else { throw .noSuchPath }
    guard let operation = route.operations[request.method] else { throw .methodNotAllowed(route.methods) }
    let client = try await keyring.client(authorization: request.headers[.authorization], scope: operation.scope)
    try traffic.begin(client.keyID)
    defer { traffic.end(client.keyID) }
    let body = try await body(of: request)
    let trace = request.headers[.traceparent].flatMap(Traceparent.init(header:))
    return try await operations.perform(operation, callID: route.callID, query: APIQuery(request.uri.queryParameters),
      body: body, trace: trace, for: client)
  }

  private func body(of request: Request) async throws(APIProblem) -> [UInt8] {
    let body: ByteBuffer
    do {
      body = try await request.body.collect(upTo: bodyMaxBytes)
    } catch is NIOTooManyBytesError {
      throw .tooLarge(limit: bodyMaxBytes)
    } catch {
      // The connection broke, or its guard has answered already.
      throw .malformed
    }
    guard body.readableBytes > 0 else { return [] }
    let type = request.headers[.contentType]?.prefix { $0 != ";" }.lowercased()
    guard type?.split(separator: " ") == ["application/json"] else { throw .notJSONType }
    return Array(body.readableBytesView)
  }
}

extension HTTPField.Name {
  fileprivate static let traceparent: HTTPField.Name = {
    guard let name = HTTPField.Name("traceparent") else { preconditionFailure("traceparent is a name") }
    return name
  }()
}
