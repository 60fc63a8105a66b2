// The outbox in Postgres: six connections, our identity, and the batches between.
//
//   claims       push.claim, forget                                      one statement for all lanes
//   settlements  push.settle, park, disown                               commits wait for the disk
//   control      register_gateway, beat, ended_for                       never behind anything slow
//   maintenance  urgent jobs and follow-ups, tokens, receipts, ops       may wait a little
//   jobs         the other jobs and follow-ups                           may wait for seconds
//   listener     LISTEN                                                  always drained; closed for a while when it is flooded
//
// The first three are needed to work. A beat must not queue behind a settlement that waits for a lock: it would come too late, and
// other gateways would declare this one dead. Notifications have a link of their own because everybody who may connect to the
// database may send any number of them. Without the listener the gateway polls.
//
// This object has everything that belongs to one database, so that a gateway can serve several databases.

public import Logging
public import Runtime

/// Claims and settles deliveries in one database. An actor on an event loop.
public actor PostgresOutbox: OutboxStore {
  public struct Options: Sendable {
    /// `postgres://…` or a libpq connection string, with one host or several. A direct connection: LISTEN does not work through a
    /// pooler in transaction mode. Unless it sets `target_session_attrs`, a server that takes no writes is not used.
    public var url: String
    /// What `push.gateways.name` shows: the host's name.
    public var name: String
    /// What `push.gateways.version` shows.
    public var version: String

    public init(url: String, name: String, version: String) {
      self.url = url
      self.name = name
      self.version = version
    }
  }

  /// How long to wait for answers that come quickly or not at all.
  enum Patience {
    static let beat = Nanoseconds.seconds(2)
    static let claim = Nanoseconds.seconds(3)
  }

  /// How often the rights of the role are looked at.
  private static let rightsInterval = Nanoseconds.seconds(5)

  public nonisolated let loop: EventLoop
  public nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  let options: Options
  let logger: Logger
  let claims: OutboxLink
  let settlements: OutboxLink
  let control: OutboxLink
  let maintenance: OutboxLink
  let jobs: OutboxLink
  private let listener: OutboxLink
  private var notificationLimit = NotificationLimit()
  /// Whether the listener was closed for too many notifications and has not reconnected since.
  private var isListenerResting = false
  private var report: (@Sendable (OutboxEvent) -> Void)?

  /// Our row in `push.gateways`: one life of this process, and the owner of what it claims.
  private var gatewayID: Int32?
  private var isAvailable = false
  private var isClosed = false
  private var roundTrips = OutboxCounters()
  /// The reasons why the database could not be reached since it was last available.
  private var complaints = Complaints()
  /// Hints of this turn of the loop that calls have ended.
  private var hints = EndedHints()
  /// What the role may not do although gateways must; nil: nothing, as far as is known.
  private var missingRights: String?
  private var nextLookAtRights = Instant(nanoseconds: .min)
  var floor = ClaimFloor()
  var databaseClock = DatabaseClock()
  /// How often the maintenance link had reconnected when the first of the claims was sent that no sync covers; nil if there is none.
  var reconnectsAtClaim: Int?

  public init(options: Options, loop: EventLoop, logger: Logger) {
    self.options = options
    self.loop = loop
    self.logger = logger
    func link(_ purpose: String, _ setUp: PostgresStatement, _ more: [PostgresStatement] = []) -> OutboxLink {
      OutboxLink(
        url: options.url, applicationName: "push-gateway \(purpose)",
        setUp: OutboxLink.SetUp(
          required: [setUp, OutboxStatements.setUpKeepalives] + more,
          optional: [OutboxStatements.setUpConnectionCheck]),
        loop: loop)
    }
    claims = link("claims", OutboxStatements.setUpClaims)
    settlements = link("settlements", OutboxStatements.setUpSettlements)
    control = link("control", OutboxStatements.setUpWork)
    maintenance = link("maintenance", OutboxStatements.setUpWork)
    jobs = link("jobs", OutboxStatements.setUpWork)
    listener = link("listener", OutboxStatements.setUpWork, [OutboxStatements.listen, OutboxStatements.listenControl])
  }

  private var links: [OutboxLink] { [claims, settlements, control, maintenance, jobs, listener] }

  /// Counters since the start.
  public var counters: OutboxCounters {
    var counters = roundTrips
    counters.reconnects = links.reduce(0) { $0 + $1.reconnects }
    return counters
  }

  /// Why the database does not let this gateway work, one sentence each, although it can be reached: rights that are missing, and
  /// statements of claims, settlements and beats that it refuses.
  public var obstacles: [String] {
    // Of statements that are repeated: the others may not come again, and so not succeed, for hours.
    let needed = [
      (claims, OutboxStatements.claim), (settlements, OutboxStatements.settle), (settlements, OutboxStatements.park),
      (control, OutboxStatements.beat), (control, OutboxStatements.registerGateway),
    ]
    let refusals = needed.compactMap { link, statement in
      link.refusals[statement.name].map { "the database refuses \(statement.name): \($0)" }
    }
    return refusals + [missingRights.map { "the database does not let this gateway \($0)" }].compactMap(\.self)
  }

  /// Looks from time to time whether the role has the rights of a gateway. One that may not settle would be noticed only by the next push.
  func lookAtRights() async {
    guard loop.now >= nextLookAtRights else { return }
    nextLookAtRights = loop.now + Self.rightsInterval
    do throws(OutboxError) {
      let result = try await perform(OutboxStatements.missingRights, PostgresParameters())
      missingRights = result.isNull(0, 0) ? nil : result.text(0, 0)
    } catch {
      if error.code == .refused { missingRights = "see its rights: \(error)" }
    }
  }

  // MARK: - Life

  /// Connects and stays connected. Events go to `report`, on the store's loop.
  public func open(report: @escaping @Sendable (OutboxEvent) -> Void) {
    self.report = report
    for link in links {
      link.onRoundTrip = { self.roundTrips.note(.of($0), $1) }
      link.onUp = { self.linkIsUp() }
      link.onDown = { self.linkIsDown($0) }
    }
    claims.onUp = {
      self.floor.restart()
      self.linkIsUp()
    }
    listener.onUp = {
      self.isListenerResting = false
      report(.listening(true))
      report(.bell)  // deliveries may have been enqueued while we did not listen
      self.linkIsUp()
    }
    listener.onDown = { self.listenerIsDown($0) }
    maintenance.onDown = { self.maintenanceIsDown($0) }
    jobs.onDown = { self.jobsAreDown($0) }
    listener.onNotification = { self.hear($0, $1) }
    for link in links { link.open() }
  }

  /// Closes.
  ///
  /// - Parameter retires: tell the database that we are gone, so that others take over our claims at once. Set it only if the
  ///   outcome of everything that was sent is written: otherwise it would be sent again. Without it others find us silent, and do
  ///   not repeat visible pushes.
  public func close(retires: Bool = true) async {
    isClosed = true
    if retires, let gatewayID {
      var parameters = PostgresParameters()
      parameters.append(gatewayID)
      // On this link it comes after the settlements under way.
      _ = try? await settlements.query(OutboxStatements.retireGateway, parameters, isolation: self)
    }
    for link in links { link.close() }
    report = nil
  }

  private func linkIsUp() {
    guard !isAvailable, !isClosed, links.allSatisfy({ $0.isUp || $0 === listener && isListenerResting }) else { return }
    isAvailable = true
    complaints = Complaints()
    report?(.available)
  }

  private func linkIsDown(_ error: PostgresError) {
    if isAvailable {
      logger.warning("The connection to the database is lost; reconnecting", metadata: ["reason": "\(error)"])
    } else if complaints.isNew(error.message, loop.now) {
      logger.warning("The database cannot be reached yet", metadata: ["reason": "\(error)"])
    }
    isAvailable = false
    report?(.unavailable(reason: error.description))
  }

  /// The maintenance link is down. Work continues without it, but cannot begin: it registers apps and lanes.
  private func maintenanceIsDown(_ error: PostgresError) {
    guard isAvailable else { return linkIsDown(error) }
    logger.warning("The connection for maintenance is lost; reconnecting", metadata: ["reason": "\(error)"])
  }

  /// The link for jobs is down. `maintenance` does its work.
  private func jobsAreDown(_ error: PostgresError) {
    guard isAvailable else { return linkIsDown(error) }
    logger.warning("The connection for jobs is lost; reconnecting", metadata: ["reason": "\(error)"])
  }

  /// The listener is down. Work continues by polling.
  private func listenerIsDown(_ error: PostgresError) {
    report?(.listening(false))
    guard isAvailable else { return linkIsDown(error) }
    logger.warning(
      "Notifications are not heard for the moment; the database is polled", metadata: ["reason": "\(error)"])
  }

  // MARK: - Notifications

  private func hear(_ channel: String, _ payload: String) {
    guard notificationLimit.admit(loop.now, size: payload.utf8.count) else {
      let error = PostgresError(
        .connectionLost,
        "more than \(NotificationLimit.countMax) notifications, or \(NotificationLimit.bytesMax) bytes of them, came within a second",
        hint: "Every login that may connect may send them: pg_stat_activity shows who runs NOTIFY or pg_notify.")
      isListenerResting = true
      return listener.rest(for: NotificationLimit.rest, because: error)
    }
    switch OutboxNotification(channel: channel, payload: payload) {
    case nil: return  // a notification of a later version
    case .bell: report?(.bell)
    case .invalidationResumed(let lane): report?(.invalidationResumed(lane: lane))
    case .ended(let outboxID):
      if hints.note(outboxID) { loop.atEndOfTurn { [self] in assumeIsolated { $0.passHintsOn() } } }
    }
  }

  private func passHintsOn() {
    if let event = hints.dequeue() { report?(event) }
  }

  // MARK: - Identity

  public func register() async throws(OutboxError) {
    try checkAvailable()
    var parameters = PostgresParameters()
    parameters.append(options.name)
    parameters.append(options.version)
    let result = try await control.query(OutboxStatements.registerGateway, parameters, isolation: self)
    gatewayID = result.int32(0, 0)
  }

  public func beat(mayReap: Bool) async throws(OutboxError) -> Bool {
    var parameters = PostgresParameters()
    parameters.append(try identity())
    parameters.append(mayReap)
    let result = try await control.query(OutboxStatements.beat, parameters, patience: Patience.beat, isolation: self)
    return result.bool(0, 0)
  }

  /// Our gateway number, while the database can be reached.
  func identity() throws(OutboxError) -> Int32 {
    try checkAvailable()
    guard let gatewayID else { throw OutboxError(.unavailable, "this gateway has not registered with the database") }
    return gatewayID
  }

  func checkAvailable() throws(OutboxError) {
    if !isAvailable { throw OutboxError(.unavailable, "the database cannot be reached at the moment") }
  }
}
