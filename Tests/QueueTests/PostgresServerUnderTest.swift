// A Postgres server for the conformance suite of `OutboxStore`: a private database in the cluster of the tests.

import Logging
import PushModel
import Queue
import Runtime
import Synchronization
import TestSupport
import TestTime
import Testing

/// A crash is only imitated, because the cluster is shared: the tables are reset to their earlier contents, also what was
/// committed durably, and the gateways' connections are cut. `PostgresCrashTests` has a server that really crashes.
final class PostgresServerUnderTest: OutboxUnderTest {
  let lanes: [Int16]
  let silence = Nanoseconds.seconds(30)
  private let database: TestDatabase
  /// No answer of a slow server comes too late.
  private let loop = EventLoop.slow("gateways")
  private let backend: PostgresConnection
  private let gateways = Mutex<[(outbox: PostgresOutbox, events: EventStream)]>([])
  private let tokens = Atomic<Int>(0)

  private static let apps = ["first", "second"]

  init(_ database: TestDatabase) async throws {
    self.database = database
    backend = try await database.connect()
    var lanes: [Int16] = []
    for app in Self.apps {
      let register = PostgresStatement(
        name: "register \(app)",
        text: "select push.register_lane('\(app)', 'fcm') from (select push.register_app('\(app)', 60)) a")
      lanes.append(try await backend.query(register).int16(0, 0))
    }
    self.lanes = lanes
    try await raiseLimits()
  }

  /// On a slow machine these limits of the server would end while a rule works: the silence of a gateway, the time that a run of follow-ups
  /// takes, the age of a note that it still takes, and waits for locks.
  private func raiseLimits() async throws {
    try await backend.script(
      """
      do $$
      declare
        v_limit record;
        v_text  text;
      begin
        for v_limit in values ('push.beat'::regproc, '00:00:03', '\(silence.milliseconds) ms'),
          ('push.follow_up', '00:00:10', '1 hour'), ('push.follow_up', '250 ms', '1 hour')
        loop
          v_text := pg_get_functiondef(v_limit.column1);
          execute replace(v_text, quote_literal(v_limit.column2), quote_literal(v_limit.column3));
          assert pg_get_functiondef(v_limit.column1) <> v_text, v_limit.column1 || ' has no limit of ' || v_limit.column2;
        end loop;
        for v_limit in select p.oid::regprocedure as name from pg_proc p where p.proconfig::text ~ 'lock_timeout' loop
          execute format('alter function %s set lock_timeout = %L', v_limit.name, '1min');
        end loop;
      end
      $$
      """)
  }

  /// Runs `body` with its own server.
  static func with(_ body: (PostgresServerUnderTest) async throws -> Void) async throws {
    try await TestDatabase.with { database in
      let server = try await PostgresServerUnderTest(database)
      do { try await body(server) } catch {
        await server.close()
        throw error
      }
      await server.close()
    }
  }

  private func close() async {
    for gateway in gateways.withLock({ $0 }) { await gateway.outbox.close() }
    await backend.close()
    loop.stop()
  }

  func makeGateway() async throws -> any OutboxStore {
    let options = PostgresOutbox.Options(url: database.url, name: "test", version: "0")
    let outbox = PostgresOutbox(options: options, loop: loop, logger: Logger(label: "test"))
    let events = EventStream()
    gateways.withLock { $0.append((outbox, events)) }
    await outbox.open { events.report($0) }
    try await events.available()
    return outbox
  }

