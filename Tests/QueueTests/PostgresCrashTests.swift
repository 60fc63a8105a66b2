import Logging
import Queue
import Runtime
import TestSupport
import TestTime
import Testing

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

@Suite("A Postgres that crashes", .timeLimit(.minutes(10)))
struct PostgresCrashTests {
  @Test("a cluster that a test starts holds none of this process's descriptors")
  func descriptors() async throws {
    var ends: [Int32] = [-1, -1]
    try #require(pipe(&ends) == 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0)
    defer { close(ends[0]) }
    try await TestCluster.with { _ in
      close(ends[1])
      var byte: UInt8 = 0
      #expect(read(ends[0], &byte, 1) == 0, "its end is open elsewhere")
    }
  }

  @Test("a settlement survives a crash, with all that was committed before it; a later claim does not")
  func settlementAndClaim() async throws {
    try await TestCluster.with { cluster in
      let database = TestDatabase(url: cluster.url, loop: .slow("test"))
      defer { database.loop.stop() }
      try await database.migrate()
      let options = PostgresOutbox.Options(url: cluster.url, name: "test", version: "0")
      let outbox = PostgresOutbox(options: options, loop: database.loop, logger: Logger(label: "test"))
      let events = EventStream()
      await outbox.open { events.report($0) }
      try await events.available()
      try await outbox.register()
      let allowances = [LaneAllowance(lane: try await outbox.register(lane: "apns", app: "porteiro"), limit: 1)]
      _ = try await database.value(PostgresOutboxTests.enqueue("call", devices: 3))
      let victim = try await database.connect()
      try await cluster.holdBack(victim)

      let settled = try await outbox.claim(1, allowances, within: ClaimLimits()).deliveries
      let held = try await outbox.claim(2, allowances, within: ClaimLimits()).deliveries
      let settlement = Settlement(try #require(settled.first), outcome: .delivered, attempts: 1, status: 200)
      #expect(try await outbox.settle([settlement]) == 1)
      let lost = try await outbox.claim(3, allowances, within: ClaimLimits()).deliveries
      try await cluster.crash(victim)
      try await events.unavailable()
      try await events.available()

      #expect(try await database.value("select count(*) from push.history where outcome = 0") == "1")
      #expect(try await outbox.beat(mayReap: true))
      let again = try await outbox.claim(4, allowances, within: ClaimLimits()).deliveries
      #expect(again.map(\.key) == lost.map(\.key))
      let late = (held + lost).map { Settlement($0, outcome: .delivered, attempts: 1, status: 200) }
      #expect(try await outbox.settle(late) == 1, "what was held before the settlement is still ours, the rest is not")
      await outbox.close()
    }
  }

  @Test("a sync says nothing about claims that were sent before its connection was opened")
  func syncAfterALoss() async throws {
    try await TestDatabase.with { database in
      let options = PostgresOutbox.Options(url: database.url, name: "test", version: "0")
      let loop = EventLoop.slow("outbox")
      defer { loop.stop() }
      let outbox = PostgresOutbox(options: options, loop: loop, logger: Logger(label: "test"))
      let events = EventStream()
      await outbox.open { events.report($0) }
      try await events.available()
      try await outbox.register()
      let allowances = [LaneAllowance(lane: try await outbox.register(lane: "apns", app: "porteiro"), limit: 1)]
      _ = try await outbox.claim(1, allowances, within: ClaimLimits())
      try await outbox.sync()
      _ = try await outbox.claim(2, allowances, within: ClaimLimits())
      let reconnects = await outbox.counters.reconnects
      try await database.execute(
        """
        select pg_terminate_backend(pid, 60000) from pg_stat_activity
        where datname = current_database() and application_name = 'push-gateway maintenance'
        """)
      while await outbox.counters.reconnects == reconnects { await Task.yield() }
      await #expect(throws: OutboxError.self) { try await outbox.sync() }
      try await outbox.sync()
      await outbox.close()
    }
  }
}
