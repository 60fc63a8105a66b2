// The SQL behind the dashboard. The views and functions mask every token.

internal import Queue

enum DashboardStatements {
  /// The current minute, the start of each minute, and the outcomes of its invites. The row without a start is the sum
  /// of all minutes.
  static let minutes = PostgresStatement(
    name: "dashboard_minutes",
    sql: """
      select push.epoch_ms(date_trunc('minute', now())), coalesce(push.epoch_ms(m.minute), 0),
        jsonb_build_object('at', push.epoch_ms(m.minute), 'invites', m.invites, 'delivered', m.delivered,
          'late', m.late, 'expired', m.expired, 'dead', m.dead, 'p50', round(m.p50_ms::numeric, 1),
          'p99', round(m.p99_ms::numeric, 1))
      from push.minutes(date_trunc('minute', now()) - $1 * interval '1 minute') m
      """)

  static let overview = PostgresStatement(name: "dashboard_overview", sql: "select push.overview(200)")
  static let calls = PostgresStatement(name: "dashboard_calls", sql: "select push.calls($1)")

  /// Maximum number of calls in a list.
  static let callsMax = 100

  /// The newest calls: $1: an app, $2: a user, $3: an outcome, each empty for all; $4: not older than this, in minutes.
  static let callList = PostgresStatement(
    name: "dashboard_call_list",
    text: """
      select coalesce(jsonb_agg(to_jsonb(x)), '[]') from (
        select c.call_id as "callId", c.app, c.users, c.outcome, c.end_reason as "endReason",
          push.epoch_ms(c.created_at) as "createdAt", c.pushes
        from push.calls c
        where c.kind in ('incoming_call', 'video_call') and c.created_at > now() - $4 * interval '1 minute' and ($1 = '' or c.app = $1)
          and ($3 = '' or c.outcome = $3) and ($2 = '' or $2 = any (c.users))
        order by c.created_at desc limit \(callsMax)) x
      """)

  /// Tries a call again or ends it, for an operator.
  static let operateCall = PostgresStatement(
    name: "dashboard_operate_call", sql: "select push.operate_call($1, $2, $3, $4, $5)")

  /// Pauses or resumes a lane for an operator.
  static let operateLane = PostgresStatement(
    name: "dashboard_operate_lane", sql: "select message from push.operate_lane($1, $2, $3, $4, $5)")
}
