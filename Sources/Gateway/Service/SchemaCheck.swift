// Whether a database has this version's schema, and gives each connection a session of its own.

import Logging
import Queue
import Runtime

/// Checks the schema before a database is served.
enum SchemaCheck {
  /// Why a database cannot be served.
  enum Failure: Error, CustomStringConvertible {
    case isOutdated(missing: [String])
    /// The address is that of a pooler in transaction mode.
    case isPooled

    var description: String {
      switch self {
      case .isOutdated(let missing):
        "the database lacks \(missing.joined(separator: ", ")) of this version's schema: run `push-gateway migrate` first"
      case .isPooled:
        "a pooler in transaction mode answers, but a gateway needs a session for each connection (it listens, prepares "
          + "statements and sets parameters): give the address of Postgres itself, or of a pool in session mode"
      }
    }
  }

  /// Refuses a database that this version cannot serve, before any listener is opened. If the database does not answer
  /// within two seconds, or is being migrated, returns without a result: `wait` waits for it.
  ///
  /// - Throws: `Failure`; `MigrationError` if the schema is too new; or the database's error if it is not a
  ///   temporary one.
  static func refuse(_ url: String) async throws {
    let (result, report) = AsyncThrowingStream<Void, any Error>.makeStream()
    Task {
      let loop = EventLoop(name: "schema")
      defer { loop.stop() }
      do {
        _ = try await check(url, loop)
        report.finish()
      } catch {
        report.finish(throwing: (error as? PostgresError)?.isTransient == true ? nil : error)
      }
    }
    Task {
      try await Task.sleep(for: .seconds(2))
      report.finish()
    }
    for try await _ in result {}
  }

  /// Returns once the database can be reached and has a schema that this version can serve.
  static func wait(for url: String, _ loop: EventLoop, _ logger: Logger) async throws {
    var complaints = Complaints()
    while true {
      do {
        switch try await check(url, loop) {
        case .isNewer(let release):
          logger.notice(
            "A newer release has migrated the schema; this gateway serves it", metadata: ["release": "\(release)"])
          return
        case .isBeingMigrated:
          logger.warning("A newer release is migrating the schema; waiting for its functions")
        case .isCurrent, .lacks: return
        }
      } catch let error as PostgresError where error.isTransient {
        if complaints.isNew("\(error)", loop.now) {
          logger.warning("The database cannot be reached; waiting for it", metadata: ["reason": "\(error)"])
        }
      }
      try await Task.sleep(for: .seconds(1))
    }
  }

  /// Maximum silence of the server during a check. Without a limit, a lost answer would keep the check waiting for ever, and with it
  /// every later change of the apps.
  static let patience = Nanoseconds.seconds(5)
  /// The server gives up sooner, so that none of its processes is left behind a lock.
  private static let limit = PostgresStatement(
    name: "check_limit", sql: "select set_config('statement_timeout', '4s', false)")

  private static func check(_ url: String, _ loop: EventLoop) async throws -> Migrator.Readiness {
    let connection = try await connect(url, loop)
    let other = try await connect(url, loop)
    let isPooled = try await isPooled(connection, other, patience)
    await other.close()
    guard !isPooled else {
      await connection.close()
      throw Failure.isPooled
    }
    _ = try await connection.query(limit, patience: patience)
    let readiness = try await Migrator().readiness(on: connection, patience: patience)
    await connection.close()
    if case .lacks(let pending) = readiness { throw Failure.isOutdated(missing: pending.titles) }
    return readiness
  }

  private static func connect(_ url: String, _ loop: EventLoop) async throws(PostgresError) -> PostgresConnection {
    try await PostgresConnection.connect(to: url, applicationName: "push-gateway start", on: loop)
  }

  /// Whether connections share sessions, as those to a pooler in transaction mode do: two that are connected at the same time have one
  /// session, or one has two, or what one has prepared is missing, or there already.
  static func isPooled(
    _ connection: PostgresConnection, _ other: PostgresConnection, _ patience: Nanoseconds
  ) async throws(PostgresError) -> Bool {
    do throws(PostgresError) {
      let session = try await connection.query(pid, patience: patience).int32(0, 0)
      let ofOther = try await other.query(pid, patience: patience).int32(0, 0)
      let again = try await connection.query(pid, patience: patience).int32(0, 0)
      return ofOther == session || again != session
    } catch {
      guard [.server(sqlState: "26000"), .server(sqlState: "42P05")].contains(error.code) else { throw error }
      return true
    }
  }

  private static let pid = PostgresStatement(name: "check_session", sql: "select pg_backend_pid()")
}
