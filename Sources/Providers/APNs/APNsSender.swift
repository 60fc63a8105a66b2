// The working half of `APNsProvider`: requests in flight, the token in use, two pools. Lives on the provider's loop.

internal import Logging
internal import Runtime

/// Sends pushes over a production and a sandbox pool and collects their outcomes, reported once a turn.
final class APNsSender: HTTP2ConnectionPoolDelegate {
  /// A request that has no outcome yet.
  private final class Flight {
    let request: PushRequest
    /// The token it was last written with.
    var token: ProviderToken?
    var resends = 0

    init(_ request: PushRequest) {
      self.request = request
    }
  }

  /// How often a request is sent again on the provider's word alone, before that becomes an outcome.
  private static let resendsMax = 2
  /// How soon to ask again for a token that was not to be had.
  private static let tokenRetryDelay = Nanoseconds.seconds(5)

  private let configuration: APNsConfiguration
  private let clock: any GatewayClock
  private let loop: EventLoop
  private let production: HTTP2ConnectionPool
  private let sandbox: HTTP2ConnectionPool
  private let productionWriter: APNsRequestWriter
  private let sandboxWriter: APNsRequestWriter
  private var isSandboxStarted = false

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
  /// The token in use, from the moment APNs refused it until the source gave its answer.
  private var refusedToken: ProviderToken?
  /// A token that APNs refused as expired and that is too young to be replaced: clocks differ, or keys.
  private var hopelessToken: ProviderToken?
  private var renewalTimer: EventLoop.Timer?
  private var isShuttingDown = false

  init(_ configuration: APNsConfiguration, clock: any GatewayClock, loop: EventLoop, logger: Logger) {
    self.configuration = configuration
    self.clock = clock
    self.loop = loop
    production = HTTP2ConnectionPool(configuration.production, settings: configuration.pool, loop: loop, logger: logger)
    sandbox = HTTP2ConnectionPool(configuration.sandbox, settings: configuration.pool, loop: loop, logger: logger)
    productionWriter = APNsRequestWriter(authority: configuration.production.authority, topic: configuration.topic)
    sandboxWriter = APNsRequestWriter(authority: configuration.sandbox.authority, topic: configuration.topic)
    production.delegate = self
    sandbox.delegate = self
  }

  /// Fetches a token; the pools connect when it is there.
  func start() {
    requestToken()
  }

  func send(_ batch: [PushRequest]) {
    for request in batch {
      if isShuttingDown {
        finish(request, .refused(reason: "ShuttingDown"), status: 0, sentAt: nil)
      } else if let objection = APNsRequestWriter.objection(to: request) {
        finish(request, .rejected(reason: objection.rawValue), status: 0, sentAt: nil)
      } else {
        let slot = flights.insert(Flight(request))
        pool(request.environment).submit(slot, deadline: request.deadline)
      }
    }
  }

  /// Calls `completion` when every request has its outcome and the outcomes have been reported.
  func shutDown(by deadline: Instant, completion: @escaping () -> Void) {
    isShuttingDown = true
    renewalTimer?.cancel()
    production.shutDown(by: deadline) { [self] in
      sandbox.shutDown(by: deadline) { [self] in
        deliverReport()
        completion()
      }
    }
  }

  // MARK: - Token

  func tokenArrived(_ token: ProviderToken) {
    isFetchingToken = false
    guard !isShuttingDown else { return }
    let isFirst = self.token == nil
    if token == refusedToken { hopelessToken = token }
    refusedToken = nil
    self.token = token
    bearer = Array("bearer ".utf8) + token.value
    // Whatever the source says, the answer to when is between a second and an hour from now.
    let (delay, overflow) = token.renewAtMilliseconds.subtractingReportingOverflow(clock.wallMilliseconds())
    scheduleRenewal(after: .milliseconds(overflow ? 3_600_000 : min(max(delay, 1000), 3_600_000)))
    if isFirst { startPools() }
    production.resume()
    sandbox.resume()
  }

  /// What waits in the pools gives up by itself, if the next try should be too late for it.
  func tokenFailed() {
    isFetchingToken = false
    if !isShuttingDown { scheduleRenewal(after: Self.tokenRetryDelay) }
  }

  private func requestToken() {
    guard !isFetchingToken else { return }
    isFetchingToken = true
    fetchToken?(refusedToken)
  }

