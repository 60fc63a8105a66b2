// The views that the commands show.

extension OperationsView {
  static let summary = OperationsView(
    name: "summary", source: "push.summary order by app, provider, kind, state",
    columns: [
      .init("app", "APP"), .init("provider", "PROVIDER"), .init("kind", "KIND"), .init("state", "STATE"),
      .init("count", "COUNT", .number), .init("oldest_age", "OLDEST", .duration),
      .init("least_left", "LEAST LEFT", .duration),
    ])

  static let lanes = OperationsView(
    name: "lanes", source: "push.lanes order by app, channel",
    columns: [
      .init("id", nil, .number), .init("app", "APP"), .init("provider", nil), .init("channel", "PROVIDER"),
      .init("paused", "PAUSED", .flag),
      .init("circuit", "CIRCUIT"), .init("in_flight", "IN FLIGHT", .number, isSpare: true),
      .init("window_size", "WINDOW", .number, isSpare: true),
      .init("capacity", nil, .number), .init("rate_per_second", "RATE/S", .number, isSpare: true),
      .init("ready", "READY", .number),
      .init("waiting", "WAITING", .number, isSpare: true), .init("claimed", "CLAIMED", .number, isSpare: true),
      .init("oldest_age", "OLDEST", .duration), .init("throttled_until", "THROTTLED UNTIL", .time),
      .init("invalidation_held_at", "INVALIDATION HELD", .time), .init("invalidation_note", nil),
      .init("refusal", nil), .init("refused", "REFUSED", isSpare: true),
      .init("note", "NOTE"), .init("updated_at", nil, .time),
    ])

  /// Apps that have a quota: what they may enqueue in a minute, and what they have.
  static let quotas = OperationsView(
    name: "quotas", source: "push.quotas order by app, what",
    columns: [
      .init("app", "APP"), .init("what", "WHAT"), .init("limit", "A MINUTE", .number), .init("used", "USED", .number),
      .init("refusals", "REFUSALS", .number), .init("refused_at", "REFUSED", .time, isSpare: true),
      .init("configured", "CONFIGURED", .number, isSpare: true), .init("set_to", "SET TO", .number),
      .init("set_at", nil, .time), .init("set_by", "SET BY", isSpare: true), .init("note", "NOTE", isSpare: true),
    ])

  /// The replicas that are alive, hold deliveries, or ended within the hour.
  static let replicas = OperationsView(
    name: "replicas",
    source: "push.replicas where alive or claimed > 0 or ended_at > now() - interval '1 hour' order by id",
    columns: [
      .init("id", "ID", .number), .init("name", "NAME"), .init("version", "VERSION", isSpare: true),
      .init("alive", nil, .flag),
      .init("started_at", "STARTED", .time, isSpare: true), .init("heartbeat_at", nil, .time),
      .init("silence", "SILENT FOR", .duration),
      .init("claimed", "CLAIMED", .number, isSpare: true), .init("ended_at", "ENDED", .time),
      .init("ended_reason", "REASON"),
    ])

  /// The items of push.health that are not ok, the worst first.
  static let troubles = OperationsView(
    name: "troubles", source: "push.health where state <> 'ok' order by state <> 'bad', item",
    columns: [
      .init("state", "STATE"), .init("item", "ITEM"), .init("value", "VALUE"), .init("hint", "HINT", isSpare: true),
    ])

  /// Overdue deliveries, equal ones as one row, up to a limit of rows: invites first, then by the time left.
  static func stuckGroups(max: Int) -> OperationsView {
    OperationsView(
      name: "stuck_groups_\(max)",
      source: """
        (select count(*), app, provider, kind, why, min("left") as "left", max(age) as age, last_reason,
          (array_agg(call_id order by "left"))[1] as call_id
        from push.stuck group by app, provider, kind, why, last_reason) s
        order by kind <> 'invite', "left" limit \(max)
        """,
      columns: [
        .init("count", "COUNT", .number), .init("app", "APP"), .init("provider", "PROVIDER"), .init("kind", "KIND"),
        .init("why", "WHY"), .init("left", "LEAST LEFT", .duration), .init("age", "OLDEST", .duration),
        .init("last_reason", "REASON", isSpare: true), .init("call_id", "CALL", .id),
      ])
  }

  /// Overdue deliveries, up to a limit: invites first, then by the time left.
  static func stuck(max: Int) -> OperationsView {
    OperationsView(
      name: "stuck_\(max)", source: "push.stuck order by kind <> 'invite', \"left\", outbox_id, n limit \(max)",
      columns: [
        .init("outbox_id", nil, .number), .init("n", nil, .number), .init("app", "APP"), .init("provider", "PROVIDER"),
        .init("kind", "KIND", isSpare: true), .init("call_id", "CALL", .id), .init("user_id", "USER", isSpare: true),
        .init("state", nil),
        .init("why", "WHY"), .init("age", "AGE", .duration), .init("left", "LEFT", .duration),
        .init("last_reason", "REASON", isSpare: true), .init("gateway", "REPLICA", .number, isSpare: true),
      ])
  }

  /// $1: the call's id, $2: its app, or null.
  static let timeline = OperationsView(
    name: "timeline", source: "push.timeline($1, $2)",
    columns: [
      .init("at", "AT", .clock), .init("ms", "MS", .number), .init("event", "EVENT"), .init("provider", "PROVIDER"),
      .init("kind", "KIND", isSpare: true), .init("user_id", "USER", isSpare: true),
      .init("attempt", "ATTEMPT", .number),
      .init("status", "STATUS", .number), .init("reason", "REASON"), .init("device", "DEVICE"), .init("trace_id", nil),
      .init("field", "FIELD", isSpare: true),
    ])

  /// Calls that fulfil a condition, the newest first.
  static func calls(where condition: String, limit: String) -> OperationsView {
    OperationsView(
      name: "calls",
      source: "push.calls where \(condition) order by created_at desc limit \(limit)",
      columns: [
        .init("id", nil, .number), .init("created_at", "AT", .time), .init("app", "APP"), .init("call_id", "CALL", .id),
        .init("kind", "KIND", isSpare: true), .init("outcome", "OUTCOME"),
        .init("end_reason", "END REASON", isSpare: true),
        .init("ended_at", nil, .time), .init("answered_by", "ANSWERED BY", isSpare: true),
        .init("users", "USERS", .list, isSpare: true), .init("pushes", "PUSHES", .list),
      ])
  }

  /// $1: an app, or null for all.
  static let keys = OperationsView(
    name: "keys", source: "push.keys where $1::text is null or app = $1 order by id",
    columns: [
      .init("id", "ID", .number), .init("app", "APP"), .init("name", "NAME"), .init("scopes", "SCOPES", .list),
      .init("created_at", "CREATED", .time), .init("expires_at", "EXPIRES", .time),
      .init("revoked_at", "REVOKED", .time), .init("addresses", "ADDRESSES", .list, isSpare: true),
      .init("last_used_at", "LAST USED", .time), .init("last_used_from", "FROM", isSpare: true),
    ])
}
