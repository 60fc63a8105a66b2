// An HTTP client over libcurl's multi interface, driven by an event loop. It serves batched or rare requests (Expo, OAuth,
// webhooks).
//
// Each multi handle, and so each connection, carries a limited number of requests (`CurlConfiguration.requestsBeforeRenewal`).
// After that a new multi handle takes the requests, and the old one is closed when its transfers have ended. Completions run
// outside libcurl.
//
// libcurl cannot detect by PING that a NAT has forgotten a connection. A connection that was idle for longer than
// `idleConnectionTimeMax` is therefore not used again, and whoever waits for an answer says when he has waited for long
// (`didWaitInVain`). The request itself goes on: a slow server is not a dead connection.
//
// libcurl cannot be told which connection to use. All requests therefore use new connections after one has waited in vain, after a
// request was sent and not answered, and after a server exceeded `wasteMax`.

internal import CCurl
internal import CShims
internal import Logging
public import Runtime

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// An HTTP client confined to one event loop. An actor on that loop owns it.
///
/// Reuses connections, verifies certificates and follows no redirects. It uses the proxy of its configuration and ignores proxies
/// of the environment. The owner must call `close()` on the loop before it releases the client.
@safe
public final class CurlClient {
  public typealias Completion = (Result<CurlResponse, CurlFailure>) -> Void

  private let loop: EventLoop
  private let configuration: CurlConfiguration
  private let roots: CurlRoots
  private let routes: CurlRoutes
  /// The multi handle for new requests; nil after `close()`.
  private var current: CurlMulti?
  /// Multi handles that take no more requests and still have transfers under way.
  private var retired: [CurlMulti] = []
  private var idle: [CurlTransfer] = []

  /// Number of transfers that have started and not finished.
  public var runningCount: Int { retired.reduce(current?.runningCount ?? 0) { $0 + $1.runningCount } }

  public init(loop: EventLoop, configuration: CurlConfiguration) {
    self.loop = loop
    self.configuration = configuration
    roots = CurlRoots.with(file: configuration.caFile)
    routes = CurlRoutes(
      resolver: configuration.resolver, book: configuration.addresses, timeLimit: configuration.connectTimeout,
      loop: loop)
    precondition(Self.isLibraryReady, "libcurl could not be set up")
    current = makeMulti()
  }

  deinit {
    precondition(current == nil, "a CurlClient was released before close()")
  }

  /// Sends a request. `completion` is called exactly once, on the loop, never inside this call.
  public func perform(_ request: CurlRequest, completion: @escaping Completion) {
    loop.checkIsolated()
    guard current != nil else { return fail(.closed, completion) }
    guard let origin = CurlAddress.allowedOrigin(of: request.url) else { return fail(.addressNotAllowed, completion) }
    guard request.headers.allSatisfy({ Self.isPlain($0.name) && Self.isPlain($0.value) }) else {
      return fail(.malformedRequest, completion)
    }
    // libcurl gets the addresses of the host to which it connects: the proxy or the server. It resolves no name itself.
    let hop = configuration.proxy.map { CurlAddress.Origin(scheme: .http, host: $0.host, port: $0.port) } ?? origin
    routes.find(hop) { [unowned self] in start(request, to: origin, by: hop, over: $0, completion) }
  }

  private func start(
    _ request: CurlRequest, to origin: CurlAddress.Origin, by hop: CurlAddress.Origin, over route: CurlRoutes.Route?,
    _ completion: @escaping Completion
  ) {
    guard current != nil else { return fail(.closed, completion) }
    guard let route else {
      return fail(.nameNotResolved, completion, detail: configuration.proxy.map { "the name of the proxy \($0)" } ?? "")
    }
    let left = min(request.deadline - loop.now, configuration.totalTimeout)
    let connectTimeout = min(configuration.connectTimeout, request.connectDeadline - loop.now)
    guard left > .zero, connectTimeout > .zero else { return fail(.deadlinePassed, completion) }
    guard let transfer = idle.popLast() ?? CurlTransfer(configuration, roots: roots) else {
      return fail(.other, completion)
    }
    transfer.prepare(
      request, to: origin, by: hop, over: route, timeout: left, connectTimeout: connectTimeout, completion: completion)
    multiForNextRequest()?.start(transfer)
  }

  /// Sends a request and waits for its result. For callers on the client's loop.
  public func perform(
    _ request: CurlRequest, isolation: isolated (any Actor)? = #isolation
  ) async -> Result<CurlResponse, CurlFailure> {
    await withCheckedContinuation { continuation in
      perform(request) { continuation.resume(returning: $0) }
    }
  }

