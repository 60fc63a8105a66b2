// Tests that a settlement is counted once, even if its answer was lost or the lease has expired.

import Logging
import Queue
import Runtime
import Synchronization
import TestSupport
import Testing

@Suite("What was settled", .timeLimit(.minutes(10))) struct MetricsSettledTests {
  @Test("a batch that was written before is recognized; settlements of other gateways are not")
  func settledBefore() async throws {
    try await TestDatabase.with { database in
      func open(_ name: String) async throws -> PostgresOutbox {
        let outbox = PostgresOutbox(
          options: PostgresOutbox.Options(url: database.url, name: name, version: "0"), loop: database.loop,
          logger: Logger(label: "test"))
        let (events, continuation) = AsyncStream.makeStream(of: OutboxEvent.self)
        await outbox.open { continuation.yield($0) }
        for await event in events { if case .available = event { break } }
        try await outbox.register()
        return outbox
      }
      let first = try await open("first")
      let second = try await open("second")
      let lane = try await first.register(lane: "fcm", app: "porteiro")
      try await database.execute(
        """
        insert into push.outbox (app, payload, recipients)
        select 'porteiro', '{"callId": "c", "from": "x"}', jsonb_agg(jsonb_build_object(
          'userId', 'u' || i, 'fcmToken', 'test-token-0123456789-' || i)) from generate_series(1, 3) i
        """)
      let mine = try await first.claim(1, [LaneAllowance(lane: lane, limit: 2)], within: ClaimLimits()).deliveries
      let theirs = try await second.claim(1, [LaneAllowance(lane: lane, limit: 2)], within: ClaimLimits()).deliveries
      #expect(mine.count == 2)
      #expect(theirs.count == 1)
      let settlements = (mine + theirs).map {
        Settlement($0, outcome: .delivered, attempts: 1, status: 200)
      }
      #expect(try await first.settle(Array(settlements.prefix(1))) == 1)
      // The whole batch again, as after a lost answer: one is new, one was ours, one never was.
      #expect(try await first.settle(settlements) == 1)
      #expect(try await second.settle([settlements[2]]) == 1)
      #expect(try await first.settled(among: settlements) == Set(mine.map(\.key)))
      #expect(try await second.settled(among: settlements) == [theirs[0].key])
      let counters = await first.counters
      #expect(counters.roundTrips[.settle]?.count == 2)
      #expect(counters.roundTrips[.claim]?.count == 1)
      await first.close()
      await second.close()
    }
  }
}
