// The working half of a provider that speaks HTTP/2: requests in flight, their outcomes, the change of credentials.
//
// Requests go to the current credentials' connections. New credentials that need new connections open their own beside them.
// Those become the current ones when they are connected; the old ones are drained, and what they refuse moves on.
//
// An invite that `HedgingMachine` wants hedged has a second flight, in a slot of its own. The first answer of the two settles the
// push; the other flight goes on without meaning anything, so that its connection is judged by it. One that ends without an
// answer leaves the decision to the other.

internal import Logging
internal import Runtime

/// Sends pushes over pools of connections and collects their outcomes, reported once a turn. Lives on the provider's
/// loop.
///
/// The format is an existential on purpose: a pool calls its delegate through a witness table, which for a class generic
/// over the format would hold code that is not specialised; that was measured to cost a sixth more CPU a push.
final class HTTP2Sender: HTTP2ConnectionPoolDelegate {
  /// Numbers all connections, whatever credentials they have.
  private final class ConnectionNumbers {
    private var count = 0

    func next() -> Int {
      defer { count += 1 }
      return count
    }
  }

  /// Where results, capacity and clock skew go.
  var report: ((PushProviderEvent) -> Void)?

  let format: any HTTP2PushFormat
  private let settings: HTTP2ConnectionPoolSettings
  private let rotationTimeMax: Nanoseconds
  private let firstTokens: any ProviderTokenSource
  private let clock: any GatewayClock
  let permit: SendPermit?
  let loop: EventLoop
  private let logger: Logger

  lazy var current = makeConnections(
    makeToken(firstTokens), isWanted: format.endpoints.indices.map { $0 == 0 })
  /// The connections of new credentials, until they are connected.
  var next: CredentialConnections?
  /// The token of new credentials for the connections there are, until it has come.
  private var nextToken: RenewingToken?
  var draining: [CredentialConnections] = []
  private var rotationTimer: EventLoop.Timer?
  private let connectionNumbers = ConnectionNumbers()
  private var goAways: [String: Int] = [:]

  var flights = SlotTable<PushFlight>()
  /// How many of these are of pushes that have their outcome.
  var settledCount = 0
  var hedging: HedgingMachine?
  var hedgeTimer: EventLoop.Timer?
  /// When `hedgeTimer` fires; `distantFuture` without one.
  var hedgeCheckAt = Instant.distantFuture
  var hedgedCount = 0
  private var reportedHedges = 0
  var unanswered = UnansweredTime()
  /// Of connections of former credentials.
  private var formerReplacements: [ConnectionReplacement: Int] = [:]
  private var results: [PushResult] = []
  private var isReportScheduled = false
  private var reportedCapacity = 0
  private var skewMeter = ClockSkewMeter()
  var isShuttingDown = false

  /// - Parameters:
  ///   - hedging: when invites are sent once more; nil: never.
  ///   - permit: whether requests may be written; nil: always.
  ///   - rotationTimeMax: how long new credentials may take to be connected before they are used all the same.
  init(
    _ format: any HTTP2PushFormat, settings: HTTP2ConnectionPoolSettings, hedging: HedgingSettings? = nil,
    tokens: any ProviderTokenSource, permit: SendPermit? = nil, clock: any GatewayClock, loop: EventLoop,
    logger: Logger,
    rotationTimeMax: Nanoseconds = .seconds(10)
  ) {
    self.format = format
    self.settings = settings
    self.hedging = hedging.map(HedgingMachine.init)
    self.rotationTimeMax = rotationTimeMax
    firstTokens = tokens
    self.permit = permit
    self.clock = clock
    self.loop = loop
    self.logger = logger
  }

  /// Fetches a token; the first pool connects when it is there, so there is no capacity without one.
  func start() { current.start() }

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

  /// How the connections are, those of former and of next credentials included.
  var condition: ProviderCondition {
    var condition = ProviderCondition()
    for pool in (draining + [current] + (next.map { [$0] } ?? [])).flatMap(\.pools) {
      condition.connectingConnections += pool.connectionCounts.connecting
      condition.openConnections += pool.connectionCounts.open
    }
    condition.goAways = goAways
    condition.replacements = replacements
    condition.hedged = hedgedCount
    condition.unanswered = unanswered.time(loop.now)
    condition.tokenIssuedAtMilliseconds = current.token.current?.issuedAtMilliseconds
    return condition
  }