  /// A request that began at this time has had no answer for long. Further requests go over new connections, and first to another address
  /// if the host has one, unless those in use are newer or have brought an answer since.
  public func didWaitInVain(since begin: Instant) {
    guard let multi = current, multi.beganAt <= begin, multi.answeredAt <= begin else { return }
    for hop in multi.hops { routes.didFail(hop) }
    renew()
  }

  /// Ends the requests with this tag: they fail with `timedOut`.
  public func cancel(_ tag: ObjectIdentifier) {
    for multi in retired + (current.map { [$0] } ?? []) {
      for transfer in multi.abandon(tag) { didFinish(transfer, CURLE_OPERATION_TIMEDOUT, multi) }
    }
  }

  /// Closes every connection. Requests under way fail with `closed`.
  public func close() {
    loop.checkIsolated()
    let multis = retired + (current.map { [$0] } ?? [])
    (retired, current) = ([], nil)
    let now = loop.now
    for transfer in multis.flatMap({ $0.close() }) {
      let sentAt = transfer.result(of: CURLE_ABORTED_BY_CALLBACK, now: now).failure?.sentAt
      let completion = transfer.finish()
      loop.atEndOfTurn { completion?(.failure(CurlFailure(.closed, sentAt: sentAt))) }
    }
    idle.removeAll()
    routes.close()
  }

  private func fail(_ reason: CurlFailure.Reason, _ completion: @escaping Completion, detail: String = "") {
    let result = Result<CurlResponse, CurlFailure>.failure(CurlFailure(reason, detail: detail))
    tell(of: result)
    loop.atEndOfTurn { completion(result) }
  }

  /// Whether a text may be part of a header. A line end would begin another header.
  private static func isPlain(_ text: String) -> Bool {
    text.utf8.allSatisfy { ($0 >= 0x20 && $0 != 0x7F) || $0 == 0x09 }
  }

  // MARK: - Multi handles

  private func makeMulti() -> CurlMulti {
    CurlMulti(
      connectionsPerHostMax: configuration.connectionsPerHostMax, wasteMax: configuration.wasteMax, loop: loop
    ) { [unowned self] (transfer: CurlTransfer, code: CURLcode, multi: CurlMulti) in
      didFinish(transfer, code, multi)
    }
  }

  private func multiForNextRequest() -> CurlMulti? {
    guard let multi = current, multi.requestCount >= configuration.requestsBeforeRenewal else { return current }
    renew()
    return current
  }

  /// Sends all further requests over new connections.
  private func renew() {
    guard let multi = current else { return }
    current = makeMulti()
    retired.append(multi)
    closeIfDone(multi)
  }

  // MARK: - Ends

  private func didFinish(_ transfer: CurlTransfer, _ code: CURLcode, _ multi: CurlMulti) {
    let result = transfer.result(of: code, now: loop.now)
    if result.failure == nil { multi.answeredAt = loop.now }
    if let hop = transfer.hop { note(result, of: hop, at: transfer.peer) }
    tell(of: result)
    let completion = transfer.finish()
    idle.append(transfer)
    if multi === current, multi.isCut || result.failure?.sentAt != nil { renew() }
    closeIfDone(multi)
    completion?(result)
  }

  /// Notes whether the address of a request worked.
  private func note(_ result: Result<CurlResponse, CurlFailure>, of hop: CurlAddress.Origin, at peer: String) {
    switch result {
    case .success: routes.didWork(hop, at: peer)
    case .failure(let failure):
      switch failure.reason {
      case .timedOut: routes.didFail(hop)
      case .notConnected, .proxyFailed, .tlsFailed, .untrusted: if failure.sentAt == nil { routes.didFail(hop) }
      default: break
      }
    }
  }

  /// Logs failures of the proxy. The reason in the outcome is a single word and does not name the cause.
  private func tell(of result: Result<CurlResponse, CurlFailure>) {
    guard let logger = configuration.logger, configuration.proxy != nil, let failure = result.failure,
      failure.isWithoutConnection
    else { return }
    logger.warning("no connection through the proxy", metadata: ["error": "\(failure)"])
  }

  private func closeIfDone(_ multi: CurlMulti) {
    guard multi.runningCount == 0, let index = retired.firstIndex(where: { $0 === multi }) else { return }
    retired.remove(at: index)
    _ = multi.close()
  }

  /// libcurl is set up once, before the first handle. SIGPIPE is ignored, so that writing to a closed connection returns an error
  /// and does not end the process. With `CURLOPT_NOSIGNAL` libcurl leaves this to us.
  private static let isLibraryReady: Bool = {
    _ = signal(SIGPIPE, SIG_IGN)
    return curl_global_init(Int(CURL_GLOBAL_ALL)) == CURLE_OK
  }()
}

extension Result {
  fileprivate var failure: Failure? {
    if case .failure(let failure) = self { failure } else { nil }
  }
}
