// A database of its own for a test, in the private cluster that `make test` starts.

import Foundation
import Queue
import Runtime

/// A freshly migrated database, dropped when the test is over.
public struct TestDatabase: Sendable {
  /// Its connection URL.
  public let url: String
  public let loop: EventLoop

  public struct Missing: Error, CustomStringConvertible {
    public let description =
      "PUSH_GATEWAY_TEST_DATABASE_URL is not set: run `make test`, or start a cluster with scripts/postgres.sh and export its URL"
  }

  /// Creates a database, runs `body`, and drops the database.
  ///
  /// - Parameter isMigrated: whether the schema is there already.
  public static func with<Result>(
    isMigrated: Bool = true, _ body: (TestDatabase) async throws -> Result
  ) async throws -> Result {
    guard let server = ProcessInfo.processInfo.environment["PUSH_GATEWAY_TEST_DATABASE_URL"] else { throw Missing() }
    let name = "test_\(UUID().uuidString.lowercased().replacingOccurrences(of: "-", with: "_"))"
    let loop = EventLoop(name: "test")
    let admin = try await PostgresConnection.connect(to: server, applicationName: "tests", on: loop)
    try await admin.script("create database \(name)")
    let database = TestDatabase(url: url(of: name, on: server), loop: loop)
    func drop() async throws {
      try await admin.script("drop database if exists \(name) with (force)")
      await admin.close()
      loop.stop()
    }
    do {
      if isMigrated { try await database.migrate() }
      let result = try await body(database)
      try await drop()
      return result
    } catch {
      try await drop()
      throw error
    }
  }

  /// A new connection to it.
  public func connect() async throws -> PostgresConnection {
    try await PostgresConnection.connect(to: url, applicationName: "tests", on: loop)
  }

  /// Runs one or more statements.
  public func execute(_ sql: String) async throws {
    let connection = try await connect()
    try await connection.script(sql)
    await connection.close()
  }

  /// The one value a `select` gives, as text. Throws when the test's time is up, so that no loop outlives it.
  public func value(_ sql: String) async throws -> String {
    try Task.checkCancellation()
    let connection = try await connect()
    let result = try await connection.query(PostgresStatement(name: "value", text: "select (\(sql))::text"))
    await connection.close()
    return result.rowCount > 0 ? result.text(0, 0) : ""
  }

  private func migrate() async throws {
    let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appending(path: "../../migrations")
    let files = try FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil)
      .filter { $0.pathExtension == "sql" }
      .sorted { $0.lastPathComponent < $1.lastPathComponent }
    for file in files { try await execute(String(contentsOf: file, encoding: .utf8)) }
  }

  private static func url(of name: String, on server: String) -> String {
    guard var components = URLComponents(string: server) else { return server }
    components.path = "/" + name
    return components.string ?? server
  }
}
