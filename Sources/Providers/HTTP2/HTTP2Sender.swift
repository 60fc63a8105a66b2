// The common part of `HTTP2Provider` and `WebPushProvider`: requests in flight, their outcomes, the change of credentials.
//
// Requests use the connections of the current credentials. New credentials open connections beside them, and are tried there with a
// push to a made-up token (HTTP2Sender+Credentials.swift). When the provider accepts them, their connections become the current
// ones. The old ones are then drained, and the requests that they refuse are sent on the new ones.
//
// An invite that `HedgingMachine` wants hedged has a second flight in a slot of its own. The first answer of the two decides the
// outcome of the push. The other flight continues only so that its connection can be assessed. If one flight ends without an
// answer, the other decides the outcome.

internal import Logging
internal import Runtime

/// Sends pushes over pools of connections and collects their outcomes, reported once a turn. Confined to the provider's
/// loop.
///
/// The format is an existential on purpose. A pool calls its delegate through a witness table, and for a class generic over the
/// format that table contains unspecialised code. This measurably cost a sixth more CPU a push.
final class HTTP2Sender: HTTP2ConnectionPoolDelegate {
  /// Numbers the connections of all credentials.
  private final class ConnectionNumbers {
    private var count = 0

    func next() -> Int {
      defer { count += 1 }
      return count
    }
  }

  /// Receives results, capacity, clock skew and the other events.
  var report: ((PushProviderEvent) -> Void)?

  let format: any HTTP2PushFormat
  let settings: HTTP2ConnectionPoolSettings
  private let firstTokens: any ProviderTokenSource
  let clock: any GatewayClock
  let permits: SendPermits?
  let loop: EventLoop
  let logger: Logger

  lazy var current = makeConnections(
    makeToken(firstTokens), isWanted: format.endpoints.indices.map { $0 == 0 })
  /// The connections of new credentials, until the provider accepts them.
  var next: CredentialConnections?
  /// Why the credentials of `next` are not in use; nil while nothing is known.
  var nextRefusal: String?
  /// The token of new credentials that are used without a trial, until it has arrived.
  var nextToken: RenewingToken?
  var draining: [CredentialConnections] = []
  var trialTimer: EventLoop.Timer?
  private let connectionNumbers = ConnectionNumbers()
  private var goAways: [String: Int] = [:]

  var flights = SlotTable<PushFlight>()
  /// Number of `flights` whose push already has its outcome.
  var settledCount = 0
  var hedging: HedgingMachine?
  var hedgeTimer: EventLoop.Timer?
  /// When `hedgeTimer` fires; `distantFuture` without one.
  var hedgeCheckAt = Instant.distantFuture
  var hedgedCount = 0
  /// The tags of the pushes whose hedges have not been reported.
  var unreportedHedges: [UInt64] = []
  var unanswered = UnansweredTime()
  /// The replacements of connections with former credentials.
  var formerReplacements: [ConnectionReplacement: Int] = [:]
  private var results: [PushResult] = []
  private var isReportScheduled = false
  private var reportedCapacity = 0
  /// Since when nothing can be sent; nil while something can.
  private var unconnectedSince: Instant?
  private var skewMeter = ClockSkewMeter()
  var isShuttingDown = false

  /// - Parameters:
  ///   - hedging: when invites are sent a second time; nil: never.
  ///   - permits: the permits of its requests; nil: they may always be written.
  init(
    _ format: any HTTP2PushFormat, settings: HTTP2ConnectionPoolSettings, hedging: HedgingSettings? = nil,
    tokens: any ProviderTokenSource, permits: SendPermits? = nil, clock: any GatewayClock, loop: EventLoop,
    logger: Logger
  ) {
    self.format = format
    self.settings = settings
    self.hedging = hedging.map(HedgingMachine.init)
    firstTokens = tokens
    self.permits = permits
    self.clock = clock
    self.loop = loop
    self.logger = logger
  }

  /// Fetches a token. The first pool connects when the token has arrived, so without a token there is no capacity.
  func start() {
    unconnectedSince = loop.now
    current.start()
  }

