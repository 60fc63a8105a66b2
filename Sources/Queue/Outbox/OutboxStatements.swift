// Every statement the gateway sends to the outbox. The logic is in the functions of migrations/; these are their calls.

enum OutboxStatements {
  // MARK: - Sessions
  //
  // Settlements wait for the server's own disk, never for a standby; other commits do not wait (docs/adr/0057). Functions whose
  // effect must not be lost set `synchronous_commit` themselves. The wait for a lock is shorter than `deadlock_timeout` (1 s), so of
  // two sessions that wait for each other one gives up before Postgres looks for a deadlock. The functions rely on read committed,
  // whatever the database or the role sets: each of their statements sees what was committed before it. Without `array_nulls`, lists
  // with a null could not be read. What a gateway writes rings no bell (push.ring_doorbell).

  /// The gateway waits for the answer to a claim for a shorter time, so claims have a shorter timeout, too. Otherwise a claim would
  /// run on after the gateway gave it up.
  static let setUpClaims = PostgresStatement(
    name: "set_up_claims",
    sql: """
      select set_config('synchronous_commit', 'off', false), set_config('jit', 'off', false),
        set_config('statement_timeout', '2500ms', false), set_config('lock_timeout', '700ms', false),
        set_config('idle_in_transaction_session_timeout', '5s', false), set_config('idle_session_timeout', '0', false),
        set_config('default_transaction_isolation', 'read committed', false), set_config('array_nulls', 'on', false),
        set_config('push.is_gateway', 'on', false)
      """)

  /// A settlement that was answered is never lost in a crash. So nobody has to remember it, and nothing is settled twice.
  static let setUpSettlements = PostgresStatement(
    name: "set_up_settlements",
    sql: """
      select set_config('synchronous_commit', 'local', false), set_config('jit', 'off', false),
        set_config('statement_timeout', '5s', false), set_config('lock_timeout', '700ms', false),
        set_config('idle_in_transaction_session_timeout', '5s', false), set_config('idle_session_timeout', '0', false),
        set_config('default_transaction_isolation', 'read committed', false), set_config('array_nulls', 'on', false),
        set_config('push.is_gateway', 'on', false)
      """)

  static let setUpWork = PostgresStatement(
    name: "set_up_work",
    sql: """
      select set_config('synchronous_commit', 'off', false), set_config('jit', 'off', false),
        set_config('statement_timeout', '5s', false), set_config('lock_timeout', '700ms', false),
        set_config('idle_in_transaction_session_timeout', '5s', false), set_config('idle_session_timeout', '0', false),
        set_config('default_transaction_isolation', 'read committed', false), set_config('array_nulls', 'on', false),
        set_config('push.is_gateway', 'on', false)
      """)

  /// Makes the server notice within seconds that we are gone, so that it frees what the session holds. No effect on a Unix socket.
  static let setUpKeepalives = PostgresStatement(
    name: "set_up_keepalives",
    sql: """
      select set_config('tcp_keepalives_idle', '5', false), set_config('tcp_keepalives_interval', '2', false),
        set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '10s', false)
      """)

  /// The same while a statement runs. Postgres 14 and later, not on every system.
  static let setUpConnectionCheck = PostgresStatement(
    name: "set_up_connection_check",
    sql: """
      select set_config(name, '1s', false) from pg_catalog.pg_settings where name = 'client_connection_check_interval'
      """)

  /// Identity of the session: a pid alone may be used again.
  static let session = PostgresStatement(
    name: "session",
    sql: """
      select format('%s %s', s.pid, extract(epoch from s.backend_start))
      from pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) s
      """)

  /// Ends the session of a connection that this one replaces, and with it the transaction and locks of half a statement. An idle
  /// session holds nothing, and is not ended: a pooler in session mode may have given it to another client.
  static let endSession = PostgresStatement(
    name: "end_session",
    sql: """
      select pg_catalog.pg_terminate_backend(a.pid)
      from pg_catalog.pg_stat_activity a
      where format('%s %s', a.pid, extract(epoch from a.backend_start)) = $1 and a.state <> 'idle'
        and a.pid <> pg_catalog.pg_backend_pid()
        and a.usename = session_user and a.application_name = current_setting('application_name')
      """)

  /// What a gateway must be allowed to do, and this role may not: the first three.
  static let missingRights = PostgresStatement(
    name: "missing_rights",
    sql: """
      select string_agg(r."right", ', ') from (
        select x."right" from push.missing_rights x where x.role = current_user order by 1 limit 3) r
      """)

  static let probe = PostgresStatement(name: "probe", sql: "select 1")
  static let listen = PostgresStatement(name: "listen", sql: "listen push_outbox")
  static let listenControl = PostgresStatement(name: "listen_control", sql: "listen push_control")

  // MARK: - Identity

  static let registerGateway = PostgresStatement(
    name: "register_gateway", sql: "select push.register_gateway($1, $2)")
  static let beat = PostgresStatement(name: "beat", sql: "select alive from push.beat($1, $2)")
  static let retireGateway = PostgresStatement(name: "retire_gateway", sql: "select push.retire_gateway($1)")
  static let registerApp = PostgresStatement(
    name: "register_app",
    sql: """
      with durable as materialized (select set_config('synchronous_commit', 'on', true))
      select push.register_app($1, $2, $3, $4, $5::text::text[], $6, $7::text::boolean, $8::text::int[], $9, $10::text::text[],
        $11::text::boolean)
      from durable
      """)
  static let registerLane = PostgresStatement(
    name: "register_lane",
    sql: """
      with durable as materialized (select set_config('synchronous_commit', 'on', true))
      select push.register_lane($1, $2, $3) from durable
      """)

