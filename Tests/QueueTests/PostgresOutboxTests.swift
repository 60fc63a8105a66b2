import Logging
import PushModel
import Queue
import Runtime
import TestSupport
import TestTime
import Testing

@Suite("Outbox in Postgres", .timeLimit(.minutes(10)))
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

  /// - Parameters:
  ///   - isSlow: whether the outbox has a slow clock, so that no answer of a slow server comes too late.
  ///   - isAlone: whether it has a cluster of its own, because it would disturb others.
  private func withOutbox(
    isSlow: Bool = true, isAlone: Bool = false,
    _ body: (TestDatabase, PostgresOutbox, EventStream, _ lane: Int16) async throws -> Void
  ) async throws {
    func withDatabase(_ body: (TestDatabase) async throws -> Void) async throws {
      guard isAlone else { return try await TestDatabase.with(.schema, body) }
      try await TestCluster.with { cluster in
        let database = TestDatabase(url: cluster.url, loop: EventLoop(name: "test"))
        defer { database.loop.stop() }
        try await database.migrate()
        try await body(database)
      }
    }
    try await withDatabase { database in
      let loop = isSlow ? EventLoop.slow("outbox") : EventLoop(name: "outbox")
      defer { loop.stop() }
      let options = PostgresOutbox.Options(url: database.url, name: "test", version: "0")
      let outbox = PostgresOutbox(options: options, loop: loop, logger: Logger(label: "test"))
      let events = EventStream()
      await outbox.open { events.report($0) }
      try await events.available()
      try await outbox.register()
      let lane = try await outbox.register(lane: "apns", app: "porteiro")
      try await body(database, outbox, events, lane)
      await outbox.close()
    }
  }

  private func claim(
    _ number: Int32, _ lane: Int16, _ outbox: PostgresOutbox
  ) async throws(OutboxError) -> [Delivery] {
    try await outbox.claim(number, [LaneAllowance(lane: lane, limit: 10)], within: ClaimLimits()).deliveries
  }

  @Test("an outbox that has closed is freed: a gateway opens another one at each change of its apps")
  func freed() async throws {
    try await TestDatabase.with { database in
      weak var freed: PostgresOutbox?
      do {
        let options = PostgresOutbox.Options(url: database.url, name: "test", version: "0")
        let outbox = PostgresOutbox(options: options, loop: database.loop, logger: Logger(label: "test"))
        freed = outbox
        let events = EventStream()
        // As in the gateway, where events reach a dispatcher that keeps its store.
        await outbox.open { [outbox] in
          _ = outbox
          events.report($0)
        }
        try await events.available()
        await outbox.close()
      }
      // What the loop still holds ends with its next turns.
      try await eventually("it is freed") { freed == nil }
    }
  }

  @Test("a commit notifies the outbox")
  func bell() async throws {
    try await withOutbox { database, _, events, _ in
      try await events.bells(1)  // one for listening from now on
      // A commit does not notify while other sessions of the cluster wait to notify, as tests of other databases may.
      var calls = 0
      repeat {
        _ = try await database.value(Self.enqueue("call-\(calls)"))
        calls += 1
      } while try await !events.bells(2, within: .seconds(1))
    }
  }

  @Test("what a lost claim took comes back from a table that is searched in parts, too")
  func forgetInParts() async throws {
    try await withOutbox { database, outbox, _, lane in
      try await database.execute(
        "do $$ begin execute replace(pg_get_functiondef('push.forget_in'::regproc), '10000', '1'); end $$")
      _ = try await database.value(Self.enqueue("call-1", devices: 200))
      let taken = try await outbox.claim(1, [LaneAllowance(lane: lane, limit: 200)], within: ClaimLimits())
      #expect(taken.deliveries.count == 200)
      #expect(try await database.value("select pg_relation_size('push.delivery') > 3 * 8192") == "true")
      #expect(try await outbox.forget(1) == 200)
      #expect(try await database.value("select count(*) from push.delivery where state = 0") == "200")
    }
  }

  @Test(
    "a committed call is claimed with all data to send it, and its settlement has the database's time"
  )
  func lifeOfADelivery() async throws {
    try await withOutbox { database, outbox, _, lane in
      #expect(try await database.value(Self.enqueue("call-1", devices: 3)) == "3")
      let deliveries = try await claim(1, lane, outbox)
      #expect(deliveries.count == 3)
      let first = try #require(deliveries.first)
      #expect(first.kind == .invite)
      #expect(first.attempt == 1)
      #expect(first.callID.elementsEqual("call-1".utf8))
      #expect(first.callKind.elementsEqual("incoming_call".utf8))
      #expect(String(decoding: first.payload, as: UTF8.self).hasPrefix("{"))
      #expect(String(decoding: first.payload, as: UTF8.self).contains("doorman"))
      let left = first.deadline - outbox.loop.now
      let rest = try await database.value("select extract(epoch from deadline_at - clock_timestamp()) from push.outbox")
      // The estimate of the database's clock is wrong by up to half a round trip.
      #expect(left.seconds > (Double(rest) ?? 60) - 5 && left <= .seconds(60))

      let settlements = deliveries.map {
        Settlement(
          $0, outcome: .delivered, attempts: $0.attempt, status: 200, providerMessageID: "id",
          sentAt: outbox.loop.now, answeredAt: outbox.loop.now)
      }
      #expect(try await outbox.settle(settlements) == 3)
      let history = try await database.value(
        """
        select string_agg(distinct concat_ws(' ', outcome, provider, attempts, call_id, provider_message_id), ',')
        from push.delivery_history where sent_at >= created_at and answered_at >= sent_at
        """)
      #expect(history == "delivered apns 1 call-1 id")
    }
  }

  @Test(
    "a time that somebody wrote into a row stops nothing",
    arguments: ["infinity", "-infinity", "294276-12-31", "2400-01-01", "0044-03-15 BC"])
  func absurdTimes(_ time: String) async throws {
    try await withOutbox { database, outbox, _, lane in
      _ = try await database.value(Self.enqueue("call-1", devices: 2))
      try await database.execute("update push.delivery set created_at = '\(time)' where n = 0")
      let deliveries = try await claim(1, lane, outbox)
      #expect(deliveries.count == 2)
      let now = outbox.loop.now
      #expect(deliveries.count { (now - $0.enqueuedAt).seconds.magnitude > 1e6 } == 1)
      let settlements = deliveries.map {
        Settlement(
          $0, outcome: .delivered, attempts: 1, status: 200, providerMessageID: "id", sentAt: now, answeredAt: now)
      }
      #expect(try await outbox.settle(settlements) == 2)
    }
  }

  @Test("a call that cannot be read is put aside after one claim, and the others are claimed")
  func unreadable() async throws {
    try await withOutbox { database, outbox, _, lane in
      _ = try await database.value(Self.enqueue("well"))
      _ = try await database.value(Self.enqueue("ill"))
      try await database.execute(
        """
        set session_replication_role = replica;
        update push.outbox set declined = '"x"'
        where call_id = 'ill';
        """)
      await #expect(throws: OutboxError.self) { _ = try await claim(1, lane, outbox) }
      #expect(try await claim(2, lane, outbox).map { String(decoding: $0.callID, as: UTF8.self) } == ["well"])
      #expect(
        try await database.value("select outcome || ' ' || reason from push.delivery_history") == "dead Unreadable")
    }
  }

  @Test("calls that end in one statement give one hint, and very many give one without names")
  func hints() async throws {
    try await withOutbox { database, outbox, events, lane in
      // Nothing is notified while other sessions of the cluster wait to notify, as tests of other databases may.
      var round: Int32 = 0
      var ids: [Int64] = []
      repeat {
        round += 1
        for call in 0..<3 { _ = try await database.value(Self.enqueue("call-\(round)-\(call)")) }
        ids = try await claim(round, lane, outbox).map(\.key.outboxID)
        #expect(ids.count == 3)
        try await database.execute("update push.outbox set state = 'ended' where state <> 'ended'")
      } while try await !events.wait(within: .seconds(1)) {
        if case .mayHaveEnded(let some) = $0 { Set(some) == Set(ids) } else { false }
      }
      try await database.execute("notify push_control, 'void *'; notify push_control, 'void 17'")
      try await events.wait { if case .manyMayHaveEnded = $0 { true } else { false } }
    }
  }

  @Test("after its connections are cut the outbox reconnects by itself and keeps its gateway id")
  func reconnect() async throws {
    try await withOutbox { database, outbox, events, lane in
      _ = try await database.value(Self.enqueue("call-3"))
      let held = try await claim(1, lane, outbox)
      try await database.execute(
        """
        select pg_terminate_backend(pid, 60000) from pg_stat_activity
        where datname = current_database() and application_name like 'push-gateway%';
        """)
      try await events.unavailable()
      _ = try await database.value(Self.enqueue("call-4"))
      try await events.available()
      let beat = try await onceAvailable(events) { try await outbox.beat(mayReap: false) }
      #expect(beat)
      #expect(try await onceAvailable(events) { try await claim(2, lane, outbox) }.count == 1)
      let settlements = held.map { Settlement($0, outcome: .void, attempts: 0) }
      #expect(try await onceAvailable(events) { try await outbox.settle(settlements) } == 1)
    }
  }

  /// Repeats what the outbox refuses because a connection is lost. The connections are lost one after another: the outbox may
  /// be available again before it notices the loss of the last one.
  private func onceAvailable<Value>(_ events: EventStream, _ body: () async throws -> Value) async throws -> Value {
    while true {
      do {
        return try await body()
      } catch let error as OutboxError where error.code == .unavailable || error.code == .answerLost {
        try await events.available()
      }
    }
  }

  @Test("a flood of notifications, which any role can send, closes only the listener for a while")
  func flood() async throws {
    // While such a commit notifies, every other one of the cluster that notifies waits, and gateways wait for no lock for long.
    try await withOutbox(isSlow: false, isAlone: true) { database, outbox, events, lane in
      try await events.bells(1)
      _ = try await database.value(
        "select count(pg_notify('push_control', 'void ' || g)) from generate_series(1, 60000) g")
      var heard: [Bool] = []
      try await events.wait {
        switch $0 {
        case .listening(let isListening): heard.append(isListening)
        case .unavailable: Issue.record("a flood must not take the connections for work")
        default: break
        }
        return !heard.isEmpty
      }
      #expect(heard == [false])
      #expect(try await outbox.beat(mayReap: false))
      _ = try await database.value(Self.enqueue("call-flood"))
      #expect(try await claim(1, lane, outbox).count == 1)
      try await events.wait { if case .listening(true) = $0 { true } else { false } }
    }
  }

  @Test("closing retires the replica, and the next job makes its deliveries ready")
  func close() async throws {
    try await withOutbox { database, outbox, _, lane in
      _ = try await database.value(Self.enqueue("call-5"))
      #expect(try await claim(1, lane, outbox).count == 1)
      await outbox.close()
      #expect(try await database.value("select push.run_job('free')") == "true")
      #expect(try await database.value("select string_agg(state::text, ',') from push.deliveries") == "ready")
      #expect(try await database.value("select count(*) from push.gateways where alive") == "0")
      await #expect(throws: OutboxError.self) { try await outbox.beat(mayReap: false) }
    }
  }

  @Test("the tally is a job that returns results")
  func tally() async throws {
    try await withOutbox { database, outbox, _, _ in
      _ = try await database.value(Self.enqueue("call-6"))
      var seen: [String] = []
      for kind in JobKind.allCases {
        while let job = try await outbox.claimJob(kind), !seen.contains(job) {
          seen.append(job)
          let tallies = try await outbox.run(kind, job: job)
          if job == "tally" { #expect(tallies.contains { $0.event == .enqueued && $0.app == "porteiro" }) }
        }
      }
      #expect(Set(seen).isSuperset(of: ["tally", "promote", "expire", "miss"]))
    }
  }

  /// Repeats a statement that the server cancels.
  private func untilItSucceeds<Value: Sendable>(
    _ statement: @Sendable () async throws(OutboxError) -> Value
  ) async throws -> Value {
    while true {
      try Task.checkCancellation()
      do throws(OutboxError) { return try await statement() } catch {}
    }
  }

  @Test("a call whose end takes seconds delays no retry, no dead token and no visible push")
  func slowEnd() async throws {
    try await withOutbox { database, outbox, _, lane in
      _ = try await database.value(Self.enqueue("call-slow"))
      // The call is late, and its end waits until the test says so, in another session.
      try await database.execute(
        """
        set session_replication_role = replica;
        update push.outbox set created_at = created_at - interval '1 hour', deadline_at = deadline_at - interval '1 hour';
        set session_replication_role = origin;
        create table public.patience (is_over boolean);
        create function public.wait() returns trigger language plpgsql as $$
        begin
          while not exists (select from public.patience) loop
            perform pg_sleep(0.01);
          end loop;
          return new;
        end $$;
        create trigger wait before update on push.outbox for each row when (new.state = 'missed')
        execute function public.wait();
        """)
      let isEnding =
        "select count(*) from pg_stat_activity where application_name = 'push-gateway jobs' and state = 'active'"
        + " and datname = current_database()"
      // On a slow machine the server cancels the statement, which may not take longer than five seconds.
      async let ended = untilItSucceeds { () async throws(OutboxError) in try await outbox.run(.upkeep, job: "miss") }
      try await database.wait(for: isEnding, toBe: "1")
      _ = try await outbox.run(.urgent, job: "promote")
      try await outbox.sync()
      let dead = TokenInvalidation(lane: lane, token: ArraySlice(Self.token.utf8), since: nil, reason: "Unregistered")
      _ = try await outbox.invalidate([dead])
      try await database.wait(for: isEnding, toBe: "1")
      try await database.execute("insert into public.patience values (true)")
      _ = try await ended
      #expect(try await database.value("select state from push.outbox") == "missed")
    }
  }

  @Test("whether a call still rings is known while results wait to be written")
  func lookUpBesideSettlements() async throws {
    try await withOutbox { database, outbox, _, lane in
      _ = try await database.value(Self.enqueue("call-look-up"))
      let held = try await claim(1, lane, outbox)
      let call = try #require(held.first).lease.outboxID
      try await database.execute(
        """
        create table public.patience (is_over boolean);
        create function public.wait() returns trigger language plpgsql as $$
        begin
          while not exists (select from public.patience) loop
            perform pg_sleep(0.01);
          end loop;
          return old;
        end $$;
        create trigger wait before delete on push.delivery for each row execute function public.wait();
        """)
      let isSettling =
        "select count(*) from pg_stat_activity where application_name = 'push-gateway settlements' and state = 'active'"
        + " and datname = current_database()"
      let results = held.map { Settlement($0, outcome: .void, attempts: 0) }
      async let settled = untilItSucceeds { () async throws(OutboxError) in try await outbox.settle(results) }
      try await database.wait(for: isSettling, toBe: "1")
      #expect(try await outbox.endedFor([call]) == EndedRings())
      try await database.wait(for: isSettling, toBe: "1")
      try await database.execute("insert into public.patience values (true)")
      #expect(try await settled == held.count)
    }
  }

  @Test("what follows from ends does not need the connection for jobs")
  func followUpWithoutJobs() async throws {
    try await withOutbox { database, outbox, _, _ in
      // It is lost, and no new connection can be made.
      try await database.execute(
        """
        update pg_database set datallowconn = false where datname = current_database();
        select pg_terminate_backend(pid) from pg_stat_activity
        where application_name = 'push-gateway jobs' and datname = current_database();
        """)
      try await eventually("follow-ups run") { (try? await outbox.followUp(.upkeep, max: 10)) == 0 }
      #expect(try await outbox.claimJob(.upkeep) != nil)
    }
  }

  @Test("claimed and dead entries before the ready ones are counted, and claims start behind them")
  func entriesInFront() async throws {
    let calls = 600, devices = 100, claims = 50
    // What a claim costs decides where the next one starts.
    try await withOutbox(isSlow: false) { database, outbox, _, lane in
      let allowance = [LaneAllowance(lane: lane, limit: 10)]
      func count(_ number: Int32) async throws -> Int {
        // A claim that the server cancels for its duration brings nothing, and the next one starts elsewhere.
        do throws(OutboxError) {
          return try await outbox.claim(number, allowance, within: ClaimLimits()).deliveries.count
        } catch { return 0 }
      }
      // The first claim plans; after a quick one, the next does not request the number of entries.
      for number in Int32(1)...3 { #expect(try await count(number) == 0) }
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
        delete from push.delivery where n < \(devices / 2);
        update push.delivery set state = 1, owner = 1, lease = 1;
        insert into push.outbox (app, payload, recipients, ring_seconds)
        values ('porteiro', '{"callId": "alive", "from": "doorman"}',
          '[{"userId": "u", "voipPushToken": "\(Self.token)"}]', 600);
        """)
      var found = 0
      for number in 4..<Int32(4 + claims) { found += try await count(number) }
      #expect(found == 1)
      await reader.close()
      await outbox.close()

      // A session's statistics are complete when it has ended.
      let sessions = """
        select count(*) from pg_stat_activity
        where datname = current_database() and application_name = 'push-gateway claims'
        """
      try await database.wait(for: sessions, toBe: "0")
      let read = try await database.value(
        "select idx_tup_read from pg_stat_user_indexes where indexrelname = 'delivery_ready'")
      let steps = try #require(Int(read))
      #expect(steps >= calls * devices)
      #expect(steps < claims * calls * devices / 2)
    }
  }
}