  func send(_ batch: [PushRequest]) {
    let now = loop.now
    let connections = current
    for request in batch {
      let flight = PushFlight(request, connections)
      if isShuttingDown {
        finish(request.tag, .refused(reason: "ShuttingDown"), at: now)
      } else if let objection = format.objection(to: flight.request) {
        finish(request.tag, .rejected(reason: objection), at: now)
      } else {
        submit(flights.insert(flight), flight, now)
      }
    }
  }

  /// The connections of former, current and next credentials.
  var all: [CredentialConnections] { draining + [current] + (next.map { [$0] } ?? []) }

  /// The condition of all connections.
  var condition: ProviderCondition {
    var condition = ProviderCondition()
    condition.replacements = formerReplacements
    for pool in all.flatMap(\.pools) {
      condition.connectingConnections += pool.connectionCounts.connecting
      condition.openConnections += pool.connectionCounts.open
      condition.replacements.merge(pool.replacements, uniquingKeysWith: +)
    }
    condition.goAways = goAways
    condition.hedged = hedgedCount
    let now = loop.now
    condition.unanswered = unanswered.time(now, isConnected: unconnectedSince == nil)
    condition.unconnected = unconnectedSince.map { now - $0 } ?? .zero
    condition.tokenIssuedAtMilliseconds = current.token.current?.issuedAtMilliseconds
    condition.refusal = current.refusal
    condition.isWithoutToken = current.token.refusal != nil
    condition.refusedCredentials = nextRefusal
    return condition
  }

  /// Refuses the given requests that still wait for a stream. Requests already sent get no hedge any more, and are not sent again.
  func withdraw(_ tags: Set<UInt64>) {
    let slots = Set(flights.occupied.filter { flights[$0].map { tags.contains($0.request.tag) } ?? false })
    guard !slots.isEmpty else { return }
    for slot in slots {
      flights[slot]?.candidate = nil
      flights[slot]?.isWithdrawn = true
    }
    for connections in draining + [current] { connections.withdraw(slots) }
  }

  /// Calls `completion` when every request has its outcome and the outcomes have been reported.
  func shutDown(by deadline: Instant, completion: @escaping () -> Void) {
    isShuttingDown = true
    trialTimer?.cancel()
    hedgeTimer?.cancel()
    nextToken?.stop()
    let all = all
    var open = all.count
    for connections in all {
      connections.shutDown(by: deadline) { [self] in
        open -= 1
        guard open == 0 else { return }
        deliverReport()
        completion()
      }
    }
    cutOffIfOver()
  }

  /// Ends the waits of all pools before their next connection.
  func retryConnections() {
    for pool in all.flatMap(\.pools) { pool.retry() }
    report?(.renewed)
  }

  /// Asks the source for another token, if the current one is at least that old, or was issued in the future: a clock was set.
  func renewToken(ofAge age: Nanoseconds) {
    guard let token = current.token.current else { return }
    let milliseconds = clock.wallMilliseconds() - token.issuedAtMilliseconds
    if !(0..<age.milliseconds).contains(milliseconds) { _ = current.token.replace(token) }
  }

  func makeToken(_ source: any ProviderTokenSource) -> RenewingToken {
    RenewingToken(source, scheme: format.authorizationScheme, clock: clock, loop: loop, logger: logger)
  }

  func makeConnections(_ token: RenewingToken, isWanted: [Bool]) -> CredentialConnections {
    let pools = format.endpoints.map { endpoint in
      let pool = HTTP2ConnectionPool(
        endpoint, settings: settings, loop: loop, logger: logger, permits: permits, nextNumber: connectionNumbers.next)
      pool.delegate = self
      return pool
    }
    return CredentialConnections(token, pools: pools, isWanted: isWanted)
  }

  // MARK: - HTTP2ConnectionPoolDelegate

