// The working half of `FCMProvider`: requests in flight and the access token in use. Lives on the provider's loop.

internal import Logging
internal import Runtime

/// Sends pushes over a pool of connections and collects their outcomes, reported once a turn.
final class FCMSender: HTTP2ConnectionPoolDelegate {
  /// A request that has no outcome yet.
  private struct Flight {
    var request: PushRequest
    /// The access token it was last written with.
    var token: ProviderToken?
    var hasBeenResent = false
  }

  /// How soon to ask again for a token that was not to be had; the source has a backoff of its own.
  private static let tokenRetryDelay = Nanoseconds.seconds(1)
  /// A source that promises more is asked again after this.
  private static let tokenLifetimeMax = Nanoseconds.seconds(86_400)

  private let clock: any GatewayClock
  private let loop: EventLoop
  private let connections: HTTP2ConnectionPool
  private let writer: FCMRequestWriter

  /// Asks the owner to fetch a token and to call `tokenArrived` or `tokenFailed`.
  var fetchToken: ((_ refused: ProviderToken?) -> Void)?
  /// Where results and capacity go.
  var report: ((PushProviderEvent) -> Void)?

  private var flights = SlotTable<Flight>()
  private var results: [PushResult] = []
  private var isReportScheduled = false
  private var token: ProviderToken?
  private var bearer: [UInt8] = []
  private var isFetchingToken = false
  /// Requests whose access token was refused, until there is another.
  private var awaitingToken: [Int] = []
  private var renewalTimer: EventLoop.Timer?
  private var isShuttingDown = false

  init(_ configuration: FCMConfiguration, clock: any GatewayClock, loop: EventLoop, logger: Logger) {
    self.clock = clock
    self.loop = loop
    connections = HTTP2ConnectionPool(
      configuration.endpoint, settings: configuration.pool, loop: loop, logger: logger)
    writer = FCMRequestWriter(authority: configuration.endpoint.authority, projectID: configuration.projectID)
    connections.delegate = self
  }

  /// Fetches a token; the pool connects when it is there, so there is no capacity without one.
  func start() {
    requestToken(refused: nil)
  }

  func send(_ batch: [PushRequest]) {
    for request in batch {
      guard !isShuttingDown else {
        finish(request, .refused(reason: "ShuttingDown"))
        continue
      }
      connections.submit(flights.insert(Flight(request: request)), deadline: request.deadline)
    }
  }

  /// Calls `completion` when every request has its outcome and the outcomes have been reported.
  func shutDown(by deadline: Instant, completion: @escaping () -> Void) {
    isShuttingDown = true
    renewalTimer?.cancel()
    endAwaiting(.refused(reason: "ShuttingDown"))
    connections.shutDown(by: deadline) { [self] in
      deliverReport()
      completion()
    }
  }

  // MARK: - Access token

  func tokenArrived(_ token: ProviderToken) {
    isFetchingToken = false
    guard !isShuttingDown else { return }
    let isNew = token != self.token
    let isFirst = self.token == nil
    self.token = token
    bearer = Array("Bearer ".utf8) + token.value
    let untilRenewal = token.renewAtMilliseconds - clock.wallMilliseconds()
    scheduleRenewal(after: .milliseconds(min(untilRenewal, Self.tokenLifetimeMax.milliseconds)))
    if isFirst { connections.start() }
    // The source held on to the refused token: so young, its age is not what Google objects to.
    guard isNew else { return endAwaiting(.unauthorized(reason: "UNAUTHENTICATED")) }
    let slots = awaitingToken
    awaitingToken = []
    for slot in slots {
      guard let deadline = flights[slot]?.request.deadline else { continue }
      connections.submit(slot, deadline: deadline)
    }
  }

  func tokenFailed() {
    isFetchingToken = false
    endAwaiting(.unauthorized(reason: "NoAccessToken"))
    if !isShuttingDown { scheduleRenewal(after: Self.tokenRetryDelay) }
  }

  private func requestToken(refused: ProviderToken?) {
    guard !isFetchingToken else { return }
    isFetchingToken = true
    fetchToken?(refused)
  }

