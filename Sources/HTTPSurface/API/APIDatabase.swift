// The API's own few connections to Postgres: none of the dispatcher's is ever waited for, or kept waiting.

internal import HTTPTypes
internal import Logging
internal import Queue
internal import Runtime

/// Runs statements on a bounded number of connections, one at a time on each. Who finds them all busy waits in a
/// bounded queue.
///
/// Of six connections two serve what neither rings phones nor stops them, two at most serve the calls of one app, and one is
/// kept for the gateway's own: neither large reads nor an app whose statements wait for a lock keep another app's calls waiting.
///
/// Commits are durable: what a backend was told is there after a crash.
actor APIDatabase {
  nonisolated let loop: EventLoop
  nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  /// What a statement is for.
  struct Purpose: Equatable, Sendable {
    /// Whether it rings phones or stops them, or lets a request do so.
    var isUrgent = true
    /// Whose request it is; nil: the gateway's own.
    var app: String?

    static let own = Purpose()
    static func call(_ client: APIClient) -> Purpose { Purpose(app: client.app) }
    static func other(_ client: APIClient) -> Purpose { Purpose(isUrgent: false, app: client.app) }
  }

  static let waitingMax = 256
  /// The longest wait for a lock. Backends may hold one for hours, and whoever waits has a connection meanwhile: with three apps whose
  /// calls wait there is none for a fourth.
  static let lockPatience = Nanoseconds.milliseconds(500)

  private typealias Turn = Result<PostgresConnection?, APIProblem>
  private struct Waiting {
    let number: Int
    let continuation: CheckedContinuation<Turn, Never>
    let timer: EventLoop.Timer
  }

  private let url: String
  private let timeoutSeconds: Int
  private let logger: Logger
  private let applicationName: String
  private let connectionsMax: Int
  private let lockPatience: Nanoseconds
  private var idle: [PostgresConnection] = []
  /// Connections in use.
  private var busy: [Purpose] = []
  private var urgent = FairQueue<String?, Waiting>(countMax: waitingMax)
  private var others = FairQueue<String?, Waiting>(countMax: waitingMax)
  private var lastNumber = 0

  /// - Parameters:
  ///   - timeoutSeconds: the longest wait for a connection, and the longest a statement may take.
  ///   - applicationName: whom the database sees.
  init(
    url: String, loop: EventLoop, timeoutSeconds: Int, logger: Logger, applicationName: String = "push-gateway api",
    connectionsMax: Int = 6, lockPatience: Nanoseconds = APIDatabase.lockPatience
  ) {
    self.url = url
    self.loop = loop
    self.timeoutSeconds = timeoutSeconds
    self.logger = logger
    self.applicationName = applicationName
    self.connectionsMax = connectionsMax
    self.lockPatience = lockPatience
  }

  /// Runs a statement in a transaction of its own.
  ///
  /// - Parameter isRepeatable: whether it may be run once more if the connection broke meanwhile.
  func query(
    _ statement: PostgresStatement, _ parameters: PostgresParameters = PostgresParameters(),
    for purpose: Purpose = .own, isRepeatable: Bool = true
  ) async throws(APIProblem) -> PostgresResult {
    let given = try await take(purpose)
    var connection = given
    defer { give(connection, purpose) }
    let begun = loop.now
    do {
      return try await run(statement, parameters, on: &connection)
    } catch
      where error.code == .connectionLost && isRepeatable && loop.now < begun + patience / 2
      || error.isOfStaleConnection
    {
      do {
        return try await run(statement, parameters, on: &connection)
      } catch {
        throw problem(error)
      }
    } catch {
      throw problem(error)
    }
  }

  func close() async {
    for connection in idle { await connection.close() }
    idle = []
  }

  /// The server ends a statement after its time. One that says nothing for longer is frozen, or out of reach.
  private var patience: Nanoseconds { .seconds(Int64(timeoutSeconds)) + .milliseconds(500) }

  private func run(
    _ statement: PostgresStatement, _ parameters: PostgresParameters, on connection: inout PostgresConnection?
  ) async throws(PostgresError) -> PostgresResult {
    let opened: PostgresConnection
    if let connection { opened = connection } else { opened = try await connect() }
    do {
      connection = opened
      return try await opened.query(statement, parameters, patience: patience)
    } catch {
      if error.code == .connectionLost || error.isOfStaleConnection {
        connection = nil
        await opened.close()
        // The others were opened before what has happened to this one.
        let others = idle
        idle = []
        for other in others { await other.close() }
      }
      throw error
    }
  }

  private func problem(_ error: PostgresError) -> APIProblem {
    let problem = APIProblem(error)
    if problem.status.kind == .serverError {
      logger.error("A request's statement failed", metadata: ["reason": "\(error)", "of": "\(applicationName)"])
    }
    return problem
  }

  // MARK: - Whose turn it is

  /// Of six connections two, for what neither rings phones nor stops them.
  private var othersMax: Int { max(1, connectionsMax / 3) }
  /// Of six connections two, for what one app asks of its calls.
  private var oneAppMax: Int { max(1, connectionsMax / 3) }
  /// One is left to the gateway's own: looking up keys, and groups of calls.
  private var allAppsMax: Int { max(1, connectionsMax - 1) }

  /// Whether a connection may be used now, for all that the others in use leave.
  private func mayServe(_ purpose: Purpose) -> Bool {
    guard busy.count < connectionsMax else { return false }
    guard purpose.app != nil else { return true }
    guard busy.count(where: { $0.app != nil }) < allAppsMax else { return false }
    return purpose.isUrgent
      ? busy.count(where: { $0 == purpose }) < oneAppMax : busy.count(where: { !$0.isUrgent }) < othersMax
  }

  /// A connection, or the leave to open one.
  private func take(_ purpose: Purpose) async throws(APIProblem) -> PostgresConnection? {
    if (purpose.isUrgent ? urgent : others).isEmpty, mayServe(purpose) {
      busy.append(purpose)
      return idle.popLast()
    }
    lastNumber += 1
    let number = lastNumber
    let turn: Turn = await withCheckedContinuation { continuation in
      let timer = loop.schedule(at: loop.now + .seconds(Int64(timeoutSeconds))) { [weak self] in
        self?.assumeIsolated { $0.giveUp(number, purpose) }
      }
      let waiting = Waiting(number: number, continuation: continuation, timer: timer)
      let displaced =
        purpose.isUrgent
        ? urgent.append(waiting, of: purpose.app) : others.append(waiting, of: purpose.app)
      if let displaced { refuse(displaced) }
      // Others may wait for a reason that does not concern this one.
      serveWaiting()
    }
    return try turn.get()
  }

  private func give(_ connection: PostgresConnection?, _ purpose: Purpose) {
    if let index = busy.firstIndex(of: purpose) { busy.remove(at: index) }
    if let connection { idle.append(connection) }
    serveWaiting()
  }

  private func serveWaiting() {
    while let (purpose, next) = nextWaiting() {
      next.timer.cancel()
      busy.append(purpose)
      next.continuation.resume(returning: .success(idle.popLast()))
    }
  }

  private func nextWaiting() -> (Purpose, Waiting)? {
    if let (app, next) = urgent.popFirst(where: { mayServe(Purpose(app: $0)) }) {
      return (Purpose(app: app), next)
    }
    if let (app, next) = others.popFirst(where: { mayServe(Purpose(isUrgent: false, app: $0)) }) {
      return (Purpose(isUrgent: false, app: app), next)
    }
    return nil
  }

  private func giveUp(_ number: Int, _ purpose: Purpose) {
    let waiting =
      purpose.isUrgent
      ? urgent.remove(of: purpose.app) { $0.number == number }
      : others.remove(of: purpose.app) { $0.number == number }
    if let waiting { refuse(waiting) }
  }

  private func refuse(_ waiting: Waiting) {
    waiting.timer.cancel()
    waiting.continuation.resume(returning: .failure(.overloaded))
  }

  private func connect() async throws(PostgresError) -> PostgresConnection {
    let connection = try await PostgresConnection.connect(to: url, applicationName: applicationName, on: loop)
    try await connection.script(
      "set synchronous_commit = on; set statement_timeout = '\(timeoutSeconds)s'; "
        + "set lock_timeout = '\(lockPatience.count / 1_000_000)ms'")
    return connection
  }
}

