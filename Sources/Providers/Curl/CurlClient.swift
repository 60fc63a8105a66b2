// HTTP/1.1 over libcurl's multi interface, driven by an event loop: for what is batched or rare (Expo, OAuth,
// webhooks).
//
// Each multi handle, and so each connection, carries a limited number of requests (`CurlConfiguration.requestsBeforeRenewal`):
// then the next one takes over, and it is closed when what it has under way is done. Completions run outside libcurl.
//
// A connection that a NAT has forgotten cannot be found out by PING through libcurl. So one that was idle for long is not
// used again (`idleConnectionTimeMax`), and on one that is used again after a pause the first byte has to come soon
// (`firstByteTimeout`), counted from what it last brought for other requests. On a new connection, whose handshake showed
// that it works, and on one that has just brought something, it is waited for longer, and when requests have twice had no
// answer, as long as the request may take: then the server is slow, and to repeat would only add to its work. An answer that
// has begun has to end soon (`answerTimeout`).
//
// libcurl cannot be told which connection to take. So after a request that left and was not answered, whatever
// follows goes over new connections, and so it does when a server only makes work (`wasteMax`).

internal import CCurl
internal import CShims
internal import Logging
public import Runtime

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// An HTTP client that lives on one event loop and belongs to an actor there.
///
/// Keeps connections open and uses them again, verifies certificates, follows no redirect, goes through the proxy of its
/// configuration and obeys none of the environment. `close()` it on its loop before letting go of it.
@safe
public final class CurlClient {
  public typealias Completion = (Result<CurlResponse, CurlFailure>) -> Void

  private let loop: EventLoop
  private let configuration: CurlConfiguration
  private let roots: CurlRoots
  private let routes: CurlRoutes
  /// Takes requests; nil when the client is closed.
  private var current: CurlMulti?
  /// Those that have had their requests and wait for the last answers.
  private var retired: [CurlMulti] = []
  private var idle: [CurlTransfer] = []
  /// Requests whose first byte did not come in time, since the last answer began.
  private var inVainCount = 0

