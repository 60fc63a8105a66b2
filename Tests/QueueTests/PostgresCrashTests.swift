import Logging
import Queue
import Runtime
import TestSupport
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

  @Test("a settlement that a crash lost is checked, reclaimed and written again; until then nothing is claimed")
  func lostSettlement() async throws {
    try await TestCluster.with { cluster in
      let database = TestDatabase(url: cluster.url, loop: EventLoop(name: "test"))
      defer { database.loop.stop() }
      try await database.migrate()
      let options = PostgresOutbox.Options(url: cluster.url, name: "test", version: "0")
      let outbox = PostgresOutbox(options: options, loop: database.loop, logger: Logger(label: "test"))
      let events = EventStream()
      await outbox.open { events.report($0) }
      try await events.available()
      try await outbox.register()
      let allowances = [LaneAllowance(lane: try await outbox.register(lane: "apns", app: "porteiro"), limit: 10)]
      _ = try await database.value(PostgresOutboxTests.enqueue("call", devices: 2))
      let claimed = try await outbox.claim(1, allowances, within: ClaimLimits()).deliveries
      #expect(claimed.count == 2)

      let victim = try await database.connect()
      try await database.execute("create table flushed ()")  // waits for the disk, and with it the claim
      try await cluster.holdBack(victim)
      let settlement = Settlement(claimed[0], outcome: .delivered, attempts: 1, status: 200)
      #expect(try await outbox.settle([settlement]) == 1)
      #expect(try await database.value("select count(*) from push.delivery") == "1")
      try await cluster.crash(victim)
      try await events.unavailable()
      try await events.available()

      #expect(try await database.value("select count(*) from push.delivery where state = 1") == "2")
      #expect(try await database.value("select count(*) from push.history") == "0")
      #expect(try await outbox.beat(mayReap: true) == Beat(isAlive: true, mustReclaim: true))
      _ = try await database.value(PostgresOutboxTests.enqueue("other"))
      #expect(try await outbox.claim(2, allowances, within: ClaimLimits()).deliveries.isEmpty)
      let reclaimed = try await outbox.reclaim(3, claimed.map(\.key)).sorted { $0.index < $1.index }
      #expect(reclaimed.map(\.index) == [0, 1])
      let again = reclaimed.map { reclaimed in
        Settlement(
          claimed[reclaimed.index], lease: DeliveryLease(claimed[reclaimed.index].key, lease: 3),
          place: reclaimed.place, outcome: .delivered, attempts: 1, status: 200)
      }
      #expect(try await outbox.settle(again) == 2)
      try await outbox.confirmReclaimed()
      #expect(try await outbox.claim(4, allowances, within: ClaimLimits()).deliveries.count == 1)
      await outbox.close()
    }
  }
}
