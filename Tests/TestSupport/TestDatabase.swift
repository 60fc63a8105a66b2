// A private database for a test, in the cluster that `make test` starts.

import Foundation
import Queue
import Runtime
import Synchronization
import TestTime

/// A database of a test's own, dropped after it.
public struct TestDatabase: Sendable {
  /// What databases have when their tests begin: each is a copy of one that the first test made, and that is made again when the
  /// scripts change.
  public struct Content: Sendable {
    /// The name of the database that is copied.
    let template: String
    /// Those of which it is the former version.
    let pattern: String
    let scripts: [String]
    let make: @Sendable (TestDatabase) async throws -> Void

    /// - Parameters:
    ///   - name: a word of its own.
    ///   - scripts: what `make` depends on.
    ///   - make: called with an empty database.
    public init(
      name: String, scripts: [String], make: @escaping @Sendable (TestDatabase) async throws -> Void
    ) {
      template = scripts.isEmpty ? "template1" : "template_\(name)_\(String(TestDatabase.hash(of: scripts), radix: 16))"
      pattern = "^template_\(name)_"
      self.scripts = scripts
      self.make = make
    }

    /// Nothing.
    public static let empty = Content(name: "", scripts: []) { _ in }
    /// The schema, as `psql` would apply it: no gateway has recorded its migrations.
    public static let schema = Content(name: "schema", scripts: scripts) { try await $0.migrate() }
    private static var scripts: [String] {
      do { return try TestDatabase.schema() } catch { fatalError("the schema cannot be read: \(error)") }
    }
  }

  /// Its connection URL.
  public let url: String
  /// The name of the database.
  public var name: String { URL(string: url)?.lastPathComponent ?? "" }
  public let loop: EventLoop

  public struct Missing: Error, CustomStringConvertible {
    public let description =
      "PUSH_GATEWAY_TEST_DATABASE_URL is not set: run `make test`, or start a cluster with scripts/postgres.sh and export its URL"
  }

  /// Creates a database, runs `body`, and drops the database.
  ///
  /// - Parameter content: what the database has.
  public static func with<Result>(
    _ content: Content = .schema, _ body: (TestDatabase) async throws -> Result
  ) async throws -> Result {
    guard let server = ProcessInfo.processInfo.environment["PUSH_GATEWAY_TEST_DATABASE_URL"] else { throw Missing() }
    // Tests run in parallel, and the cluster has 300 connections for all of them.
    await places.enter()
    defer { places.leave() }
    let name = "test_\(UUID().uuidString.lowercased().replacingOccurrences(of: "-", with: "_"))"
    let loop = EventLoop(name: "test")
    let admin = try await PostgresConnection.connect(to: server, applicationName: "tests", on: loop)
    try await makeTemplate(of: content, admin, server, loop)
    try await admin.script("create database \(name) template \(content.template)")
    let database = TestDatabase(url: url(of: name, on: server), loop: loop)
    func drop() async throws {
      try await admin.script("drop database if exists \(name) with (force)")
      await admin.close()
      loop.stop()
    }
    do {
      let result = try await body(database)
      try await drop()
      return result
    } catch {
      try await drop()
      throw error
    }
  }

  /// - Parameters:
  ///   - url: a database that the caller creates and drops.
  ///   - loop: the loop of its connections.
  public init(url: String, loop: EventLoop) {
    self.url = url
    self.loop = loop
  }

  /// Creates the schema in an empty database.
  public func migrate() async throws {
    for script in Content.schema.scripts { try await execute(script) }
  }

  /// A new connection to it. Unlike the program's own, it has the search path of the login, for the tables of tests.
  public func connect() async throws -> PostgresConnection {
    let connection = try await PostgresConnection.connect(to: url, applicationName: "tests", on: loop)
    try await connection.script("reset search_path")
    return connection
  }

  /// Runs one or more statements.
  public func execute(_ sql: String) async throws {
    let connection = try await connect()
    try await connection.script(sql)
    await connection.close()
  }

  /// The single value of a `select`, as text. Throws when the test's time is up, so that no loop outlives the test.
  public func value(_ sql: String) async throws -> String {
    try Task.checkCancellation()
    let connection = try await connect()
    let value = try await Self.value(sql, connection)
    await connection.close()
    return value
  }

  private static func value(_ sql: String, _ connection: PostgresConnection) async throws(PostgresError) -> String {
    let result = try await connection.query(PostgresStatement(name: "value", text: "select (\(sql))::text"))
    return result.rowCount > 0 ? result.text(0, 0) : ""
  }