  private func scheduleRenewal(after delay: Nanoseconds) {
    renewalTimer?.cancel()
    renewalTimer = loop.schedule(at: loop.now + max(delay, Self.tokenRetryDelay)) { [weak self] in
      self?.requestToken(refused: nil)
    }
  }

  private func endAwaiting(_ outcome: PushOutcome) {
    let slots = awaitingToken
    awaitingToken = []
    for slot in slots { finish(slot, outcome, status: 401, sentAt: nil) }
  }

  /// The token may come too late; the slot may be another request's by now.
  private func expireAwaiting(_ slot: Int, tag: UInt64) {
    guard flights[slot]?.request.tag == tag, let index = awaitingToken.firstIndex(of: slot) else { return }
    awaitingToken.remove(at: index)
    finish(slot, .expired, status: 401, sentAt: nil)
  }

  // MARK: - HTTP2ConnectionPoolDelegate

  func pool(_ pool: HTTP2ConnectionPool, write slot: Int, into headers: inout HTTP2HeaderBlock) -> [UInt8] {
    flights[slot]?.token = token
    guard let request = flights[slot]?.request else { preconditionFailure("a pool asked for a request that has ended") }
    writer.write(bearer: bearer, into: &headers)
    return FCMRequestWriter.body(request, now: loop.now)
  }

  func pool(_ pool: HTTP2ConnectionPool, didEnd slot: Int, _ exchange: HTTP2Exchange) -> HTTP2ConnectionPool.Verdict {
    switch exchange.result {
    case .response(let response): return answered(slot, response, exchange.sentAt)
    case .refused(let reason): finish(slot, .refused(reason: reason), sentAt: nil)
    case .lost: finish(slot, .unknown(reason: "ConnectionLost"), sentAt: exchange.sentAt)
    case .timedOut: finish(slot, timeoutOutcome(slot, exchange.sentAt), sentAt: exchange.sentAt)
    }
    return .init(.unproven)
  }

  func pool(_ pool: HTTP2ConnectionPool, capacityDidChange capacity: Int) {
    report?(.capacity(capacity))
  }

  // MARK: - Answers

  private func answered(_ slot: Int, _ response: HTTP2Message, _ sentAt: Instant?) -> HTTP2ConnectionPool.Verdict {
    switch FCMReasonTable.read(response, wallMilliseconds: clock.wallMilliseconds()) {
    case .settle(let outcome):
      finish(slot, outcome, status: response.status, sentAt: sentAt)
      return .done
    case .renewToken:
      guard let flight = flights[slot], !flight.hasBeenResent, !isShuttingDown else {
        finish(slot, .unauthorized(reason: "UNAUTHENTICATED"), status: response.status, sentAt: sentAt)
        return .init(.unproven)
      }
      flights[slot]?.hasBeenResent = true
      if flight.token != token { return .init(.unproven, resends: true) }  // renewed while this one was on its way
      awaitingToken.append(slot)
      loop.schedule(at: flight.request.deadline) { [weak self] in self?.expireAwaiting(slot, tag: flight.request.tag) }
      requestToken(refused: token)
      return .init(.unproven)
    }
  }

  private func timeoutOutcome(_ slot: Int, _ sentAt: Instant?) -> PushOutcome {
    if sentAt != nil { return .unknown(reason: "TimedOut") }
    guard let deadline = flights[slot]?.request.deadline, deadline <= loop.now else {
      return .refused(reason: "NotSentInTime")
    }
    return .expired
  }

  private func finish(_ slot: Int, _ outcome: PushOutcome, status: UInt16 = 0, sentAt: Instant?) {
    guard let flight = flights.remove(slot) else { return }
    finish(flight.request, outcome, status: status, sentAt: sentAt)
  }

  private func finish(_ request: PushRequest, _ outcome: PushOutcome, status: UInt16 = 0, sentAt: Instant? = nil) {
    results.append(
      PushResult(tag: request.tag, outcome: outcome, status: status, sentAt: sentAt, answeredAt: loop.now))
    guard !isReportScheduled else { return }
    isReportScheduled = true
    loop.atEndOfTurn { [weak self] in self?.deliverReport() }
  }

  private func deliverReport() {
    isReportScheduled = false
    guard !results.isEmpty else { return }
    let batch = results
    results = []
    report?(.results(batch))
  }
}
