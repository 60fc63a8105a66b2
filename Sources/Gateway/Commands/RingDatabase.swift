// What `push-gateway ring` does in the database.

import Console
import Providers
import PushModel
import Queue
import Runtime

/// A call that `ring` enqueues.
struct RingCall {
  /// `payload.callId`.
  var id: String
  /// JSON, as the database has it.
  var payload: String
  var ringSeconds: Int
  /// Microseconds since 1970.
  var createdAtMicroseconds = SystemClock().wallMilliseconds() * 1000
}

/// One push of the call. The token is masked.
struct RingDelivery {
  let call: RingCall
  let outboxID: Int64
  let number: Int32
  let provider: ProviderKind
  let platform: DevicePlatform
  let environment: PushEnvironment
  let userID: String
  let locale: String?
  let device: String
}

/// How the pushes of a call ended. The raw values are exit codes.
enum RingEnding: Int32 {
  case delivered = 0
  case refused = 2
  case missed = 3
  case notTaken = 4

  var sentence: String {
    switch self {
    case .delivered: "delivered"
    case .refused: "the provider refused it; the timeline has its reason"
    case .missed:
      "it was tried, and no provider accepted it before the ring window ended; push-gateway status shows the lanes"
    case .notTaken:
      "nothing took it within the ring window; push-gateway status says why: a paused lane, or no gateway that serves it"
    }
  }
}

struct RingDatabase {
  let connection: PostgresConnection
  let app: String
  /// Nil if one phone is rung, by its token.
  let user: String?

  /// - Throws: `CommandFailure` if nothing could ring: no such app, no device of the user, or no gateway.
  func check(needsGateway: Bool) async throws {
    var parameters = PostgresParameters()
    parameters.append(app)
    parameters.append(user)
    let found = try await connection.query(Self.found, parameters)
    let apps = found.text(0, 0)
    guard found.bool(0, 1) else {
      throw CommandFailure(
        "there is no app \(app)" + (apps.isEmpty ? ": no gateway has served any yet" : "; gateways have served \(apps)")
      )
    }
    if let user, !found.bool(0, 2) {
      let literal = user.replacing("'", with: "''")
      throw CommandFailure(
        "app \(app) has no device of user \(user): register one, select push.register_device('\(literal)', '\(app)', 'fcm', 'TOKEN'), or name "
          + "the phone with --token")
    }
    if needsGateway, !found.bool(0, 3) {
      throw CommandFailure(
        "no gateway is alive on this database, so nothing was enqueued: start push-gateway serve. --dry-run shows the request without one"
      )
    }
  }

  func newCallID() async throws(PostgresError) -> String { try await connection.query(Self.newCallID).text(0, 0) }

  struct Enqueued {
    let id: Int64
    let ringSeconds: Int
    let deliveries: [RingDelivery]
  }

  /// Enqueues the call in a transaction, which is rolled back unless it is kept.
  ///
  /// - Parameter look: called with the pushes before the transaction ends. If it throws, nothing was enqueued.
  /// - Throws: `CommandFailure` if no device would ring, with the reason for each; then nothing was enqueued. Or `PostgresError`.
  func enqueue(
    _ callID: String, payload: String, recipients: String, ringSeconds: Int?, isKept: Bool,
    look: ([RingDelivery]) async throws -> Void
  ) async throws -> Enqueued {
    try await connection.script("begin")
    var parameters = PostgresParameters()
    parameters.append(payload)
    parameters.append(recipients)
    parameters.append(app)
    parameters.append(ringSeconds.map(Int32.init))
    let made = try await connection.query(Self.enqueue, parameters)
    let id = made.int64(0, 0)
    var call = PostgresParameters()
    call.append(id)
    let rows = try await connection.query(Self.deliveries, call)
    guard rows.rowCount > 0 else {
      let skipped = try await connection.query(Self.skipped, call)
      let reasons = (0..<skipped.rowCount).map { skipped.text($0, 0) }.joined(separator: "; ")
      let whose = user.map { " for user \($0) of app \(app)" } ?? ""
      throw CommandFailure("nothing would ring\(whose), and nothing was enqueued: \(reasons)")
    }
    let deliveries = (0..<rows.rowCount).map { row in
      RingDelivery(
        call: RingCall(
          id: callID, payload: made.text(0, 1), ringSeconds: Int(rows.int64(row, 7)),
          createdAtMicroseconds: rows.int64(row, 6)),
        outboxID: id, number: Int32(rows.int64(row, 0)), provider: ProviderKind(rawValue: rows.text(row, 1)) ?? .fcm,
        platform: Self.platform(rows.text(row, 2)),
        environment: rows.text(row, 3) == "sandbox" ? .sandbox : .production,
        userID: rows.text(row, 8), locale: rows.isNull(row, 4) ? nil : rows.text(row, 4), device: rows.text(row, 5))
    }
    try await look(deliveries)
    try await connection.script(isKept ? "commit" : "rollback")
    return Enqueued(id: id, ringSeconds: deliveries[0].call.ringSeconds, deliveries: deliveries)
  }

