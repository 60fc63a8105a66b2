// The SQL behind the API. Every statement names the app, so one app's key never reaches another's calls.

internal import Queue

enum APIStatements {
  static let enqueueCall = PostgresStatement(
    name: "api_enqueue_call",
    sql: """
      select call_id, outbox_id, deliveries, duplicate, skipped
      from push.enqueue_call($1::jsonb, $2::jsonb, $3, $4, coalesce($5, 'incoming_call'), $6)
      """)

  /// Enqueues many calls, given as a JSON array. If it returns one row in which `n` is null, nothing was done, and each
  /// half must be tried again.
  static let enqueueCalls = PostgresStatement(
    name: "api_enqueue_calls",
    sql: "select n, outbox_id, deliveries, skipped, call_id from push.enqueue_calls($1::jsonb)")

  static let compareCall = PostgresStatement(
    name: "api_compare_call",
    sql: """
      select jsonb_build_object(
        'state', c.state, 'payloadDiffers', c.payload_differs, 'recipientsDiffer', c.recipients_differ)
      from push.compare_call($1, $3::jsonb, $4::jsonb, $2) c
      """)
  static let addRecipients = PostgresStatement(
    name: "api_add_recipients",
    sql: "select deliveries, skipped, skipped_recipients from push.add_recipients($1, $3::jsonb, $2)")

  /// The recipients that a call skipped, and why.
  static let skippedRecipients = PostgresStatement(
    name: "api_skipped_recipients",
    sql: """
      select coalesce(jsonb_agg(jsonb_build_object(
        'userId', s.user_id, 'field', s.field, 'reason', s.reason, 'remedy', s.remedy)), '[]')
      from push.skipped_recipients($1) s
      """)

  static let answerCall = PostgresStatement(
    name: "api_answer_call", sql: "select push.answer_call($1, $3, $2, $4)")
  static let declineCall = PostgresStatement(
    name: "api_decline_call", sql: "select push.decline_call($1, $3, $2, coalesce($4, 'declined'), $5)")
  static let endCall = PostgresStatement(name: "api_end_call", sql: "select push.end_call($1, $3, $2)")
  static let reportRinging = PostgresStatement(
    name: "api_report_ringing", sql: "select push.report_ringing($1, $3, $2)")

  /// A page of a call: a limited number of devices after a given one, and the timeline of these devices.
  static let readCall = PostgresStatement(
    name: "api_read_call",
    sql: """
      select c.call - 'id' || jsonb_build_object('outboxId', c.call -> 'id', 'timeline', (
        select coalesce(jsonb_agg(jsonb_build_object(
          'at', to_char(t.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), 'ms', t.ms, 'event', t.event,
          'provider', t.provider, 'kind', t.kind, 'userId', t.user_id, 'attempt', t.attempt, 'status', t.status,
          'reason', t.reason, 'device', t.device, 'field', t.field)), '[]')
        from push.timeline($1, $2, $3 + 1, (c.call ->> 'next')::int) t))
      from push.call($1, $2, $3, $4) c(call)
      """)

  static let registerDevice = PostgresStatement(
    name: "api_register_device",
    sql: """
      select push.register_device($1, $2, $3, $4, coalesce($5, 'production'), $6, $7, $8),
        case when $9 is not null then push.enable_device($2, $3, $4, $9::boolean) end
      """)
  static let dropDevice = PostgresStatement(name: "api_drop_device", sql: "select push.drop_device($1, $2, $3)")

  /// Which tokens are dead. A token that was set after that is revived.
  static let deadTokens = PostgresStatement(
    name: "api_dead_among", sql: "select push.dead_among($1, $2::text[], $3::text[], $4::timestamptz[])")
  static let compareRecipients = PostgresStatement(
    name: "api_compare_recipients",
    sql: "select others, array_to_string(absent, ' ') from push.compare_recipients($1, $2, $3::text[])")
  /// Several users of a call decline at once.
  static let declineUsers = PostgresStatement(
    name: "api_decline_users",
    sql: "select count(*) from unnest($3::text[]) u(user_id) where push.decline_call($1, u.user_id, $2)")

  static let findKey = PostgresStatement(
    name: "api_find_key",
    sql: """
      select id, app, array_to_string(scopes, ' '), hash, array_to_string(addresses, ' '), state
      from push.look_up_api_key($1)
      """)
  /// Same columns as `findKey`. The most recently used keys come first, up to a maximum number.
  static let goodKeys = PostgresStatement(
    name: "api_good_keys",
    sql: """
      select id, app, array_to_string(scopes, ' '), hash, array_to_string(addresses, ' '), state
      from push.good_api_keys($1)
      """)
  static let noteKeyUses = PostgresStatement(
    name: "api_note_key_uses", sql: "select push.note_api_key_uses($1, $2, $3)")
  /// In milliseconds; 0 if no invite waits.
  static let oldestRinging = PostgresStatement(
    name: "api_oldest_ringing",
    sql: "select coalesce((extract(epoch from push.oldest_ringing($1)) * 1000)::bigint, 0)")
}
