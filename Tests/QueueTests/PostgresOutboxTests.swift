import Logging
import Queue
import Runtime
import Synchronization
import TestSupport
import Testing

/// A store's events, to be awaited one after the other.
final class EventStream: Sendable {
  let stream: AsyncStream<OutboxEvent>
  private let continuation: AsyncStream<OutboxEvent>.Continuation

  init() { (stream, continuation) = AsyncStream.makeStream() }

  private let bells = Mutex(0)

  func report(_ event: OutboxEvent) {
    if case .bell = event { bells.withLock { $0 += 1 } }
    continuation.yield(event)
  }

  /// Waits until the bell has rung so often since the start.
  func bells(_ count: Int) async {
    var iterator = stream.makeAsyncIterator()
    while bells.withLock({ $0 }) < count { _ = await iterator.next() }
  }

  /// Waits until an event satisfies `isWanted`.
  func wait(for isWanted: (OutboxEvent) -> Bool) async {
    for await event in stream where isWanted(event) { return }
  }

  func available() async { await wait { if case .available = $0 { true } else { false } } }
}

@Suite("Outbox in Postgres", .timeLimit(.minutes(1)))
struct PostgresOutboxTests {
  static let token = String(repeating: "ab", count: 32)

  static func enqueue(_ callID: String, devices: Int = 1) -> String {
    let recipients = (0..<devices).map {
      #"{"userId": "u\#($0)", "voipPushToken": "\#(String($0 + 100_000))\#(token)", "platform": "ios"}"#
    }
    return """
      select deliveries from push.enqueue_call(
        '{"callId": "\(callID)", "from": "doorman"}', '[\(recipients.joined(separator: ","))]', 'porteiro')
      """
  }

  private func withOutbox(
    _ body: (TestDatabase, PostgresOutbox, EventStream, _ lane: Int16) async throws -> Void
  ) async throws {
    try await TestDatabase.with { database in
      let options = PostgresOutbox.Options(url: database.url, name: "test", version: "0")
      let outbox = PostgresOutbox(options: options, loop: database.loop, logger: Logger(label: "test"))
      let events = EventStream()
      await outbox.open { events.report($0) }
      await events.available()
      let lane = try await outbox.register(lane: "apns", app: "porteiro")
      try await body(database, outbox, events, lane)
      await outbox.close()
    }
  }

  private func settled(_ delivery: Delivery, _ outbox: PostgresOutbox) -> Settlement {
    Settlement(
      delivery, outcome: .delivered, attempts: delivery.attempt, status: 200,
      providerMessageID: "id", sentAt: outbox.loop.now, answeredAt: outbox.loop.now)
  }

  @Test("a commit rings the bell")
  func bell() async throws {
    try await withOutbox { database, _, events, _ in
      await events.bells(2)  // one for being available, one for listening from now on
      _ = try await database.value(Self.enqueue("call-0"))
      await events.bells(3)
    }
  }

  @Test("a committed call is claimed once, with all that is needed to send it, and is settled once")
  func lifeOfADelivery() async throws {
    try await withOutbox { database, outbox, _, lane in
      #expect(try await database.value(Self.enqueue("call-1", devices: 3)) == "3")
      let allowance = [LaneAllowance(lane: lane, limit: 10)]
      let deliveries = try await outbox.claim(allowance)
      #expect(deliveries.count == 3)
      #expect(try await outbox.claim(allowance).isEmpty)
      let first = try #require(deliveries.first)
      #expect(first.kind == .invite)
      #expect(first.attempt == 1)
      #expect(first.callID.elementsEqual("call-1".utf8))
      #expect(String(decoding: first.payload, as: UTF8.self).contains("doorman"))
      let left = first.deadline - outbox.loop.now
      #expect(left > .seconds(50) && left <= .seconds(60))
      #expect(try await database.value("select count(*) from push.deliveries where state = 'claimed'") == "3")

      #expect(try await outbox.settle(deliveries.map { settled($0, outbox) }) == 3)
      #expect(try await outbox.settle(deliveries.map { settled($0, outbox) }) == 0)
      #expect(try await database.value("select count(*) from push.deliveries") == "0")
      let history = try await database.value(
        """
        select string_agg(distinct concat_ws(' ', outcome, provider, attempts, call_id, provider_message_id), ',')
        from push.delivery_history where sent_at >= created_at and answered_at >= sent_at
        """)
      #expect(history == "delivered apns 1 call-1 id")
    }
  }

  @Test("a parked delivery waits and keeps its attempt; a released one is ready at once and gets its attempt back")
  func parkAndRelease() async throws {
    try await withOutbox { database, outbox, _, lane in
      _ = try await database.value(Self.enqueue("call-2", devices: 2))
      let deliveries = try await outbox.claim([LaneAllowance(lane: lane, limit: 10)])
      #expect(deliveries.count == 2)
      let parking = Parking(lease: deliveries[0].lease, attempts: 4, delay: .seconds(30), reason: "ServiceUnavailable")
      #expect(try await outbox.park([parking]) == 1)
      #expect(try await outbox.release([deliveries[1].lease]) == 1)
      let rows = try await database.value(
        "select string_agg(concat_ws(' ', state, attempt, last_reason), ',' order by state::text) from push.deliveries")
      #expect(rows == "ready 0,waiting 4 ServiceUnavailable")
      #expect(try await outbox.claim([LaneAllowance(lane: lane, limit: 10)]).map(\.attempt) == [1])
    }
  }