extension PostgresError {
  /// Whether only this connection is wrong: what it has prepared is not what the database holds now, since a migration
  /// ran. The statement was refused, so it may be tried on a new one.
  fileprivate var isOfStaleConnection: Bool {
    guard case .server(let sqlState) = code else { return false }
    return sqlState == "0A000" || sqlState == "26000" || Self.isMissingObject(sqlState)
  }

  /// SQLSTATEs of a function, table, column or schema that is not there.
  fileprivate static func isMissingObject(_ sqlState: String) -> Bool {
    ["42883", "42P01", "42703", "3F000"].contains(sqlState)
  }
}

extension APIProblem {
  /// What a statement's failure is to the one who sent the request.
  init(_ error: PostgresError) {
    guard error.code != .server(sqlState: "55P03") else {
      self = .unavailable(
        "database-unavailable", "another transaction holds what this needs; try again", retryAfterSeconds: 1)
      return
    }
    guard !error.isTransient else {
      self = .unavailable("database-unavailable", "\(Self.reason(error)); try again", retryAfterSeconds: 1)
      return
    }
    guard case .server(let sqlState) = error.code else {
      self = .broken
      return
    }
    switch sqlState {
    case "P0002": self = .noSuchCall
    case _ where PostgresError.isMissingObject(sqlState):
      self = .unavailable("database-unavailable", "the database is being migrated; try again", retryAfterSeconds: 5)
    case _ where sqlState.hasPrefix("22"): self = .fault(error.message)
    default: self = .broken
    }
  }

  private static func reason(_ error: PostgresError) -> String {
    switch error.shortage {
    case .locks: "the database's table of locks is full"
    case .memory: "the database has no memory left"
    case .disk: "the database's disk is full"
    case .connections: "the database takes no more connections"
    case nil: "the database does not answer"
    }
  }

  /// A fault that the database found: `payload.from: must be a string (call c1)`.
  private static func fault(_ message: String) -> APIProblem {
    let end = message.firstRange(of: " (call ")?.lowerBound ?? message.endIndex
    guard let colon = message[..<end].firstIndex(of: ":") else {
      return .invalid("body", "the database refuses a value")
    }
    var field = message[..<colon]
    for table in ["push.outbox.", "push.devices."] where field.hasPrefix(table) { field.removeFirst(table.count) }
    let detail = message[colon..<end].dropFirst().drop { $0 == " " }
    return .invalid(Self.member(field), String(detail))
  }

  /// The API's name of what SQL calls `ring_seconds`.
  private static func member(_ name: Substring) -> String {
    switch name {
    case "call_id": "payload.callId"
    case "end_reason": "reason"
    case "answered_by": "userId"
    case "answered_device": "device"
    default:
      name.split(separator: "_").enumerated()
        .map { $0.offset == 0 ? String($0.element) : $0.element.prefix(1).uppercased() + $0.element.dropFirst() }
        .joined()
    }
  }
}