  private var replacements: [ConnectionReplacement: Int] {
    (draining + [current] + (next.map { [$0] } ?? [])).flatMap(\.pools).reduce(into: formerReplacements) { sum, pool in
      sum.merge(pool.replacements, uniquingKeysWith: +)
    }
  }

  /// Refuses those of these requests that wait for a stream. What has left is not sent once more.
  func withdraw(_ tags: Set<UInt64>) {
    let slots = Set(flights.occupied.filter { flights[$0].map { tags.contains($0.request.tag) } ?? false })
    guard !slots.isEmpty else { return }
    for slot in slots { flights[slot]?.candidate = nil }
    for connections in draining + [current] { connections.withdraw(slots) }
  }

  /// Calls `completion` when every request has its outcome and the outcomes have been reported.
  func shutDown(by deadline: Instant, completion: @escaping () -> Void) {
    isShuttingDown = true
    rotationTimer?.cancel()
    hedgeTimer?.cancel()
    nextToken?.stop()
    let all = draining + [current] + (next.map { [$0] } ?? [])
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

  // MARK: - New credentials

  /// Connects at once if it waits to.
  func retryConnections() {
    for pool in ([current] + (next.map { [$0] } ?? [])).flatMap(\.pools) { pool.retry() }
    report?(.renewed)
  }

  /// Uses tokens of this source from now on, as soon as it has given one; a rotation under way gives way.
  func rotate(to tokens: any ProviderTokenSource) {
    guard !isShuttingDown else { return }
    let token = makeToken(tokens)
    guard format.bindsConnectionsToKeys else { return rotate(to: token) }
    if let next { retire(next, by: loop.now) }
    let connections = makeConnections(token, isWanted: current.isWanted)
    next = connections
    watchRotation(of: connections)
    connections.start()
  }

  /// The connections stay: only the token changes.
  private func rotate(to token: RenewingToken) {
    nextToken?.stop()
    nextToken = token
    token.didArrive = { [weak self, weak token] in
      guard let self, let token else { return }
      nextToken = nil
      current.use(token)
      report?(.renewed)
    }
    token.start()
  }

  /// Connections that do not get connected take over all the same, for it may be the network's fault; but not without
  /// a token, which is its own.
  private func watchRotation(of connections: CredentialConnections) {
    rotationTimer?.cancel()
    rotationTimer = loop.schedule(at: loop.now + rotationTimeMax) { [weak self, weak connections] in
      guard let self, let connections, connections === next else { return }
      guard connections.token.current != nil else { return watchRotation(of: connections) }
      takeOver(connections)
    }
  }

  private func takeOver(_ connections: CredentialConnections) {
    logger.info("new credentials are in use", metadata: ["is_connected": .stringConvertible(connections.isReady)])
    let old = current
    current = connections
    next = nil
    rotationTimer?.cancel()
    // Whatever is in flight has ended by then of itself.
    retire(old, by: loop.now + settings.connection.requestTimeout + .seconds(1))
    reportCapacity()
    report?(.renewed)
  }

  private func retire(_ connections: CredentialConnections, by deadline: Instant) {
    draining.append(connections)
    connections.shutDown(by: deadline) { [weak self, weak connections] in
      guard let self else { return }
      for pool in connections?.pools ?? [] { formerReplacements.merge(pool.replacements, uniquingKeysWith: +) }
      draining.removeAll { $0 === connections }
    }
  }

  private func makeToken(_ source: any ProviderTokenSource) -> RenewingToken {
    RenewingToken(source, scheme: format.authorizationScheme, clock: clock, loop: loop, logger: logger)
  }

  private func makeConnections(_ token: RenewingToken, isWanted: [Bool]) -> CredentialConnections {
    let pools = format.endpoints.map { endpoint in
      let pool = HTTP2ConnectionPool(
        endpoint, settings: settings, loop: loop, logger: logger, permit: permit, nextNumber: connectionNumbers.next)
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
    noteDispatch(slot, flight, now)
    let token = flight.connections.token
    flight.token = token.current
    return format.write(flight.request, authorization: token.authorization, loop: loop, into: &head)
  }

  func pool(
    _ pool: HTTP2ConnectionPool, didEnd slot: Int, _ exchange: HTTP2Exchange, on connection: Int?
  ) -> HTTP2ConnectionPool.ExchangeEffect {
    guard let flight = flights[slot] else { preconditionFailure("a request ended twice") }
    switch exchange.result {
    case .response(let response): return answered(slot, flight, response, exchange, connection ?? 0)
    case .refused(let reason):
      if flight.connections !== current, !isShuttingDown, flight.hedges == nil, !flight.isSettled {
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

  func pool(_ pool: HTTP2ConnectionPool, isLeftBecause reason: String) {
    goAways[ProviderReasons.goAway(reason), default: 0] += 1
  }

  func pool(_ pool: HTTP2ConnectionPool, capacityDidChange capacity: Int) {
    if current.owns(pool) { return reportCapacity() }
    if let next, next.isReady { takeOver(next) }
  }

  private func reportCapacity() {
    let capacity = current.capacity
    guard capacity != reportedCapacity else { return }
    reportedCapacity = capacity
    report?(.capacity(capacity))
  }

  private func submit(_ slot: Int, _ flight: PushFlight, _ now: Instant) {
    flight.connections.pool(format.endpoint(of: flight.request))
      .submit(slot, deadline: flight.request.deadline, avoiding: flight.request.avoidedConnection, now: now)
  }

  // MARK: - Answers

  private func answered(
    _ slot: Int, _ flight: PushFlight, _ response: borrowing HTTP2Message, _ exchange: borrowing HTTP2Exchange,
    _ connection: Int
  ) -> HTTP2ConnectionPool.ExchangeEffect {
    if let sentAt = exchange.sentAt, skewMeter.isDue(connection, sentAt: sentAt) { measureSkew(response, connection) }
    noteAnswer(flight, exchange.endedAt)
    let (disposition, connectionEffect) = format.read(response, clock: clock)
    guard !flight.isSettled else {
      removeSettled(slot)
      return .init(connectionEffect)
    }
    let failure: PushOutcome
    switch disposition {
    case .settle(.unauthorized(let reason)):
      // A connection remembers the first key it saw, and old credentials have had their day: only a new connection
      // shows whether those in use are wrong.
      if connectionEffect == .worn || flight.connections !== current, mayResend(flight) {
        return .init(connectionEffect, resends: true)
      }
      failure = .unauthorized(reason: reason)
    case .settle(let outcome):
      failure = outcome
      if let sentAt = exchange.sentAt { hedging?.didAnswer(after: exchange.endedAt - sentAt, exchange.endedAt) }
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
    finish(slot, failure, status: response.status, exchange, connection)
    return .init(connectionEffect)
  }

  /// Counts a resend, if the request may have another.
  private func mayResend(_ flight: PushFlight) -> Bool {
    guard !isShuttingDown, flight.resends < format.resendsMax else { return false }
    flight.resends += 1
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
    _ connection: Int? = nil
  ) {
    guard let flight = flights.remove(slot) else { return }
    if let slot = flight.other, let other = flights[slot] {
      other.isSettled = true
      other.other = nil
      settledCount += 1
      other.connections.withdraw([slot])  // where it still waits, it need not leave any more
      if flight.hedges != nil {
        other.connections.pool(format.endpoint(of: other.request)).noteOvertaken(slot)
      }
    }
    finish(
      flight.request.tag, outcome, status: status, sentAt: flight.hedges ?? exchange.sentAt, at: exchange.endedAt,
      connection, isHedged: flight.isHedged)
    cutOffIfOver()
  }

  private func finish(
    _ tag: UInt64, _ outcome: PushOutcome, status: UInt16 = 0, sentAt: Instant? = nil, at now: Instant,
    _ connection: Int? = nil, isHedged: Bool = false
  ) {
    results.append(
      PushResult(
        tag: tag, outcome: outcome, status: status, sentAt: sentAt, answeredAt: now, connection: connection,
        isHedged: isHedged))
    scheduleReport()
  }

  func scheduleReport() {
    guard !isReportScheduled else { return }
    isReportScheduled = true
    loop.atEndOfTurn { [self] in deliverReport() }
  }

  private func deliverReport() {
    isReportScheduled = false
    if hedgedCount > reportedHedges {
      report?(.hedged(hedgedCount - reportedHedges))
      reportedHedges = hedgedCount
    }
    guard !results.isEmpty else { return }
    let batch = results
    results = []
    results.reserveCapacity(batch.count)
    report?(.results(batch))
  }
}