  /// Transfers handed over and not finished.
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
    precondition(current == nil, "close() a CurlClient before letting go of it")
  }

  /// Sends a request. `completion` is called exactly once, on the loop, never inside this call.
  public func perform(_ request: CurlRequest, completion: @escaping Completion) {
    loop.checkIsolated()
    guard current != nil else { return fail(.closed, completion) }
    guard let origin = CurlAddress.allowedOrigin(of: request.url) else { return fail(.addressNotAllowed, completion) }
    guard request.headers.allSatisfy({ Self.isPlain($0.name) && Self.isPlain($0.value) }) else {
      return fail(.malformedRequest, completion)
    }
    // libcurl is given the addresses of whatever it connects to; with a proxy it looks no other name up (`CurlProxy`).
    let hop = configuration.proxy.map { CurlAddress.Origin(scheme: .http, host: $0.host, port: $0.port) } ?? origin
    routes.find(hop) { [unowned self] in start(request, to: origin, by: hop, over: $0, completion) }
  }

  private func start(
    _ request: CurlRequest, to origin: CurlAddress.Origin, by hop: CurlAddress.Origin, over route: CurlRoutes.Route?,
    _ completion: @escaping Completion
  ) {
    guard current != nil else { return fail(.closed, completion) }
    guard let route else {
      return fail(.nameNotResolved, completion, detail: configuration.proxy.map { "that of the proxy \($0)" } ?? "")
    }
    let left = min(request.deadline - loop.now, configuration.totalTimeout)
    let connectTimeout = min(configuration.connectTimeout, request.connectDeadline - loop.now)
    guard left > .zero, connectTimeout > .zero else { return fail(.deadlinePassed, completion) }
    guard let transfer = idle.popLast() ?? CurlTransfer(configuration, roots: roots) else {
      return fail(.other, completion)
    }
    transfer.prepare(
      request, to: origin, by: hop, over: route, timeout: left, connectTimeout: connectTimeout, completion: completion)
    guard let multi = multiForNextRequest() else { return }
    multi.start(transfer)
    watch(transfer, on: multi, isRepeatable: request.isRepeatable)
  }

  /// Sends a request and waits for its result; for callers that live on the client's loop.
  public func perform(
    _ request: CurlRequest, isolation: isolated (any Actor)? = #isolation
  ) async -> Result<CurlResponse, CurlFailure> {
    await withCheckedContinuation { continuation in
      perform(request) { continuation.resume(returning: $0) }
    }
  }

  /// Closes every connection. What is under way fails with `closed`.
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

  /// Whether a text may go into a header: a line end would begin another one.
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

  /// Sends what follows over new connections.
  private func renew() {
    guard let multi = current else { return }
    current = makeMulti()
    retired.append(multi)
    closeIfDone(multi)
  }

  // MARK: - Answers that do not come

  private func watch(_ transfer: CurlTransfer, on multi: CurlMulti, isRepeatable: Bool) {
    let begin = loop.now
    let patience = isRepeatable && inVainCount < 2 ? configuration.newConnectionTimeout : nil
    func expectFirstByte(by end: Instant) {
      expect(transfer, by: end) { [unowned self] in
        let heardAt = multi.lastReceived(besides: transfer)
        let isTrusted = transfer.isOnNewConnection || heardAt + configuration.trustTime > begin
        // Its connection may have answered others since, and died then.
        guard let end = (isTrusted ? patience : configuration.firstByteTimeout).map({ max(begin, heardAt) + $0 })
        else { return }
        guard end <= loop.now else { return expectFirstByte(by: end) }
        inVainCount += 1
        giveUp(transfer, multi)
      }
    }
    expectFirstByte(by: begin + configuration.firstByteTimeout)
    transfer.didBeginAnswer = { [unowned self] in
      inVainCount = 0
      expect(transfer, by: loop.now + configuration.answerTimeout) { [unowned self] in giveUp(transfer, multi) }
    }
  }

  private func expect(_ transfer: CurlTransfer, by end: Instant, _ late: @escaping () -> Void) {
    transfer.timer?.cancel()
    transfer.timer = loop.schedule(at: end) { [unowned self] in
      // After a stall of the loop the timers that are due come before the bytes that have arrived meanwhile.
      transfer.timer = loop.schedule(at: loop.now + .milliseconds(1)) { late() }
    }
  }

  private func giveUp(_ transfer: CurlTransfer, _ multi: CurlMulti) {
    multi.abandon(transfer)
    if let hop = transfer.hop { routes.didFail(hop) }
    didFinish(transfer, CURLE_OPERATION_TIMEDOUT, multi)
  }

  // MARK: - Ends

  private func didFinish(_ transfer: CurlTransfer, _ code: CURLcode, _ multi: CurlMulti) {
    let result = transfer.result(of: code, now: loop.now)
    if let hop = transfer.hop { note(result, of: hop, at: transfer.peer) }
    tell(of: result)
    let completion = transfer.finish()
    idle.append(transfer)
    if multi === current, multi.isCut || result.failure?.sentAt != nil { renew() }
    closeIfDone(multi)
    completion?(result)
  }

  /// What a result says about the address that it came from.
  private func note(_ result: Result<CurlResponse, CurlFailure>, of hop: CurlAddress.Origin, at peer: String) {
    switch result {
    case .success: routes.didWork(hop, at: peer)
    case .failure(let failure) where failure.sentAt == nil:
      switch failure.reason {
      case .notConnected, .proxyFailed, .tlsFailed, .untrusted, .timedOut: routes.didFail(hop)
      default: break
      }
    case .failure: break
    }
  }

  /// A reason is one word, which does not say what is to be done about a proxy.
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

  /// libcurl is set up once, before the first handle. Writing to a connection whose peer has gone must be an error
  /// here, not a signal that ends the process; libcurl leaves that to us when it is told to use no signals.
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
