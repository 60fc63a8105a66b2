// A private Postgres cluster for a test that would disturb other tests in a shared one.

import Foundation
import Queue
import Runtime
import TestTime

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

/// A cluster in a temporary directory, made by scripts/postgres.sh.
public struct TestCluster: Sendable {
  /// The URL of its database `push`, which is empty.
  public let url: String

  public struct Failure: Error, CustomStringConvertible {
    public let description: String
  }

  /// Creates a cluster, runs `body`, and removes the cluster.
  public static func with<Result>(_ body: (TestCluster) async throws -> Result) async throws -> Result {
    let directory = FileManager.default.temporaryDirectory
      .appending(path: "push-gateway-cluster-\(UUID().uuidString.prefix(8))").path()
    let cluster = TestCluster(url: try await script("start", directory))
    func remove() async throws {
      _ = try await script("stop", directory)
      try FileManager.default.removeItem(atPath: directory)
    }
    do {
      let result = try await body(cluster)
      try await remove()
      return result
    } catch {
      try await remove()
      throw error
    }
  }

  /// Crashes the server: what was committed asynchronously since `holdBack` is lost. The server restarts by itself.
  public func crash(_ connection: PostgresConnection) async throws {
    kill(try await process("pg_backend_pid()", connection), SIGKILL)
  }

  /// From now on asynchronous commits do not reach the disk. Nobody may commit synchronously, which would write them, too: so there
  /// is no autovacuum.
  public func holdBack(_ connection: PostgresConnection) async throws {
    try await connection.script("alter system set autovacuum = off")
    try await connection.script("select pg_reload_conf()")
    let workers = PostgresStatement(
      name: "workers", sql: "select exists (select from pg_stat_activity where backend_type like 'autovacuum%')")
    try await eventually("autovacuum is off") { try await !connection.query(workers).bool(0, 0) }
    let writer = "(select pid from pg_stat_activity where backend_type = 'walwriter')"
    kill(try await process(writer, connection), SIGSTOP)
  }

  private func process(_ sql: String, _ connection: PostgresConnection) async throws -> pid_t {
    try await connection.query(PostgresStatement(name: sql, text: "select \(sql)")).int32(0, 0)
  }

  /// Runs scripts/postgres.sh and returns its output.
  private static func script(_ command: String, _ directory: String) async throws -> String {
    let script = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../scripts/postgres.sh")
      .path()
    let output = directory + ".out"
    // Not Foundation's Process, for which the program runs as long as the server that it has started.
    let status = await withCheckedContinuation { continuation in
      Thread.detachNewThread {
        continuation.resume(returning: run("'\(script)' \(command) '\(directory)' > '\(output)'"))
      }
    }
    defer { try? FileManager.default.removeItem(atPath: output) }
    guard status == 0 else { throw Failure(description: "scripts/postgres.sh \(command) failed") }
    return try String(contentsOfFile: output, encoding: .utf8).trimmingCharacters(in: .whitespacesAndNewlines)
  }

  /// Runs a shell command to its end and returns its status. The server that it starts keeps running and must inherit
  /// none of our descriptors: otherwise another test's Foundation Process would count as running for as long, and a
  /// wait for it would block a thread.
  private static func run(_ line: String) -> Int32 {
    let words = ["sh", "-c", line]
    let arguments: [UnsafeMutablePointer<CChar>?] = words.map { strdup($0) } + [nil]
    defer { for argument in arguments { free(argument) } }
    var (child, status): (pid_t, Int32) = (0, -1)
    #if canImport(Glibc)
    var actions = posix_spawn_file_actions_t()
    #else
    var actions: posix_spawn_file_actions_t?
    #endif
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    for descriptor in 3..<min(getdtablesize(), 8192) { posix_spawn_file_actions_addclose(&actions, descriptor) }
    guard posix_spawn(&child, "/bin/sh", &actions, nil, arguments, environ) == 0 else { return -1 }
    while waitpid(child, &status, 0) == -1, errno == EINTR {}
    return status
  }
}
