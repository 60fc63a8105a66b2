// The outbox in Postgres: three connections, our identity, and the batches between.
//
//   claims       push.claim                                            one statement for all lanes
//   settlements  push.settle, park, release, heartbeat, maintenance
//   control      LISTEN, the leader's lock                             never inside a transaction, always drained
//
// The first two are needed to work. Without the third there is no bell, and polling finds what is due.
//
// All that belongs to one database is in this object, so that a gateway can serve several of them.

public import Logging
public import Runtime

/// Claims and settles deliveries in one database. An actor on an event loop.
public actor PostgresOutbox: OutboxStore {
  public struct Options: Sendable {
    /// `postgres://…` or a libpq connection string. A direct connection: LISTEN and session locks do not work through a
    /// pooler in transaction mode.
    public var url: String
    /// What `push.gateways.name` shows: the host's name.
    public var name: String
    /// What `push.gateways.version` shows.
    public var version: String
    public var heartbeat: Nanoseconds = .seconds(1)
    public var maintenance: Nanoseconds = .milliseconds(250)

    public init(url: String, name: String, version: String) {
      self.url = url
      self.name = name
      self.version = version
    }
  }

  public nonisolated let loop: EventLoop
  public nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  private let options: Options
  private let logger: Logger
  private let claims: OutboxLink
  private let settlements: OutboxLink
  private let control: OutboxLink
  private var report: (@Sendable (OutboxEvent) -> Void)?

  /// Our row in `push.gateways`: one life of this process, the fence on every claim.
  private var gatewayID: Int32?
  private var isAvailable = false
  private var roundTrips = OutboxCounters()
  private var floor = ClaimFloor()
  private var databaseClock = DatabaseClock()
  private var maintenance = OutboxMaintenance()
  private var beat: EventLoop.Timer?
  private var isClosed = false

  public init(options: Options, loop: EventLoop, logger: Logger) {
    self.options = options
    self.loop = loop
    self.logger = logger
    let work = [OutboxStatements.setUpWork]
    claims = OutboxLink(url: options.url, applicationName: "push-gateway claims", setUp: work, loop: loop)
    settlements = OutboxLink(url: options.url, applicationName: "push-gateway settlements", setUp: work, loop: loop)
    control = OutboxLink(
      url: options.url, applicationName: "push-gateway control",
      setUp: [OutboxStatements.setUpControl, OutboxStatements.listen, OutboxStatements.listenControl], loop: loop)
  }

  // MARK: - Life

  /// Connects and keeps connected; what happens is told through `report`, on the store's loop.
  public func open(report: @escaping @Sendable (OutboxEvent) -> Void) {
    self.report = report
    for link in [claims, settlements, control] {
      link.onRoundTrip = { self.roundTrips.note(.of($0), $1) }
    }
    for link in [claims, settlements] {
      link.onUp = { self.linkIsUp() }
      link.onDown = { self.linkIsDown($0) }
    }
    control.onUp = {
      report(.listening(true))
      report(.bell)  // whatever was enqueued while we did not listen
    }
    control.onDown = { self.controlIsDown($0) }
    control.onNotification = { channel, payload in
      if let event = OutboxEvent(channel: channel, payload: payload) { report(event) }
    }
    for link in [claims, settlements, control] { link.open() }
  }

  /// Tells the database that we are gone, and closes. Claims still held are taken over by others at once.
  public func close() async {
    isClosed = true
    beat?.cancel()
    if let gatewayID {
      var parameters = PostgresParameters()
      parameters.append(gatewayID)
      _ = try? await settlements.query(OutboxStatements.retireGateway, parameters, isolation: self)
    }
    for link in [claims, settlements, control] { link.close() }
  }

  private func linkIsUp() {
    guard claims.isUp, settlements.isUp, !isClosed else { return }
    Task { await becomeAvailable() }
  }

  private func controlIsDown(_ error: PostgresError) {
    maintenance.isLeader = false
    report?(.listening(false))
    logger.warning("The connection that listens is lost; polling until it is back", metadata: ["reason": "\(error)"])
  }

  private func linkIsDown(_ error: PostgresError) {
    beat?.cancel()
    if isAvailable {
      logger.warning("The connection to the database is lost; reconnecting", metadata: ["reason": "\(error)"])
    } else {
      logger.debug("The database cannot be reached yet", metadata: ["reason": "\(error)"])
    }
    isAvailable = false
    report?(.unavailable(reason: error.description))
  }

  /// All links are up: make sure that we have a living identity, then open for business.
  private func becomeAvailable() async {
    do throws(PostgresError) {
      try await confirmIdentity()
    } catch {
      guard !isClosed else { return }
      logger.warning("Registering with the database failed", metadata: ["reason": "\(error)"])
      report?(.unavailable(reason: error.description))
      loop.schedule(at: loop.now + .seconds(1)) { [weak self] in
        guard let self else { return }
        assumeIsolated { $0.linkIsUp() }
      }
      return
    }
    guard !isAvailable, !isClosed, claims.isUp, settlements.isUp else { return }
    isAvailable = true
    report?(.available)
    report?(.bell)
    scheduleBeat(after: .zero)
  }

  /// Registers, or asks whether we still count as alive; if others have taken over our claims, registers anew.
  private func confirmIdentity() async throws(PostgresError) {
    let former = gatewayID
    if let gatewayID {
      var parameters = PostgresParameters()
      parameters.append(gatewayID)
      let result = try await settlements.query(OutboxStatements.heartbeat, parameters, isolation: self)
      if result.bool(0, 0) { return }
      self.gatewayID = nil
      logger.warning("This replica was declared dead; its claims were taken over, and it registers anew")
    }
    var parameters = PostgresParameters()
    parameters.append(options.name)
    parameters.append(options.version)
    let result = try await settlements.query(OutboxStatements.registerGateway, parameters, isolation: self)
    gatewayID = result.int32(0, 0)
    if former != nil { report?(.fenced) }
  }

  // MARK: - Heartbeat and maintenance

  private func scheduleBeat(after delay: Nanoseconds) {
    beat?.cancel()
    beat = loop.schedule(at: loop.now + delay) { [weak self] in
      guard let self else { return }
      assumeIsolated { outbox in
        _ = Task { await outbox.tick() }
      }
    }
  }

  private func tick() async {
    guard isAvailable, !isClosed else { return }
    let now = loop.now
    do throws(PostgresError) {
      if maintenance.isHeartbeatDue(now, every: options.heartbeat) {
        try await confirmIdentity()
        if !maintenance.isLeader, control.isUp {
          maintenance.isLeader = try await control.query(OutboxStatements.tryLead, isolation: self).bool(0, 0)
        }
      }
      for statement in maintenance.dueJobs(now) {
        _ = try await settlements.query(statement, isolation: self)
      }
      if maintenance.isTallyDue(loop.now) { try await takeTally() }
    } catch {
      logger.warning("Maintenance of the outbox failed; it is tried again", metadata: ["reason": "\(error)"])
    }
    if isAvailable, !isClosed { scheduleBeat(after: options.maintenance) }
  }

  private func takeTally() async throws(PostgresError) {
    let asked = loop.now
    let result = try await settlements.query(OutboxStatements.takeTally, isolation: self)
    maintenance.didTally(cost: loop.now - asked, loop.now)
    let tallies = (0..<result.rowCount).compactMap { Tally(result, $0) }
    if !tallies.isEmpty { report?(.tallied(tallies)) }
  }

  /// What was done since the start.
  public var counters: OutboxCounters {
    var counters = roundTrips
    counters.reconnects = [claims, settlements, control].reduce(0) { $0 + $1.reconnects }
    counters.isLeader = maintenance.isLeader
    return counters
  }

  // MARK: - Apps and lanes

  /// Makes an app's settings known to the database, where `enqueue` and escalation read them.
  ///
  /// - Parameter escalateAfterSeconds: when a user of whom no phone was heard is tried on the next channel; nil: never.
  public func register(
    app: String, ringSeconds: Int, escalateAfterSeconds: Int? = nil
  ) async throws(OutboxError) {
    var parameters = PostgresParameters()
    parameters.append(app)
    parameters.append(Int32(ringSeconds))
    parameters.append(escalateAfterSeconds.map { Int32(clamping: $0) })
    _ = try await perform(settlements, OutboxStatements.registerApp, parameters)
  }

  /// The id of the lane of an app's provider (`apns`, `fcm`, `expo`).
  public func register(lane provider: String, app: String) async throws(OutboxError) -> Int16 {
    var parameters = PostgresParameters()
    parameters.append(app)
    parameters.append(provider)
    return try await perform(settlements, OutboxStatements.registerLane, parameters).int16(0, 0)
  }

  // MARK: - Provider tokens

  /// The token all replicas use now; nil when there is none.
  public func providerToken(_ provider: String, _ name: String) async throws(OutboxError) -> StoredToken? {
    var parameters = PostgresParameters()
    parameters.append(provider)
    parameters.append(name)
    let result = try await perform(settlements, OutboxStatements.currentToken, parameters)
    return result.rowCount == 0 ? nil : StoredToken(result)
  }

  /// Offers a new token; returns the one in use from now on, which is another if that is younger than `ageMin`.
  public func offer(
    _ token: StoredToken, _ provider: String, _ name: String, ageMin: Nanoseconds
  ) async throws(OutboxError) -> StoredToken {
    var parameters = PostgresParameters()
    parameters.append(provider)
    parameters.append(name)
    parameters.append(text: token.value)
    parameters.append(timestamps: [token.mintedAtMilliseconds * 1000, token.renewAtMilliseconds * 1000])
    parameters.append(Int32(clamping: ageMin.milliseconds))
    return StoredToken(try await perform(settlements, OutboxStatements.offerToken, parameters))
  }

  // MARK: - Deliveries

  public func claim(
    _ allowances: [LaneAllowance], within limits: ClaimLimits
  ) async throws(OutboxError) -> [Delivery] {
    let gateway = try identity()
    let asked = loop.now
    var parameters = PostgresParameters()
    parameters.append(gateway)
    parameters.append(allowances.map(\.lane))
    parameters.append(allowances.map(\.limit))
    floor.begin(asked)
    parameters.append(timestamps: allowances) { floor.floor(of: $0.lane) }
    parameters.append(limits.inAll)
    parameters.append(limits.background)
    parameters.append(timestamps: allowances) { floor.laterFloor(of: $0.lane) }
    parameters.append(allowances.map(\.background))
    let (result, walked) = try await perform(claim: parameters)
    let answered = loop.now
    let rows = ClaimedRows(result, asked: asked)
    let deliveries = rows.deliveries {
      databaseClock.observe(microseconds: $0.deadlineAtMicroseconds - $1, answered)
      floor.didClaim(
        lane: $0.lane, deadlineAtMicroseconds: $0.deadlineAtMicroseconds, isBackground: $0.isBackground(answered))
    }
    // The floors are for the next claim, which is asked for when this one is done: nothing comes between.
    floor.didFinish(cost: answered - asked, walked: walked, answered)
    if deliveries.count < result.rowCount {
      logger.error(
        "The database holds a kind of delivery this version does not know; is the gateway older than the schema?")
    }
    return deliveries
  }

  public func settle(_ settlements: [Settlement]) async throws(OutboxError) -> Int {
    let gateway = try identity()
    let parameters = PostgresParameters(settling: settlements, for: gateway, databaseClock)
    return Int(try await perform(self.settlements, OutboxStatements.settle, parameters).int64(0, 0))
  }

  public func settled(among settlements: [Settlement]) async throws(OutboxError) -> Set<DeliveryLease> {
    var parameters = PostgresParameters()
    parameters.append(try identity())
    parameters.append(settlements.map(\.lease.outboxID))
    parameters.append(settlements.map(\.lease.number))
    let result = try await perform(OutboxStatements.settled, parameters)
    let found = Set((0..<result.rowCount).map { [result.int64($0, 0), Int64(result.int32($0, 1))] })
    return Set(settlements.map(\.lease).filter { found.contains([$0.outboxID, Int64($0.number)]) })
  }

  public func park(_ parkings: [Parking]) async throws(OutboxError) -> Int {
    let gateway = try identity()
    var parameters = PostgresParameters()
    parameters.append(gateway)
    parameters.append(leases: parkings.map(\.lease))
    parameters.append(parkings.map(\.attempts))
    parameters.append(parkings.map { Int32(clamping: $0.delay.milliseconds) })
    parameters.append(parkings.map { Optional($0.reason) })
    parameters.append(texts: parkings.map { $0.failures.json(databaseClock) })
    return Int(try await perform(settlements, OutboxStatements.park, parameters).int64(0, 0))
  }

  public func release(_ leases: [DeliveryLease]) async throws(OutboxError) -> Int {
    let gateway = try identity()
    var parameters = PostgresParameters()
    parameters.append(gateway)
    parameters.append(leases: leases)
    return Int(try await perform(settlements, OutboxStatements.release, parameters).int64(0, 0))
  }

  public func invalidate(_ tokens: [TokenInvalidation]) async throws(OutboxError) -> Int {
    var parameters = PostgresParameters()
    parameters.append(tokens.map(\.lane))
    parameters.append(texts: tokens) { $0.token }
    parameters.append(timestamps: tokens.map { $0.since.map { $0 * 1000 } })
    parameters.append(tokens.map { Optional($0.reason) })
    return Int(try await perform(settlements, OutboxStatements.invalidate, parameters).int64(0, 0))
  }

  public func hold(_ holds: [InvalidationHold]) async throws(OutboxError) -> Int {
    var count = 0
    for hold in holds {
      var parameters = PostgresParameters()
      parameters.append(hold.lane)
      parameters.append(Int32(clamping: hold.window.milliseconds))
      parameters.append(hold.note)
      count += Int(try await perform(settlements, OutboxStatements.holdInvalidation, parameters).int64(0, 0))
    }
    return count
  }

  public func report(_ conditions: [LaneCondition]) async throws(OutboxError) {
    var parameters = PostgresParameters()
    parameters.append(try identity())
    parameters.append(conditions.map(\.lane))
    parameters.append(conditions.map { Int32(clamping: $0.window) })
    parameters.append(conditions.map { Int32(clamping: $0.capacity) })
    parameters.append(conditions.map { Int32(clamping: $0.inFlight) })
    parameters.append(conditions.map { Optional($0.circuit.word) })
    parameters.append(conditions.map { Int32(clamping: $0.wait.milliseconds) })
    parameters.append(conditions.map { Int32(clamping: $0.perSecond) })
    _ = try await perform(settlements, OutboxStatements.reportLanes, parameters)
  }

  public func correct(_ environments: [EnvironmentCorrection]) async throws(OutboxError) -> Int {
    var parameters = PostgresParameters()
    parameters.append(environments.map(\.lane))
    parameters.append(texts: environments) { $0.token }
    parameters.append(environments.map { Int16($0.environment) })
    return Int(try await perform(settlements, OutboxStatements.correctEnvironment, parameters).int64(0, 0))
  }

  // MARK: - Helpers

  /// Executes a statement of the receipts (`PostgresOutbox+Receipts`), on the link of settlements.
  func perform(
    _ statement: PostgresStatement, _ parameters: PostgresParameters
  ) async throws(OutboxError) -> PostgresResult {
    try await perform(settlements, statement, parameters)
  }

  private func identity() throws(OutboxError) -> Int32 {
    guard isAvailable, let gatewayID else {
      throw OutboxError(isTransient: true, description: "the database cannot be reached at the moment")
    }
    return gatewayID
  }

  /// Asks for deliveries and, where the floor wants to know, how many index entries that steps over: in one round trip.
  private func perform(
    claim parameters: PostgresParameters
  ) async throws(OutboxError) -> (PostgresResult, walked: Int?) {
    guard floor.isWorthLooking else { return (try await perform(claims, OutboxStatements.claim, parameters), nil) }
    do throws(PostgresError) {
      let (result, walked) = try await claims.query(
        OutboxStatements.claim, parameters, then: OutboxStatements.walked, isolation: self)
      return (result, walked.map { Int($0.int64(0, 0)) })
    } catch {
      throw OutboxError(error)
    }
  }

  private func perform(
    _ link: OutboxLink, _ statement: PostgresStatement, _ parameters: PostgresParameters
  ) async throws(OutboxError) -> PostgresResult {
    do throws(PostgresError) {
      return try await link.query(statement, parameters, isolation: self)
    } catch {
      throw OutboxError(error)
    }
  }
}

extension OutboxError {
  fileprivate init(_ error: PostgresError) {
    self.init(isTransient: error.isTransient, description: error.description)
  }
}

extension OutboxEvent {
  /// What a notification says: the bell; on the control channel `void <outbox id>`, `void *` and `resume <lane id>`, and nil for
  /// what this version does not know.
  fileprivate init?(channel: String, payload: String) {
    let words = payload.split(separator: " ")
    switch (channel, words.first, words.last) {
    case ("push_outbox", _, _): self = .bell
    case (_, "void", "*"): self = .voidAny
    case (_, "void", let id?):
      guard let id = Int64(id) else { return nil }
      self = .void(outboxID: id)
    case (_, "resume", let lane?):
      guard let lane = Int16(lane) else { return nil }
      self = .invalidationResumed(lane: lane)
    default: return nil
    }
  }
}

extension PostgresParameters {
  fileprivate mutating func append(leases: [DeliveryLease]) {
    append(int64s: leases) { $0.outboxID }
    append(int32s: leases) { $0.number }
    append(int32s: leases) { $0.lease }
  }
}