  /// APNs refused the token in use: nothing leaves before there is another.
  private func replaceToken() {
    guard refusedToken == nil else { return }
    refusedToken = token
    production.pause()
    sandbox.pause()
    requestToken()
  }

  private func scheduleRenewal(after delay: Nanoseconds) {
    renewalTimer?.cancel()
    renewalTimer = loop.schedule(at: loop.now + delay) { [weak self] in self?.requestToken() }
  }

  // MARK: - Pools

  private func startPools() {
    production.start()
    if isSandboxStarted { sandbox.start() }
  }

  /// Most deployments never meet a sandbox token, so that pool connects when it meets the first.
  private func pool(_ environment: PushEnvironment) -> HTTP2ConnectionPool {
    guard environment == .sandbox else { return production }
    if !isSandboxStarted {
      isSandboxStarted = true
      if token != nil { sandbox.start() }
    }
    return sandbox
  }

  func pool(_ pool: HTTP2ConnectionPool, write slot: Int, into headers: inout HTTP2HeaderBlock) -> [UInt8] {
    guard let flight = flights[slot] else { preconditionFailure("a pool asked for a request that has ended") }
    flight.token = token
    let writer = pool === sandbox ? sandboxWriter : productionWriter
    writer.write(flight.request, bearer: bearer, into: &headers)
    return flight.request.body
  }

  func pool(
    _ pool: HTTP2ConnectionPool, didEnd slot: Int, _ exchange: HTTP2Exchange
  ) -> HTTP2ConnectionPool.Verdict {
    switch exchange.result {
    case .response(let response): return answered(slot, response, exchange.sentAt)
    case .refused(let reason): finish(slot, .refused(reason: reason), sentAt: nil)
    case .lost: finish(slot, .unknown(reason: "ConnectionLost"), sentAt: exchange.sentAt)
    case .timedOut: finish(slot, timeoutOutcome(slot, exchange.sentAt), sentAt: exchange.sentAt)
    }
    return .init(.unproven)
  }

  func pool(_ pool: HTTP2ConnectionPool, capacityDidChange capacity: Int) {
    report?(.capacity(production.capacity + sandbox.capacity))
  }

  // MARK: - Answers

  private func answered(
    _ slot: Int, _ response: HTTP2Message, _ sentAt: Instant?
  ) -> HTTP2ConnectionPool.Verdict {
    let (disposition, connection) = APNsReasonTable.read(response)
    switch disposition {
    case .settle(.unauthorized) where connection == .worn && mayResend(slot):
      // A connection remembers the first key it saw: only a new one shows whether the credentials are wrong.
      return .init(.worn, resends: true)
    case .settle(let outcome): finish(slot, outcome, status: response.status, sentAt: sentAt)
    case .renewToken:
      guard let sentWith = flights[slot]?.token, sentWith != hopelessToken, mayResend(slot) else {
        finish(slot, .unauthorized(reason: "ExpiredProviderToken"), status: response.status, sentAt: sentAt)
        break
      }
      if sentWith == token { replaceToken() }
      return .init(.worn, resends: true)
    case .reconnect, .resend:
      if mayResend(slot) { return .init(connection, resends: true) }
      finish(slot, .unavailable(reason: "RefusedRepeatedly", after: nil), status: response.status, sentAt: sentAt)
    }
    return .init(connection)
  }

  /// Counts a resend, if the request may have another.
  private func mayResend(_ slot: Int) -> Bool {
    guard !isShuttingDown, let flight = flights[slot], flight.resends < Self.resendsMax else { return false }
    flight.resends += 1
    return true
  }

  private func timeoutOutcome(_ slot: Int, _ sentAt: Instant?) -> PushOutcome {
    if sentAt != nil { return .unknown(reason: "TimedOut") }
    guard let deadline = flights[slot]?.request.deadline, deadline <= loop.now else {
      return .refused(reason: "NoConnection")
    }
    return .expired
  }

  private func finish(_ slot: Int, _ outcome: PushOutcome, status: UInt16 = 0, sentAt: Instant?) {
    guard let flight = flights.remove(slot) else { return }
    finish(flight.request, outcome, status: status, sentAt: sentAt)
  }

  private func finish(_ request: PushRequest, _ outcome: PushOutcome, status: UInt16, sentAt: Instant?) {
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