  /// Does what follows from what was committed, as a gateway does after each commit. For tests without one.
  public func followUp() async throws {
    // A run begins nothing more after a quarter of a second.
    let isDue = "exists (select from push.follow_ups where due_at <= clock_timestamp() and tries = 0)"
    for _ in 0..<20 {
      try await execute(
        "select push.follow_up(u.urgent, 1000, '1 day') from (values (true), (false), (true), (false)) u(urgent)")
      if try await value("select \(isDue)") == "false" { return }
    }
  }

  /// Waits until the single value of a `select` is this one.
  public func wait(for sql: String, toBe expected: String = "true", within limit: Duration = .seconds(300)) async throws
  {
    var last = ""
    var connection = try await connect()
    try await eventually("\(sql): \(expected); it is \(last)", within: limit) {
      do throws(PostgresError) {
        last = try await Self.value(sql, connection)
      } catch {
        // Some tests end all sessions.
        await connection.close()
        connection = try await connect()
        last = try await Self.value(sql, connection)
      }
      return last == expected
    }
    await connection.close()
  }

  // MARK: - Migrating once

  private static let places = Places(16)

  /// The first test that needs the template of a content creates it, and again when its scripts change.
  private static func makeTemplate(
    of content: Content, _ admin: PostgresConnection, _ server: String, _ loop: EventLoop
  ) async throws {
    guard !content.scripts.isEmpty else { return }
    let name = content.template
    let (lock, unlock) = ("select pg_advisory_lock(7781, 99)", "select pg_advisory_unlock(7781, 99)")
    try await admin.script(lock)
    let exists = PostgresStatement(name: name, text: "select 1 from pg_database where datname = '\(name)'")
    if try await admin.query(exists).rowCount == 0 {
      let others = PostgresStatement(
        name: "others", text: "select datname from pg_database where datname ~ '\(content.pattern)'")
      let stale = try await admin.query(others)
      for row in 0..<stale.rowCount {
        try await admin.script("drop database if exists \(stale.text(row, 0)) with (force)")
      }
      try await admin.script("create database \(name)_unfinished")
      let unfinished = TestDatabase(url: url(of: "\(name)_unfinished", on: server), loop: loop)
      try await content.make(unfinished)
      let sessions = PostgresStatement(
        name: "sessions", text: "select 1 from pg_stat_activity where datname = '\(name)_unfinished'")
      try await eventually("its sessions have ended") { try await admin.query(sessions).rowCount == 0 }
      try await admin.script("alter database \(name)_unfinished rename to \(name)")
    }
    try await admin.script(unlock)
  }

  /// The scripts that create the schema, in their order.
  private static func schema() throws -> [String] {
    let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appending(path: "../../migrations")
    var scripts = try files(of: folder).map { try String(contentsOf: $0, encoding: .utf8) }
    // As in scripts/apply-schema.sh: in one transaction, without checking bodies, and roles.sql last, because it grants
    // rights on the other objects.
    let functions = try files(of: folder.appending(path: "functions"))
    let ordered =
      functions.filter { $0.lastPathComponent != "roles.sql" }
      + functions.filter { $0.lastPathComponent == "roles.sql" }
    let texts = try ordered.map { try String(contentsOf: $0, encoding: .utf8) }
    scripts.append("set local check_function_bodies = off;\n" + texts.joined(separator: "\n"))
    return scripts
  }

  /// FNV-1a.
  fileprivate static func hash(of texts: [String]) -> UInt64 {
    texts.reduce(0xcbf2_9ce4_8422_2325) { hash, text in
      text.utf8.reduce(hash) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
    }
  }

  /// The SQL files directly in a folder, sorted by name.
  private static func files(of folder: URL) throws -> [URL] {
    try FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil)
      .filter { $0.pathExtension == "sql" }
      .sorted { $0.lastPathComponent < $1.lastPathComponent }
  }

  private static func url(of name: String, on server: String) -> String {
    guard var components = URLComponents(string: server) else { return server }
    components.path = "/" + name
    // On a busy machine it may take long until Postgres has a process for a session.
    components.queryItems = [URLQueryItem(name: "connect_timeout", value: "60")]
    return components.string ?? server
  }
}

/// Admits a limited number of tasks at a time; the others wait in order.
private final class Places: Sendable {
  private struct State {
    var free: Int
    var waiting: [CheckedContinuation<Void, Never>] = []
  }

  private let state: Mutex<State>

  init(_ count: Int) {
    state = Mutex(State(free: count))
  }

  func enter() async {
    await withCheckedContinuation { continuation in
      let mayEnter = state.withLock { state in
        if state.free == 0 {
          state.waiting.append(continuation)
          return false
        }
        state.free -= 1
        return true
      }
      if mayEnter { continuation.resume() }
    }
  }

  func leave() {
    let next = state.withLock { state -> CheckedContinuation<Void, Never>? in
      if state.waiting.isEmpty {
        state.free += 1
        return nil
      }
      return state.waiting.removeFirst()
    }
    next?.resume()
  }
}
