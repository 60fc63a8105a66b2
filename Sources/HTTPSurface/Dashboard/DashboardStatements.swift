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

  static let overview = PostgresStatement(name: "dashboard_overview", sql: "select push.overview()")
  static let calls = PostgresStatement(name: "dashboard_calls", sql: "select push.calls($1)")

  /// Pauses or resumes a lane for an operator.
  static let operateLane = PostgresStatement(
    name: "dashboard_operate_lane", sql: "select message from push.operate_lane($1, $2, $3, $4, $5)")
}
