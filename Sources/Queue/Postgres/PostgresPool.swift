// A few connections to Postgres that many callers share. The dispatcher has connections of its own.

public import Logging
public import Runtime

/// Runs statements on a bounded number of connections, one at a time on each. When all are busy, callers wait in a bounded
/// queue.
///
/// Of six connections, at most two serve statements that are not urgent, at most two serve the urgent statements of one app,
/// and one is kept for the gateway's own. So neither large reads nor an app whose statements wait for a lock delay the calls
/// of another app.
///
/// Commits are durable: a committed statement survives a crash of Postgres.
public actor PostgresPool {
  public nonisolated let loop: EventLoop
  public nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  /// What a statement is for.
  public struct Purpose: Equatable, Sendable {
    /// Whether it rings phones or stops them, or a request that does so waits for it.
    public var isUrgent: Bool
    /// The app whose request it is; nil: the gateway's own.
    public var app: String?

    public init(isUrgent: Bool = true, app: String? = nil) {
      self.isUrgent = isUrgent
      self.app = app
    }

    public static let own = Purpose()
    /// A large read of the gateway's own.
    public static let ownRead = Purpose(isUrgent: false)
  }

  /// Why a statement has no result.
  public enum Failure: Error {
    /// No connection was free in time, or too many callers waited.
    case overloaded
    case statement(PostgresError)
  }

  /// Maximum number of waiting callers, separately for urgent statements and others.
  public static let waitingMax = 256
  /// The longest wait for a lock. Backends may hold one for hours, and a waiting statement occupies a connection: if three
  /// apps had two each, a fourth app would have none.
  public static let lockPatience = Nanoseconds.milliseconds(500)

  private typealias Turn = Result<PostgresConnection?, Failure>
  private struct Waiting {
    let number: Int
    let continuation: CheckedContinuation<Turn, Never>
    let timer: EventLoop.Timer
  }

  private let url: String
  private let timeoutSeconds: Int
  public nonisolated let logger: Logger
  public nonisolated let applicationName: String
  private let connectionsMax: Int
  private let lockPatience: Nanoseconds
  private var idle: [PostgresConnection] = []
  /// Connections in use.
  private var busy: [Purpose] = []
  private var urgent = FairQueue<String?, Waiting>(countMax: waitingMax)
  private var others = FairQueue<String?, Waiting>(countMax: waitingMax)
  private var lastNumber = 0

  /// - Parameters:
  ///   - timeoutSeconds: the longest wait for a connection, and the longest time of a statement.
  ///   - logger: for callers; the pool itself logs nothing.
  ///   - applicationName: shown in `pg_stat_activity`.
  ///   - connectionsMax: maximum number of connections.
  public init(
    url: String, loop: EventLoop, timeoutSeconds: Int, logger: Logger, applicationName: String = "push-gateway api",
    connectionsMax: Int = 6, lockPatience: Nanoseconds = PostgresPool.lockPatience
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
  /// - Parameter isRepeatable: whether it may be run once more if the connection breaks.
  public func run(
    _ statement: PostgresStatement, _ parameters: PostgresParameters = PostgresParameters(),
    for purpose: Purpose = .own, isRepeatable: Bool = true
  ) async throws(Failure) -> PostgresResult {
    let given = try await checkOut(purpose)
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
        throw .statement(error)
      }
    } catch {
      throw .statement(error)
    }
  }

  public func close() async {
    for connection in idle { await connection.close() }
    idle = []
  }

  /// The server ends a statement after `timeoutSeconds`. A server that is silent for longer is frozen or unreachable.
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
        // The idle connections are older than the failure, so they are probably broken as well.
        let others = idle
        idle = []
        for other in others { await other.close() }
      }
      throw error
    }
  }

  // MARK: - Shares of the connections

  /// Maximum number of connections with statements that are not urgent: two of six, one of two.
  private var othersMax: Int { max(1, connectionsMax / 3) }
  /// Maximum number of connections with urgent statements of one app: two of six.
  private var oneAppMax: Int { max(1, connectionsMax / 3) }
  /// Maximum number of connections with statements of apps. One is kept for the gateway's own: key look-ups and groups of calls.
  private var allAppsMax: Int { max(1, connectionsMax - 1) }

  /// Whether the limits allow one more connection for this purpose now.
  private func mayServe(_ purpose: Purpose) -> Bool {
    guard busy.count < connectionsMax else { return false }
    guard purpose.isUrgent || busy.count(where: { !$0.isUrgent }) < othersMax else { return false }
    guard purpose.app != nil else { return true }
    guard busy.count(where: { $0.app != nil }) < allAppsMax else { return false }
    return !purpose.isUrgent || busy.count(where: { $0 == purpose }) < oneAppMax
  }

  /// Returns an idle connection, or nil if the caller may open one.
  private func checkOut(_ purpose: Purpose) async throws(Failure) -> PostgresConnection? {
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
      // Other callers may wait because of a limit that does not apply to this one.
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
        + "set lock_timeout = '\(lockPatience.count / 1_000_000)ms'; set array_nulls = on")
    return connection
  }
}

extension PostgresError {
  /// Whether a migration has made the prepared statements of this connection invalid. The statement was refused, so it may be
  /// tried on a new connection.
  fileprivate var isOfStaleConnection: Bool {
    guard case .server(let sqlState) = code else { return false }
    return sqlState == "0A000" || sqlState == "26000" || Self.isMissingObject(sqlState)
  }

  /// SQLSTATEs of a function, table, column or schema that does not exist.
  public static func isMissingObject(_ sqlState: String) -> Bool {
    ["42883", "42P01", "42703", "3F000"].contains(sqlState)
  }
}