  @Test("a replica that was declared dead settles nothing, hears of it, and goes on under a new identity")
  func fencing() async throws {
    try await withOutbox { database, outbox, events, lane in
      _ = try await database.value(Self.enqueue("call-3"))
      let deliveries = try await outbox.claim([LaneAllowance(lane: lane, limit: 10)])
      #expect(deliveries.count == 1)
      try await database.execute(
        "update push.gateways set heartbeat_at = heartbeat_at - interval '1 hour'; select push.reap();")
      await events.wait { if case .fenced = $0 { true } else { false } }
      #expect(try await outbox.settle(deliveries.map { settled($0, outbox) }) == 0)
      let again = try await outbox.claim([LaneAllowance(lane: lane, limit: 10)])
      #expect(again.count == 1)
      #expect(again.first?.attempt == 2)
    }
  }

  @Test("when its connections are cut the outbox comes back and rings for what it missed; no call is lost")
  func reconnect() async throws {
    try await withOutbox { database, outbox, events, lane in
      try await database.execute(
        """
        select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name like 'push-gateway%';
        """)
      await events.wait { if case .unavailable = $0 { true } else { false } }
      _ = try await database.value(Self.enqueue("call-4"))
      await events.available()
      #expect(try await outbox.claim([LaneAllowance(lane: lane, limit: 10)]).count == 1)
    }
  }

  @Test("closing retires the replica, and what it held is ready for others at once")
  func close() async throws {
    try await withOutbox { database, outbox, _, lane in
      _ = try await database.value(Self.enqueue("call-5"))
      #expect(try await outbox.claim([LaneAllowance(lane: lane, limit: 10)]).count == 1)
      await outbox.close()
      #expect(try await database.value("select string_agg(state::text, ',') from push.deliveries") == "ready")
      #expect(try await database.value("select count(*) from push.gateways where alive") == "0")
    }
  }

  @Test("dead entries that a transaction holds on to are noticed, and claims start behind them")
  func deadEntries() async throws {
    let calls = 600, devices = 100, claims = 50
    try await withOutbox { database, outbox, _, lane in
      let allowance = [LaneAllowance(lane: lane, limit: 10)]
      // The first plans; after a quick one it is not asked at once what the next steps over.
      for _ in 0..<3 { #expect(try await outbox.claim(allowance).isEmpty) }
      try await database.execute(
        """
        insert into push.outbox (app, payload, recipients, ring_seconds)
        select 'porteiro', jsonb_build_object('callId', 'dead-' || call, 'from', 'doorman'), jsonb_agg(
          jsonb_build_object('userId', 'u' || device, 'voipPushToken', lpad(to_hex(device), 64, '0'))), 300
        from generate_series(1, \(calls)) call, generate_series(1, \(devices)) device
        group by call;
        """)
      let reader = try await database.connect()
      for sql in ["begin isolation level repeatable read", "select count(*) from push.delivery"] {
        _ = try await reader.query(PostgresStatement(name: sql, text: sql))
      }
      try await database.execute(
        """
        delete from push.delivery;
        insert into push.outbox (app, payload, recipients, ring_seconds)
        values ('porteiro', '{"callId": "alive", "from": "doorman"}',
          '[{"userId": "u", "voipPushToken": "\(Self.token)"}]', 600);
        """)
      var found = 0
      for _ in 0..<claims { found += try await outbox.claim(allowance).count }
      #expect(found == 1)
      await reader.close()
      await outbox.close()

      // A session's statistics are complete when it has ended.
      let sessions = """
        select count(*) from pg_stat_activity
        where datname = current_database() and application_name = 'push-gateway claims'
        """
      while try await database.value(sessions) != "0" {}
      let walked = try await database.value(
        "select idx_tup_read from pg_stat_user_indexes where indexrelname = 'delivery_ready'")
      let steps = try #require(Int(walked))
      #expect(steps >= calls * devices)
      #expect(steps < claims * calls * devices / 2)
    }
  }

  @Test("what passes its deadline unclaimed ends as expired, by the leader's hand")
  func expiry() async throws {
    try await withOutbox { database, outbox, events, lane in
      try await database.execute(
        """
        insert into push.outbox (app, payload, recipients, ring_seconds)
        values ('porteiro', '{"callId": "call-6", "from": "doorman"}',
          '[{"userId": "u", "voipPushToken": "\(Self.token)"}]', 1);
        """)
      var outcome = ""
      while outcome.isEmpty {  // ends with the test's time limit if the leader never does it
        outcome = try await database.value(
          "select coalesce((select outcome::text || ' ' || reason from push.delivery_history where call_id = 'call-6'), '')"
        )
      }
      #expect(outcome == "expired DeadlinePassed")
      #expect(try await outbox.claim([LaneAllowance(lane: lane, limit: 10)]).isEmpty)
      _ = events
    }
  }
}