  func enqueue(_ kind: PushKind, lane: Int16, devices: Int, seconds: Int) async throws -> Int64 {
    let app = Self.apps[try #require(lanes.firstIndex(of: lane))]
    let first = tokens.add(devices, ordering: .relaxed).oldValue
    let insert = PostgresStatement(
      name: "enqueue \(app) \(kind)",
      text: """
        insert into push.outbox (app, kind, payload, recipients, ring_seconds)
        select '\(app)', '\(kind == .invite ? "incoming_call" : "message")',
          jsonb_build_object('callId', 'call-' || $1, 'from', 'doorman', 'chatId', 'chat'),
          jsonb_agg(jsonb_build_object('userId', 'user-' || t, 'fcmToken', 'token-' || lpad(t::text, 20, '0'), 'platform', 'android') order by t), $3
        from generate_series($1, $1 + $2 - 1) t
        returning id
        """)
    var parameters = PostgresParameters()
    parameters.append(Int32(first))
    parameters.append(Int32(devices))
    parameters.append(Int32(seconds))
    return try await backend.query(insert, parameters).int64(0, 0)
  }

  func end(_ outboxID: Int64) async throws {
    var parameters = PostgresParameters()
    parameters.append(outboxID)
    _ = try await backend.query(
      PostgresStatement(
        name: "end", sql: "update push.outbox set state = 'ended', end_reason = 'ended' where id = $1"), parameters)
  }

  func decline(_ outboxID: Int64, device: Int) async throws {
    var parameters = PostgresParameters()
    parameters.append(outboxID)
    parameters.append(Int32(device))
    let decline = PostgresStatement(
      name: "decline",
      sql: """
        select push.decline_call(o.call_id, o.recipients -> $2 ->> 'userId', o.app) from push.outbox o where o.id = $1
        """)
    _ = try await backend.query(decline, parameters)
  }

  func setAtLeastOnce(_ isAtLeastOnce: Bool, lane: Int16) async throws {
    var parameters = PostgresParameters()
    parameters.append(isAtLeastOnce)
    parameters.append(lane)
    let update = PostgresStatement(
      name: "at least once",
      sql: "update push.apps set at_least_once = $1 where app = (select app from push.lane where id = $2)")
    _ = try await backend.query(update, parameters)
  }

  func owed() async throws -> [OwedDelivery] {
    let select = PostgresStatement(
      name: "owed",
      sql: """
        select outbox_id, n, kind, state, lease, attempt, crashes, created_at from push.delivery order by outbox_id, n
        """)
    let result = try await backend.query(select)
    return try (0..<result.rowCount).map { row in
      let state: OwedDelivery.State =
        switch result.int16(row, 3) {
        case 0: .ready
        case 1: .claimed(lease: result.int32(row, 4))
        default: .waiting
        }
      return OwedDelivery(
        key: DeliveryKey(
          outboxID: result.int64(row, 0), pushNumber: result.int32(row, 1),
          createdAtMicroseconds: result.timestamp(row, 7)),
        kind: try #require(PushKind(rawValue: UInt8(result.int16(row, 2)))), state: state,
        attempts: result.int32(row, 5), crashes: Int(result.int16(row, 6)))
    }
  }

  func ended() async throws -> [EndedDelivery] {
    let select = PostgresStatement(
      name: "ended",
      sql: "select outbox_id, n, outcome, attempts::int4, reason, created_at from push.history order by outbox_id, n")
    let result = try await backend.query(select)
    return try (0..<result.rowCount).map { row in
      EndedDelivery(
        key: DeliveryKey(
          outboxID: result.int64(row, 0), pushNumber: result.int32(row, 1),
          createdAtMicroseconds: result.timestamp(row, 5)),
        outcome: try #require(DeliveryOutcome(rawValue: UInt8(result.int16(row, 2)))), attempts: result.int32(row, 3),
        reason: result.isNull(row, 4) ? nil : result.text(row, 4))
    }
  }

  func advance(by duration: Nanoseconds) async throws {
    let by = "interval '\(duration.milliseconds) ms'"
    // Without triggers, because no call must end here.
    try await backend.script(
      """
      set local session_replication_role = replica;
      update push.gateways set heartbeat_at = heartbeat_at - \(by), steady_since = steady_since - \(by),
        doubted_at = doubted_at - \(by), free_due_at = free_due_at - \(by);
      update push.outbox set created_at = created_at - \(by), deadline_at = deadline_at - \(by);
      update push.delivery set created_at = created_at - \(by), deadline_at = deadline_at - \(by), due_at = due_at - \(by),
        handed_on_at = handed_on_at - \(by);
      update push.job set due_at = due_at - \(by);
      update push.follow_ups set due_at = due_at - \(by);
      """)
  }

  func crash(losing body: () async throws -> Void) async throws {
    let gateways = gateways.withLock { $0 }
    try await backend.script(
      """
      create table saved_delivery as select * from push.delivery;
      create table saved_history as select * from push.history;
      create table saved_follow_ups as select * from push.follow_ups;
      create table saved_gateways as select id, claims_from from push.gateways;
      """)
    try await body()
    try await backend.script(
      """
      select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and application_name like 'push-gateway%';
      """)
    try await backend.script(
      """
      set local session_replication_role = replica;
      truncate push.delivery, push.history, push.follow_ups;
      insert into push.delivery select * from saved_delivery;
      insert into push.history select * from saved_history;
      insert into push.follow_ups select * from saved_follow_ups;
      update push.gateways g set claims_from = s.claims_from from saved_gateways s where s.id = g.id;
      drop table saved_delivery, saved_history, saved_follow_ups, saved_gateways;
      """)
    for gateway in gateways {
      try await gateway.events.unavailable()
      try await gateway.events.available()
    }
  }
}
