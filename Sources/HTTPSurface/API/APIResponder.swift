// From a request to an answer: path, key, limits, body, operation. Every failure is answered with a problem (RFC 9457), or in
// the form of the server whose path it is.

internal import HTTPTypes
internal import Hummingbird
internal import Logging
internal import NIOCore
internal import Runtime
internal import Settings

struct APIResponder: HTTPResponder {
  typealias Context = APIRequestContext

  let keyring: APIKeyring
  let traffic: APITraffic
  let operations: APIOperations
  let fronts: APIFronts
  let bodyMaxBytes: Int
  let logger: Logger
  var proxies = TrustedProxies([])
  let audit: APIAudit
  let counters: APICounters
  let uses: APIKeyUses
  var clock: any GatewayClock = SystemClock()

  func respond(to request: Request, context: Context) async throws -> Response {
    let begun = clock.now()
    let peer = proxies.client(of: context.peer, forwardedFor: request.headers[.xForwardedFor])
    var entry = APIAudit.Entry(status: 0, peer: peer)
    let response: Response
    do throws(APIProblem) {
      response = try await answer(request, context, &entry)
    } catch {
      response = error.response(of: entry.operation ?? APIFronts.operation(at: request.uri.path))
      entry.refusal = error.refusal?.reason
      entry.keyID = entry.keyID ?? error.refusal?.keyID
    }
    entry.status = response.status.code
    // The answer to a new call contains its path.
    if let call = response.headers[.location].flatMap(APIRoute.init(path:)) { entry.callID = call.callID }
    audit.note(entry)
    counters.note(entry.operation, status: entry.status, entry.refusal, refusedTokens: entry.refusedTokens)
    logger.debug(
      "The API answered",
      metadata: [
        "method": "\(request.method.rawValue)", "status": .stringConvertible(response.status.code),
        "ms": .stringConvertible((clock.now() - begun).milliseconds),
      ])
    return request.method == .head ? response.createHeadResponse() : response
  }

  private func answer(
    _ request: Request, _ context: Context, _ entry: inout APIAudit.Entry
  ) async throws(APIProblem) -> Response {
    guard let route = APIRoute(path: request.uri.path), route.operations.values.allSatisfy(fronts.serves) else {
      throw ["/livez", "/readyz", "/metrics"].contains(request.uri.path) ? .pathOfOps : .noSuchPath
    }
    guard let operation = route.operations[request.method] else { throw .methodNotAllowed(route.methods) }
    entry.operation = operation
    let client = try await client(request, operation, &entry)
    let caller = try traffic.begin(client.keyID.map { .key($0) } ?? .peer(entry.peer.network))
    defer { traffic.end(caller) }
    HTTPConnectionGuard.LetIn.tell(context.channel)
    let body = try await body(of: request, for: operation)
    let trace = request.headers[.traceparent].flatMap(Traceparent.init(header:))
    if let answer = try await fronts.perform(operation, body, trace, client) {
      if answer.callIDs.count == 1 { entry.callID = answer.callIDs[0] }
      entry.refusedTokens = answer.refusedTokens
      return answer.response
    }
    let response = try await operations.perform(
      operation, callID: route.callID, query: APIQuery(request.uri.queryParameters), body: body, trace: trace,
      for: client)
    if !route.callID.isEmpty { entry.callID = route.callID }
    return response
  }

  private func client(
    _ request: Request, _ operation: APIOperation, _ entry: inout APIAudit.Entry
  ) async throws(APIProblem) -> APIClient {
    if let client = try fronts.client(of: operation, headers: request.headers, peer: entry.peer) { return client }
    let client = try await keyring.client(
      authorization: request.headers[.authorization], scope: operation.scope, peer: entry.peer)
    entry.keyID = client.keyID
    if let keyID = client.keyID { uses.note(keyID, from: entry.peer) }
    return client
  }

  private func body(of request: Request, for operation: APIOperation) async throws(APIProblem) -> [UInt8] {
    let bytesMax = fronts.bodyMaxBytes(operation, otherwise: bodyMaxBytes)
    let body: ByteBuffer
    do {
      body = try await request.body.collect(upTo: bytesMax)
    } catch is NIOTooManyBytesError {
      throw .tooLarge(limit: bytesMax)
    } catch {
      // The connection broke, or its `HTTPConnectionGuard` has already answered.
      throw .malformed
    }
    guard body.readableBytes > 0 else { return [] }
    guard ["", "identity"].contains(request.headers[.contentEncoding]?.lowercased() ?? "") else { throw .encoded }
    // Other push servers do not look at it, so their clients may give any.
    if !operation.isOfOtherServer {
      let type = request.headers[.contentType]?.prefix { $0 != ";" }.lowercased()
      guard type?.split(separator: " ") == ["application/json"] else { throw .notJSONType }
    }
    let bytes = Array(body.readableBytesView)
    // JSON begins with two characters of ASCII, or is one.
    switch (bytes[0], bytes.dropFirst().first) {
    case (0x1F, 0x8B): throw .encoded
    case (0, _), (_, 0), (0xFE, 0xFF), (0xFF, 0xFE): throw .notUTF8
    default: return bytes.withoutByteOrderMark
    }
  }
}

/// What is known about a request apart from the request itself.
struct APIRequestContext: RequestContext {
  var coreContext: CoreRequestContextStorage
  /// The address at the other end of the connection.
  let peer: IPAddress
  let channel: any Channel

  init(source: ApplicationRequestContextSource) {
    coreContext = CoreRequestContextStorage(source: source)
    channel = source.channel
    peer = IPAddress(source.channel.remoteAddress)
  }
}

extension HTTPField.Name {
  fileprivate static let traceparent = ours("traceparent")
  fileprivate static let xForwardedFor = ours("X-Forwarded-For")

  private static func ours(_ text: String) -> HTTPField.Name {
    guard let name = HTTPField.Name(text) else { preconditionFailure("\(text) is a name") }
    return name
  }
}
