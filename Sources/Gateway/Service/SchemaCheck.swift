// Whether a database has this version's schema.

import Logging
import Queue
import Runtime

/// Checks the schema before a database is served.
enum SchemaCheck {
  /// Why a database cannot be served.
  enum Failure: Error, CustomStringConvertible {
    case isOutdated(missing: [String])

    var description: String {
      switch self {
      case .isOutdated(let missing):
        "the database lacks \(missing.joined(separator: ", ")) of this version's schema: run `push-gateway migrate` first"
      }
    }
  }

  /// Refuses a database without this version's schema, before any listener is opened. If the database does not answer
  /// within two seconds, returns without a result: `wait` waits for it.
  ///
  /// - Throws: `Failure.isOutdated`; or the database's error if it is not a temporary one.
  static func refuseOldSchema(of url: String) async throws {
    let (result, report) = AsyncThrowingStream<Void, any Error>.makeStream()
    Task {
      let loop = EventLoop(name: "schema")
      defer { loop.stop() }
      do {
        try await check(url, loop)
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

  /// Returns once the database can be reached and has this version's schema.
  static func wait(for url: String, _ loop: EventLoop, _ logger: Logger) async throws {
    while true {
      do {
        return try await check(url, loop)
      } catch let error as PostgresError where error.isTransient {
        logger.warning("The database cannot be reached; waiting for it", metadata: ["reason": "\(error)"])
        try await Task.sleep(for: .seconds(1))
      }
    }
  }

  private static func check(_ url: String, _ loop: EventLoop) async throws {
    let connection = try await PostgresConnection.connect(to: url, applicationName: "push-gateway start", on: loop)
    let pending = try await Migrator().pending(on: connection)
    await connection.close()
    guard pending.isEmpty else { throw Failure.isOutdated(missing: pending.titles) }
  }
}
