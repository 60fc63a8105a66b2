// A database of its own for each test that needs one.

import Foundation
import Queue
import Runtime
import Testing

enum TestDatabase {
  struct Missing: Error, CustomStringConvertible {
    let description =
      "PUSH_GATEWAY_TEST_DATABASE_URL is not set: run `make test`, which starts a private Postgres and sets it"
  }

  /// Runs `body` with the URL of a new, empty database and drops it afterwards.
  static func with(_ body: (String) async throws -> Void) async throws {
    guard let server = ProcessInfo.processInfo.environment["PUSH_GATEWAY_TEST_DATABASE_URL"], !server.isEmpty else {
      throw Missing()
    }
    let name = "push_test_" + UUID().uuidString.lowercased().replacing("-", with: "")
    var parts = URLComponents(string: server)!
    parts.path = "/" + name
    let loop = EventLoop(name: "test database")
    let connection = try await PostgresConnection.connect(to: server, applicationName: "tests", on: loop)
    try await connection.script("create database \(name)")
    let result: Result<Void, any Error>
    do {
      result = .success(try await body(parts.string!))
    } catch {
      result = .failure(error)
    }
    try await connection.script("drop database \(name) with (force)")
    await connection.close()
    try result.get()
  }

  static func connect(_ url: String) async throws -> PostgresConnection {
    try await PostgresConnection.connect(to: url, applicationName: "test", on: EventLoop(name: "test"))
  }
}