  func pool(
    _ pool: HTTP2ConnectionPool, write slot: Int, at now: Instant, into head: inout HTTP2RequestHead
  ) -> [UInt8] {
    guard let flight = flights[slot] else { preconditionFailure("a pool asked for a request that has ended") }
    if !flight.isTrial { noteDispatch(slot, flight, now) }
    let token = flight.connections.token
    flight.token = token.current
    return format.write(flight.request, authorization: token.authorization, loop: loop, into: &head)
  }

  func pool(
    _ pool: HTTP2ConnectionPool, didEnd slot: Int, _ exchange: HTTP2Exchange, on connection: Int?
  ) -> HTTP2ConnectionPool.ExchangeEffect {
    guard let flight = flights[slot] else { preconditionFailure("a request ended twice") }
    guard !flight.isTrial else { return .init(endTrial(slot, flight, exchange)) }
    switch exchange.result {
    case .response(let response): return answered(slot, flight, response, exchange, connection ?? 0)
    case .refused(let reason):
      if flight.connections !== current, !isShuttingDown, flight.hedges == nil, !flight.isSettled, !flight.isWithdrawn {
        flight.connections = current
        submit(slot, flight, exchange.endedAt)
      } else {
        endUnanswered(slot, flight, .refused(reason: reason), exchange, nil)
      }
    case .lost: endUnanswered(slot, flight, .unknown(reason: PushOutcome.connectionLostReason), exchange, connection)
    case .timedOut: endUnanswered(slot, flight, timeoutOutcome(flight, exchange), exchange, connection)
    }
    return .init(.unproven)
  }

  func pool(_ pool: HTTP2ConnectionPool, didTakeBack slot: Int) {
    guard let flight = flights[slot], !flight.isTrial, !flight.isHedged else { return }
    flight.request.leftAt = nil
  }

  func pool(_ pool: HTTP2ConnectionPool, maySend slot: Int, at now: Instant) -> Bool {
    flights[slot]?.request.permit?.allows(now) ?? true
  }

  func pool(_ pool: HTTP2ConnectionPool, isLeftBecause reason: String) {
    goAways[ProviderReasons.goAway(reason), default: 0] += 1
  }

  func pool(_ pool: HTTP2ConnectionPool, capacityDidChange capacity: Int) {
    if current.owns(pool) { reportCapacity() }
  }

  func reportCapacity() {
    let capacity = current.capacity
    guard capacity != reportedCapacity else { return }
    reportedCapacity = capacity
    unconnectedSince = capacity > 0 ? nil : loop.now
    report?(.capacity(capacity))
  }

  func submit(_ slot: Int, _ flight: PushFlight, _ now: Instant) {
    flight.connections.pool(format.endpoint(of: flight.request))
      .submit(
        slot, deadline: flight.request.deadline, avoiding: flight.request.avoidedConnection,
        isRepeat: flight.request.isRepeat, now: now)
  }

  // MARK: - Answers

  private func answered(
    _ slot: Int, _ flight: PushFlight, _ response: borrowing HTTP2Message, _ exchange: borrowing HTTP2Exchange,
    _ connection: Int
  ) -> HTTP2ConnectionPool.ExchangeEffect {
    if let sentAt = exchange.sentAt, skewMeter.isDue(connection, sentAt: sentAt) { measureSkew(response, connection) }
    noteAnswer(flight, exchange.endedAt)
    let (disposition, connectionEffect) = format.read(response, clock: clock)
    if flight.connections.verdict != .accepted {
      flight.connections.note(disposition.verdict(refusal: format.tokenRefusedReason))
    }
    guard !flight.isSettled else {
      removeSettled(slot)
      return .init(connectionEffect)
    }
    let failure: PushOutcome
    var concernsLane = true
    switch disposition {
    case .settle(.unauthorized(let reason), let scope):
      // The server ties a connection to the first key it saw, and this flight may have used old credentials. Only a new connection
      // shows whether the current credentials are wrong.
      if connectionEffect == .worn || flight.connections !== current, mayResend(flight) {
        return .init(connectionEffect, resends: true)
      }
      failure = .unauthorized(reason: reason)
      concernsLane = scope == .lane
    case .settle(let outcome, _):
      failure = outcome
      if let sentAt = exchange.sentAt { hedging?.didAnswer(after: exchange.endedAt - sentAt, exchange.endedAt) }
      watchHedges()
      pauseHedges(outcome, exchange.endedAt)
    case .renewToken:
      if let token = flight.token, flight.connections.token.isWorthAnotherTry(after: token), mayResend(flight) {
        if flight.connections.token.replace(token) { flight.connections.pause() }
        return .init(connectionEffect, resends: true)
      }
      failure = .unauthorized(reason: format.tokenRefusedReason)
    case .keepOlderToken, .resend:
      if disposition == .keepOlderToken, let token = flight.token { flight.connections.token.useOlder(than: token) }
      if mayResend(flight) { return .init(connectionEffect, resends: true) }
      failure = .unavailable(reason: "RefusedRepeatedly", after: nil)
    }
    finish(slot, failure, status: response.status, exchange, connection, concernsLane: concernsLane)
    return .init(connectionEffect)
  }