  private static func platform(_ word: String) -> DevicePlatform {
    switch word {
    case "ios": .ios
    case "android": .android
    case "web": .web
    default: .unknown
    }
  }

  /// Waits until every invite of the call has ended, or its ring window has been over for some seconds.
  ///
  /// - Parameter show: called at each look, the last time when it has ended.
  func follow(_ call: Enqueued, _ show: () async throws -> Void) async throws -> RingEnding {
    var parameters = PostgresParameters()
    parameters.append(call.id)
    let clock = SystemClock()
    let last = clock.now() + .seconds(Int64(call.ringSeconds) + 5)
    var hadEnded = false
    while true {
      let look = try await connection.query(Self.progress, parameters)
      try await show()
      let isLate = clock.now() > last
      let hasEnded = look.int64(0, 0) == 0
      let isDelivered = look.int64(0, 1) > 0
      // A push to another channel follows one that was refused, perhaps in a later transaction: looks twice.
      if isLate || hasEnded && (isDelivered || hadEnded) {
        if isDelivered { return .delivered }
        if look.int64(0, 2) > 0 { return .refused }
        return look.int64(0, 3) > 0 ? .missed : .notTaken
      }
      hadEnded = hasEnded
      try await Task.sleep(for: .milliseconds(300))
    }
  }

  // MARK: - Statements

  /// $1: the app, $2: a user, or null.
  private static let found = PostgresStatement(
    name: "ring_found",
    sql: """
      select coalesce((select string_agg(distinct l.app, ', ') from push.lanes l), ''), exists (select from push.lanes l where l.app = $1),
        exists (select from push.registered_devices d where d.app = $1 and d.user_id = $2), exists (select from push.replicas r where r.alive)
      """)

  private static let newCallID = PostgresStatement(name: "ring_id", sql: "select push.new_call_id()")

  private static let enqueue = PostgresStatement(
    name: "ring_enqueue",
    sql: """
      select e.outbox_id, $1::text::jsonb::text
      from push.enqueue_call($1::text::jsonb, $2::text::jsonb, app => $3, ring_seconds => $4) e
      """)

  private static let deliveries = PostgresStatement(
    name: "ring_deliveries",
    sql: """
      select d.n::bigint, d.provider, coalesce(d.platform, ''), d.environment, d.locale, d.device,
        (extract(epoch from d.created_at) * 1000000)::bigint, extract(epoch from d.deadline_at - d.created_at)::bigint, d.user_id
      from push.deliveries d where d.outbox_id = $1 and d.kind = 'invite' order by d.n
      """)

  private static let skipped = PostgresStatement(
    name: "ring_skipped", sql: "select s.reason || ': ' || s.remedy from push.skipped_recipients($1) s")

  /// Invites that are owed, delivered in time, refused, and tried.
  private static let progress = PostgresStatement(
    name: "ring_progress",
    sql: """
      select (select count(*) from push.deliveries d where d.outbox_id = $1 and d.kind = 'invite'),
        count(*) filter (where h.outcome = 'delivered'), count(*) filter (where h.outcome = 'dead'),
        count(*) filter (where h.attempts > 0) + (select count(*) from push.deliveries d where d.outbox_id = $1 and d.attempt > 0)
      from push.delivery_history h
      where h.outbox_id = $1 and h.kind = 'invite' and h.finished_at > now() - interval '1 hour'
      """)
}
