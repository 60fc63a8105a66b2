// Every statement the gateway sends to the outbox. The logic is in the functions of migrations/; these are their calls.

enum OutboxStatements {
  /// Sessions that claim and settle: a crash of Postgres repeats at most the last half second of claims and loses nothing
  /// the backend committed, so they do not wait for the disk (docs/adr/0001).
  static let setUpWork = PostgresStatement(
    name: "set_up_work",
    sql: """
      select set_config('synchronous_commit', 'off', false), set_config('jit', 'off', false),
        set_config('statement_timeout', '5s', false), set_config('lock_timeout', '1s', false),
        set_config('idle_in_transaction_session_timeout', '5s', false)
      """)

  static let setUpControl = PostgresStatement(
    name: "set_up_control",
    sql: "select set_config('statement_timeout', '5s', false), set_config('lock_timeout', '1s', false)")

  static let listen = PostgresStatement(name: "listen", sql: "listen push_outbox")
  static let listenControl = PostgresStatement(name: "listen_control", sql: "listen push_control")

  static let registerGateway = PostgresStatement(
    name: "register_gateway", sql: "select push.register_gateway($1, $2)")
  static let heartbeat = PostgresStatement(name: "heartbeat", sql: "select push.heartbeat($1)")
  static let retireGateway = PostgresStatement(name: "retire_gateway", sql: "select push.retire_gateway($1)")
  static let registerApp = PostgresStatement(name: "register_app", sql: "select push.register_app($1, $2, $3)")
  static let registerLane = PostgresStatement(name: "register_lane", sql: "select push.register_lane($1, $2)")

  static let claim = PostgresStatement(
    name: "claim",
    sql: """
      select lane, outbox_id, n, lease, attempt, kind, environment, platform, created_at, deadline_at, remaining_us,
        user_id, token, locale, app_call_kind, call_id, end_reason, traceparent, payload
      from push.claim($1, $2, $3, $4, p_total => $5, p_background => $6, p_later_floor => $7, p_later_max => $8)
      """)

  /// How many index entries the session's last claim stepped over; sent right behind it.
  static let walked = PostgresStatement(
    name: "walked", sql: "select coalesce(nullif(current_setting('push.walked', true), ''), '0')::int8")

  /// The columns of `claim`, in order.
  enum ClaimColumn: Int {
    case lane, outboxID, number, lease, attempt, kind, environment, platform, createdAt, deadlineAt, remaining
    case userID, token, locale, callKind, callID, endReason, traceparent, payload
  }

  static let settle = PostgresStatement(
    name: "settle", sql: "select push.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)")
  static let settled = PostgresStatement(name: "settled", sql: "select outbox_id, n from push.settled($1, $2, $3)")
  static let park = PostgresStatement(name: "park", sql: "select push.park($1, $2, $3, $4, $5, $6, $7, $8)")
  static let invalidate = PostgresStatement(
    name: "invalidate", sql: "select push.invalidate_tokens($1, $2, $3, $4)")
  static let holdInvalidation = PostgresStatement(
    name: "hold_invalidation", sql: "select push.hold_invalidation($1, $2 * interval '1 ms', $3)")
  static let correctEnvironment = PostgresStatement(
    name: "correct_environment", sql: "select push.correct_environment($1, $2, $3)")
  static let reportLanes = PostgresStatement(
    name: "report_lanes", sql: "select push.report_lanes($1, $2, $3, $4, $5, $6, $7, $8)")
  static let release = PostgresStatement(name: "release", sql: "select push.release($1, $2, $3, $4)")

  static let currentToken = PostgresStatement(
    name: "current_token", sql: "select token, minted_at, expires_at from push.current_provider_token($1, $2)")
  static let offerToken = PostgresStatement(
    name: "offer_token",
    sql: """
      select token, minted_at, expires_at
      from push.offer_provider_token($1, $2, $3, ($4::timestamptz[])[1], ($4::timestamptz[])[2], $5 * interval '1 ms')
      """)

  static let claimReceipts = PostgresStatement(
    name: "claim_receipts", sql: "select ticket, token, sent_at from push.claim_receipts($1, $2, $3)")
  static let settleReceipts = PostgresStatement(
    name: "settle_receipts", sql: "select push.settle_receipts($1, $2, $3)")
  static let postponeReceipts = PostgresStatement(
    name: "postpone_receipts", sql: "select push.postpone_receipts($1, $2, $3)")
  static let giveUpReceipts = PostgresStatement(name: "give_up_receipts", sql: "select push.give_up_receipts($1)")

  // Maintenance, by whichever replica holds the lock of the same session.
  static let tryLead = PostgresStatement(name: "try_lead", sql: "select pg_try_advisory_lock(7781, 2)")
  static let promote = PostgresStatement(name: "promote", sql: "select push.promote()")
  /// What expired lately: cheap, also while vacuum is held back. `expireAll` finds the rest.
  static let expire = PostgresStatement(
    name: "expire", sql: "select push.expire(p_since => now() - interval '1 minute')")
  static let expireAll = PostgresStatement(name: "expire_all", sql: "select push.expire()")
  static let escalate = PostgresStatement(name: "escalate", sql: "select push.escalate()")
  static let prune = PostgresStatement(name: "prune", sql: "select push.prune()")
  static let miss = PostgresStatement(name: "miss", sql: "select push.miss()")
  static let reap = PostgresStatement(name: "reap", sql: "select push.reap()")
  static let takeTally = PostgresStatement(
    name: "take_tally",
    sql: "select what, app, provider, kind, outcome, reason, untried, count, seconds from push.take_tally()")
  static let ensurePartitions = PostgresStatement(name: "ensure_partitions", sql: "select push.ensure_partitions()")
  static let dropPartitions = PostgresStatement(name: "drop_partitions", sql: "select push.drop_partitions()")
}