  /// Whether the request may be sent again. Counts the resend if so.
  private func mayResend(_ flight: PushFlight) -> Bool {
    guard !isShuttingDown, flight.resends < format.resendsMax else { return false }
    flight.resends += 1
    flight.request.leftAt = nil
    return true
  }

  private func timeoutOutcome(_ flight: PushFlight, _ exchange: borrowing HTTP2Exchange) -> PushOutcome {
    if exchange.sentAt != nil { return .unknown(reason: "TimedOut") }
    return flight.request.deadline <= exchange.endedAt ? .expired : .refused(reason: "NotSentInTime")
  }

  private func measureSkew(_ response: borrowing HTTP2Message, _ connection: Int) {
    let now = loop.now
    guard
      let skew = skewMeter.measure(
        response.headers["date"], on: connection, now: now, wallMilliseconds: clock.wallMilliseconds())
    else { return }
    if skewMeter.warns(of: skew, now: now) {
      logger.warning(
        "the provider's clock and ours differ; correct the time of this machine, or tokens will be refused",
        metadata: ["skew_seconds": .stringConvertible(skew.seconds)])
    }
    report?(.clockSkew(skew))
  }

  // MARK: - Results

  func finish(
    _ slot: Int, _ outcome: PushOutcome, status: UInt16 = 0, _ exchange: borrowing HTTP2Exchange,
    _ connection: Int? = nil, concernsLane: Bool = true
  ) {
    guard let flight = flights.remove(slot) else { return }
    if let slot = flight.other, let other = flights[slot] {
      other.isSettled = true
      other.other = nil
      settledCount += 1
      other.connections.withdraw([slot])  // if it still waits, it need not be sent any more
      if flight.hedges != nil {
        other.connections.pool(format.endpoint(of: other.request)).noteOvertaken(slot)
      }
    }
    finish(
      flight.request.tag, outcome, status: status, sentAt: flight.hedges ?? exchange.sentAt, at: exchange.endedAt,
      connection, isHedged: flight.isHedged, concernsLane: concernsLane)
    cutOffIfOver()
  }

  private func finish(
    _ tag: UInt64, _ outcome: PushOutcome, status: UInt16 = 0, sentAt: Instant? = nil, at now: Instant,
    _ connection: Int? = nil, isHedged: Bool = false, concernsLane: Bool = true
  ) {
    var result = PushResult(
      tag: tag, outcome: outcome, status: status, sentAt: sentAt, answeredAt: now, connection: connection,
      isHedged: isHedged)
    result.concernsLane = concernsLane
    results.append(result)
    scheduleReport()
  }

  func scheduleReport() {
    guard !isReportScheduled else { return }
    isReportScheduled = true
    loop.atEndOfTurn { [self] in deliverReport() }
  }

  private func deliverReport() {
    isReportScheduled = false
    if !unreportedHedges.isEmpty {
      report?(.hedged(unreportedHedges))
      unreportedHedges = []
    }
    guard !results.isEmpty else { return }
    let batch = results
    results = []
    results.reserveCapacity(batch.count)
    report?(.results(batch))
  }
}