  // MARK: - Claims

  static let claim = PostgresStatement(
    name: "claim",
    sql: """
      select place, lane, outbox_id, n, attempt, kind, crashes, environment, platform, created_at, deadline_at,
        remaining_us, paired, user_id, token, locale, data, ended, app_call_kind, call_id, end_reason, traceparent, declined,
        payload
      from push.claim($1, $2, $3, $4, $5, p_total => $6, p_background => $7, p_later_floor => $8, p_later_max => $9,
        p_last => $10)
      """)

  /// After a claim that failed because of a row.
  static let putAside = PostgresStatement(name: "put_aside", sql: "select push.put_aside($1, $2)")

  /// The columns of `claim`, in order. Texts that are read together are neighbours.
  enum ClaimColumn: Int {
    case place, lane, outboxID, pushNumber, attempt, kind, crashes, environment, platform, createdAt, deadlineAt
    case remaining, isPaired, userID, token, locale, data, isOver, callKind, callID, endReason, traceparent, decliners,
      payload
  }

  /// Number of index entries that the session's last claim read. Sent right behind the claim.
  static let entriesScanned = PostgresStatement(
    name: "entries_scanned",
    sql: "select coalesce(nullif(current_setting('push.entries_scanned', true), ''), '0')::int8")

  static let forget = PostgresStatement(
    name: "forget", sql: "select given, next_page from push.forget_in($1, $2, $3)")
  /// One row for each claimed delivery; one row of nulls if there is none.
  static let claimed = PostgresStatement(
    name: "claimed",
    sql: """
      select p.next_page, c.outbox_id, c.n, c.lease, c.created_at
      from push.claimed_by($1, $2) p
      left join lateral unnest(p.outbox_id, p.n, p.lease, p.created_at) c (outbox_id, n, lease, created_at) on true
      """)
  static let disown = PostgresStatement(name: "disown", sql: "select push.disown($1, $2, $3, $4)")

  // MARK: - Settling

  static let settle = PostgresStatement(
    name: "settle", sql: "select push.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)")
  static let settled = PostgresStatement(
    name: "settled", sql: "select outbox_id, n, created_at from push.settled($1, $2, $3, $4)")
  static let park = PostgresStatement(name: "park", sql: "select push.park($1, $2, $3, $4, $5, $6, $7, $8, $9)")
  static let endedFor = PostgresStatement(name: "ended_for", sql: "select outbox_id, user_id from push.ended_for($1)")
  static let followUp = PostgresStatement(name: "follow_up", sql: "select push.follow_up($1, $2)")
  static let sync = PostgresStatement(name: "sync", sql: "select push.sync($1)")

  // MARK: - Tokens and lanes

  // A backend may have registered some of the tokens, and an operator may have paused the lane, in a transaction that stays open.
  // Retries and visible pushes share the connection, so these do not wait for it: what is locked is tried again.

  static let invalidate = PostgresStatement(
    name: "invalidate",
    sql: """
      with patience as materialized (select set_config('lock_timeout', '10ms', true))
      select push.invalidate_tokens($1, $2, $3, $4) from patience
      """)
  static let holdInvalidation = PostgresStatement(
    name: "hold_invalidation", sql: "select push.hold_invalidation($1, $2 * interval '1 ms', $3)")
  static let correctEnvironment = PostgresStatement(
    name: "correct_environment",
    sql: """
      with patience as materialized (select set_config('lock_timeout', '10ms', true))
      select push.correct_environment($1, $2, $3) from patience
      """)
  static let reportLanes = PostgresStatement(
    name: "report_lanes", sql: "select push.report_lanes($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)")

  static let currentToken = PostgresStatement(
    name: "current_token", sql: "select token, minted_at, expires_at from push.current_provider_token($1, $2)")
  static let offerToken = PostgresStatement(
    name: "offer_token",
    sql: """
      select token, minted_at, expires_at
      from push.offer_provider_token($1, $2, $3, ($4::timestamptz[])[1], ($4::timestamptz[])[2], $5 * interval '1 ms')
      """)

  // MARK: - Receipts

  static let claimReceipts = PostgresStatement(
    name: "claim_receipts", sql: "select ticket, token, sent_at from push.claim_receipts($1, $2, $3)")
  static let settleReceipts = PostgresStatement(
    name: "settle_receipts", sql: "select push.settle_receipts($1, $2, $3)")
  static let postponeReceipts = PostgresStatement(
    name: "postpone_receipts", sql: "select push.postpone_receipts($1, $2, $3)")
  static let giveUpReceipts = PostgresStatement(name: "give_up_receipts", sql: "select push.give_up_receipts($1)")

  // MARK: - Maintenance

  static let claimJob = PostgresStatement(name: "take_job", sql: "select push.take_job($1, $2::text::boolean)")
  static let runJob = PostgresStatement(name: "run_job", sql: "select push.run_job($1)")
  static let takeTally = PostgresStatement(
    name: "take_tally",
    sql: "select what, app, provider, kind, outcome, reason, untried, count, seconds from push.take_tally()")
}
