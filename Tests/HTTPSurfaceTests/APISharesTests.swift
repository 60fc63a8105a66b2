// How apps share the API's connections to Postgres, so that one app's load does not stop another's calls. Calls go
// before reads.

import Foundation
import Logging
import Queue
import Runtime
import Synchronization
import TestSupport
import Testing

@testable import HTTPSurface

@Suite(.timeLimit(.minutes(10)))
struct APISharesTests {
  private final class Ended: Sendable {
    let count = Atomic<Int>(0)
  }

  /// Waits while the test holds the lock.
  private static let wait = PostgresStatement(
    name: "wait", sql: "select count(*) from (select pg_advisory_xact_lock_shared(4711)) held")
  private static let answer = PostgresStatement(name: "answer", sql: "select 42::bigint")
  private static let noisy = APIClient(keyID: 1, app: "noisy")
  private static let other = APIClient(keyID: 2, app: "other")

  private func expectAnswer(_ pool: PostgresPool, _ purpose: PostgresPool.Purpose = .own) async throws {
    let answer = try await pool.query(Self.answer, for: purpose).int64(0, 0)
    #expect(answer == 42)
  }

  /// Makes a pool of six connections, and starts statements that wait until `body` has returned. Fails if one of them
  /// fails.
  ///
  /// - Parameter hanging: number of statements that may have a connection at a time.
  private func with(
    _ purposes: [PostgresPool.Purpose], hanging: Int, _ body: @escaping @Sendable (PostgresPool) async throws -> Void
  ) async throws {
    try await TestDatabase.with { database in
      let loop = EventLoop(name: "shares")
      defer { loop.stop() }
      let pool = PostgresPool(
        url: database.url, loop: loop, timeoutSeconds: 100,
        logger: Logger(label: "shares") { _ in SwiftLogNoOpLogHandler() }, lockPatience: .seconds(100))
      let holder = try await database.connect()
      try await holder.script("select pg_advisory_lock(4711)")
      try await withThrowingTaskGroup(of: Void.self) { tasks in
        for purpose in purposes { tasks.addTask { _ = try await pool.query(Self.wait, for: purpose) } }
        // Wait until all of these statements run.
        let held =
          "select count(*) from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database())"
        try await database.wait(for: held, toBe: "\(hanging)")
        try await body(pool)
        try await holder.script("select pg_advisory_unlock(4711)")
        try await tasks.waitForAll()
      }
      await holder.close()
      await pool.close()
    }
  }

  @Test func `128 reads that hang leave connections for calls`() async throws {
    try await with(Array(repeating: .other(Self.noisy), count: 128), hanging: 2) { pool in
      for client in [Self.noisy, Self.other] {
        try await expectAnswer(pool, .call(client))
      }
    }
  }

  @Test func `an app whose calls hang, with any number of keys, leaves connections for others`() async throws {
    let keys = (0..<128).map { PostgresPool.Purpose.call(APIClient(keyID: $0 % 5, app: Self.noisy.app)) }
    try await with(keys, hanging: 2) { pool in
      try await expectAnswer(pool, .call(Self.other))
      try await expectAnswer(pool, .other(Self.other))
      try await expectAnswer(pool)
    }
  }

  @Test func `apps that use all their connections leave one for groups of calls and for key look-ups`()
    async throws
  {
    try await with((3...20).map { PostgresPool.Purpose(app: "app-\($0)") }, hanging: 5) { pool in
      try await expectAnswer(pool)
    }
  }

  @Test func `if calls of three apps wait for a lock, those of a fourth wait only for a moment`() async throws {
    try await TestDatabase.with { database in
      let loop = EventLoop(name: "shares")
      defer { loop.stop() }
      let pool = PostgresPool(
        url: database.url, loop: loop, timeoutSeconds: 100,
        logger: Logger(label: "shares") { _ in SwiftLogNoOpLogHandler() }, lockPatience: .seconds(4))
      let holder = try await database.connect()
      try await holder.script("select pg_advisory_lock(4711)")
      let ended = Ended()
      let refused = try await withThrowingTaskGroup(of: APIProblem?.self) { tasks in
        for call in 0..<24 {
          tasks.addTask {
            defer { ended.count.add(1, ordering: .relaxed) }
            do throws(APIProblem) {
              _ = try await pool.query(Self.wait, for: .call(APIClient(keyID: Int32(call), app: "app-\(call % 3)")))
              return nil
            } catch {
              return error
            }
          }
        }
        let first = try await tasks.next() ?? nil
        #expect(first != nil)
        try await expectAnswer(pool, .call(Self.other))
        #expect(ended.count.load(ordering: .relaxed) < 24, "others still wait, though they came first")
        return try await tasks.reduce(0) { $0 + ($1 == nil ? 0 : 1) }
      }
      #expect(refused == 23)
      await holder.close()
      await pool.close()
    }
  }

  @Test func `a connection that no longer answers is abandoned, and the next statement uses another`() async throws {
    try await TestDatabase.with { database in
      let loop = EventLoop(name: "shares")
      defer { loop.stop() }
      let pool = PostgresPool(
        url: database.url, loop: loop, timeoutSeconds: 10,
        logger: Logger(label: "shares") { _ in SwiftLogNoOpLogHandler() })
      let pid = PostgresStatement(name: "pid", sql: "select pg_backend_pid()")
      let frozen = try await pool.query(pid).int32(0, 0)
      #expect(kill(frozen, SIGSTOP) == 0)
      defer { kill(frozen, SIGCONT) }
      await #expect(throws: APIProblem.self) { try await pool.query(pid) }
      let next = try await pool.query(pid).int32(0, 0)
      #expect(next != frozen)
      await pool.close()
    }
  }

  @Test func `an app that fills the queue does not keep out another`() async throws {
    try await TestDatabase.with { database in
      let loop = EventLoop(name: "shares")
      defer { loop.stop() }
      let pool = PostgresPool(
        url: database.url, loop: loop, timeoutSeconds: 100,
        logger: Logger(label: "shares") { _ in SwiftLogNoOpLogHandler() }, lockPatience: .seconds(100))
      let holder = try await database.connect()
      try await holder.script("select pg_advisory_lock(4711)")
      let refused = try await withThrowingTaskGroup(of: Bool.self) { tasks in
        for _ in 0..<PostgresPool.waitingMax + 10 {
          tasks.addTask {
            do throws(APIProblem) {
              _ = try await pool.query(Self.wait, for: .other(Self.noisy))
              return false
            } catch {
              return error == .overloaded
            }
          }
        }
        // Eight statements were rejected, so the queue is full.
        for _ in 0..<8 { #expect(try await tasks.next() == true) }
        tasks.addTask {
          _ = try await pool.query(Self.wait, for: .other(Self.other))
          return false
        }
        // It displaced the last statement of the noisy key.
        #expect(try await tasks.next() == true)
        try await holder.script("select pg_advisory_unlock(4711)")
        return try await tasks.reduce(0) { $0 + ($1 ? 1 : 0) }
      }
      #expect(refused == 0)
      await holder.close()
      await pool.close()
    }
  }
}
