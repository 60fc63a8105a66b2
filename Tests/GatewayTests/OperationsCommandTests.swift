// The operators' commands as people and scripts run them: the built program with a real database.

import Foundation
import Queue
import TestSupport
import Testing

@Suite struct OperationsCommandTests {
  private func run(_ database: TestDatabase, _ arguments: String...) async throws -> CommandRun {
    let run = try await OperationsFixture.run(database.url, arguments)
    for secret in [OperationsFixture.fcmToken, OperationsFixture.voipToken] {
      #expect(!run.output.contains(secret) && !run.errors.contains(secret))
    }
    return run
  }

  // MARK: Status and lanes

  @Test func `status shows pending deliveries, lanes, replicas and problems`() async throws {
    try await OperationsFixture.with { database in
      // A delivery that has been ready for too long.
      try await database.execute(
        "update push.delivery set created_at = created_at - interval '7 s', due_at = due_at - interval '7 s'")
      // A replica that is alive but does none of its jobs.
      try await database.execute(
        """
        update push.gateways set started_at = now() - interval '1 hour';
        update push.job set due_at = now() - interval '1 hour';
        """)
      let text = try await run(database, "status")
      #expect(text.status == 0 && text.errors.isEmpty)
      for title in ["OWED\n", "LANES\n", "REPLICAS\n", "HEALTH\n", "STUCK\n"] { #expect(text.output.contains(title)) }
      #expect(text.output.contains("ready, and not claimed"))
      #expect(text.output.contains("pod-1"))
      #expect(text.output.contains("housekeeping"))
      #expect(!text.output.contains("\u{1B}"), "no colors where nobody looks")

      let json = try await run(database, "status", "--json").object()
      #expect(Set(json.keys) == ["at", "summary", "lanes", "replicas", "quotas", "health", "stuck_count", "stuck"])
      let summary = try #require(json["summary"] as? [[String: Any]])
      #expect(Set(summary[0].keys) == ["app", "provider", "kind", "state", "count", "oldest_age", "least_left"])
      #expect(try #require(summary[0]["oldest_age"] as? Double) >= 7)
      // Deliveries of the lane with an open circuit are not stuck.
      #expect(json["stuck_count"] as? Int == 3)
      #expect(
        (json["stuck"] as? [[String: Any]])?.compactMap { $0["call_id"] as? String }.sorted() == [
          "call-1", "shared", "shared",
        ])
      #expect((json["health"] as? [[String: Any]])?.contains { $0["state"] as? String == "ok" } == true)
    }
  }

  @Test func `status shows the quotas of the apps that have one`() async throws {
    try await OperationsFixture.with { database in
      #expect(try await run(database, "status").output.contains("QUOTAS: none\n"))
      _ = try await database.value("select message from push.set_quota('condo', 250, note => 'since tonight')")
      let lines = try await run(database, "status").output.split(separator: "\n")
      let title = try #require(lines.firstIndex(of: "QUOTAS"))
      #expect(lines[title + 1].hasPrefix("  APP    WHAT   A MINUTE  USED  REFUSALS"))
      #expect(lines[title + 2].hasPrefix("  condo  calls       250     0         0"))
      #expect(lines[title + 2].contains("since tonight"))
      let json = try await run(database, "status", "--json").object()
      let quotas = try #require(json["quotas"] as? [[String: Any]])
      #expect(quotas.count == 1 && quotas[0]["limit"] as? Int == 250 && quotas[0]["configured"] is NSNull)
    }
  }

  @Test func `status of an idle database consists of words, not of empty tables`() async throws {
    try await TestDatabase.with { database in
      let text = try await run(database, "status").output
      #expect(text.contains("OWED: nothing\n"))
      #expect(text.contains("LANES: none yet; push-gateway serve registers them\n"))
      #expect(text.contains("STUCK: nothing\n"))
      let json = try await run(database, "status", "--json").object()
      #expect((json["lanes"] as? [Any])?.isEmpty == true)
    }
  }

  @Test func `equal stuck deliveries are one row with their count`() async throws {
    try await OperationsFixture.with { database in
      try await database.execute(
        """
        select push.enqueue_call(jsonb_build_object('callId', 'many-' || i, 'from', 'd'),
          '[{"userId": "u", "fcmToken": "\(OperationsFixture.fcmToken)"}]', 'porteiro') from generate_series(1, 150) i;
        update push.delivery set created_at = created_at - interval '7 s', due_at = due_at - interval '7 s';
        """)
      let lines = try await run(database, "status").output.split(separator: "\n")
      let title = try #require(lines.firstIndex(of: "STUCK"))
      #expect(lines[title + 1].hasPrefix("  COUNT  APP       PROVIDER  KIND    WHY                     LEAST LEFT"))
      let row = "    152  porteiro  fcm       invite  ready, and not claimed"
      #expect(lines[(title + 2)...].contains { $0.hasPrefix(row) })
      let json = try await run(database, "status", "--json").object()
      #expect(json["stuck_count"] as? Int == 153)
      #expect((json["stuck"] as? [Any])?.count == 100)
    }
  }

  @Test func `stuck missed calls never hide an invite, and more rows than are listed are counted`() async throws {
    try await OperationsFixture.with { database in
      try await database.execute(
        """
        update push.delivery set created_at = created_at - interval '7 s', due_at = due_at - interval '7 s';
        insert into push.delivery (outbox_id, n, kind, state, deadline_at, created_at, due_at, lane, ready_lane, user_id,
          token, environment, platform, last_reason)
        select d.outbox_id, 100 + i, 2, 0, now() + interval '4 hours', now() - interval '1 hour',
          now() - interval '1 hour', d.lane, d.lane, 'u' || i, 'missed-call-token-' || i, 0, 2, 'Reason' || i % 12
        from (select * from push.delivery where lane = (select id from push.lane where app = 'condo') limit 1) d,
          generate_series(1, 24) i;
        """)
      let lines = try await run(database, "status").output.split(separator: "\n")
      let title = try #require(lines.firstIndex(of: "STUCK"))
      let kinds = lines[(title + 2)...].prefix(10).map { $0.contains("  invite  ") ? "invite" : "missed_call" }
      #expect(kinds.prefix(2) == ["invite", "invite"] && kinds.dropFirst(2).allSatisfy { $0 == "missed_call" })
      #expect(lines.last == "  and 8 more")
      let json = try await run(database, "status", "--json").object()
      let stuck = try #require(json["stuck"] as? [[String: Any]])
      #expect(stuck.prefix(3).allSatisfy { $0["kind"] as? String == "invite" } && stuck.count == 27)
    }
  }

  @Test func `lanes are shown with their circuit, and all columns in JSON`() async throws {
    try await OperationsFixture.with { database in
      let lines = try await run(database, "lanes").output.split(separator: "\n")
      #expect(lines.count == 4)
      #expect(lines[0].hasPrefix("APP       PROVIDER  CIRCUIT  IN FLIGHT  WINDOW  RATE/S  READY"))
      #expect(lines[2].hasPrefix("porteiro  apns      open            12      40     120      1"))
      let lanes = try await run(database, "lanes", "--json").array()
      let columns = try await database.value(
        "select string_agg(attname, ',' order by attname) from pg_attribute where attrelid = 'push.lanes'::regclass and attnum > 0"
      )
      #expect(lanes[0].keys.sorted().joined(separator: ",") == columns)
      #expect(lanes[1]["circuit"] as? String == "open" && lanes[1]["window_size"] as? Int == 40)
      #expect(lanes[0]["circuit"] is NSNull && lanes[0]["paused"] as? Bool == false)
    }
  }

  // MARK: Lanes

  @Test func `a lane is paused and resumed, each any number of times, and the audit records it`() async throws {
    try await OperationsFixture.with { database in
      let paused = try await run(database, "pause", "porteiro", "fcm", "--note", "key change")
      #expect(
        paused.output
          == "porteiro/fcm is paused: its deliveries wait, and expire at their deadlines. Note: key change\n")
      #expect(
        try await database.value("select paused || note from push.lanes where app = 'porteiro' and provider = 'fcm'")
          == "truekey change")
      #expect(try await run(database, "pause", "porteiro", "fcm", "--json").object()["changed"] as? Bool == false)
      #expect(try await run(database, "lanes").output.contains("PAUSED"))
      #expect(try await run(database, "resume", "porteiro", "fcm", "--json").object()["changed"] as? Bool == true)
      #expect(try await run(database, "resume", "porteiro", "fcm").output.contains("nothing to do"))
      #expect(
        try await database.value("select string_agg(action, ',' order by id) from push.audit")
          == "pause_lane,pause_lane,resume_lane,resume_lane")
    }
  }

  @Test func `a held invalidation is ended, with or without the tokens`() async throws {
    try await OperationsFixture.with { database in
      let hold = "select push.hold_invalidation(id, '5 minutes', 'many at once') from push.lane where app = 'condo';"
      let invalidate =
        "select push.invalidate_tokens(array[id], array['dead-token-of-a-phone'], array[null::timestamptz], "
        + "array['UNREGISTERED']) from push.lane where app = 'condo';"
      try await database.execute(hold + invalidate)
      let lived = try await run(database, "resume-invalidation", "condo", "fcm", "--json").object()
      #expect(
        lived["was_held"] as? Bool == true && lived["forgotten"] as? Int == 1 && lived["invalidated"] as? Int == 0)
      try await database.execute(hold + invalidate)
      #expect(
        try await run(database, "resume-invalidation", "condo", "fcm", "--apply").output.contains("1 were invalidated"))
      #expect(try await database.value("select count(*) from push.token_invalidations") == "1")
    }
  }

  // MARK: Calls

  @Test func `a timeline shows one call, chosen by app if several have its id`() async throws {
    try await OperationsFixture.with { database in
      let text = try await run(database, "timeline", "call-1").output
      #expect(text.hasPrefix("AT "))
      #expect(text.contains("enqueued") && text.contains("cQ7m…oken"))
      let events = try await run(database, "timeline", "call-1", "--json").array()
      #expect(events.map { $0["event"] as? String } == ["enqueued", "ready", "ready"])
      #expect(
        Set(events[0].keys)
          == [
            "at", "ms", "event", "provider", "kind", "user_id", "attempt", "status", "reason", "device", "trace_id",
            "field",
          ])
      #expect(try await run(database, "timeline", "shared", "--app", "condo", "--json").array().count == 2)

      let ambiguous = try await run(database, "timeline", "shared")
      #expect(ambiguous.status == 1 && ambiguous.output.isEmpty)
      #expect(
        ambiguous.errors == "Error: several apps have a call shared: name one with --app (condo, porteiro)\n")
      #expect(
        try await run(database, "timeline", "call-1", "--app", "condo").errors
          == "Error: there is no call call-1 in app condo, but in porteiro\n")
      let unknown = try await run(database, "timeline", "nope", "--json")
      #expect(unknown.status == 1 && unknown.errors.hasPrefix("Error: there is no call nope: "))
    }
  }

  @Test func `calls are found by user, app, outcome and the first characters of their id, the newest first`()
    async throws
  {
    try await OperationsFixture.with { database in
      func found(_ arguments: String...) async throws -> [String] {
        let run = try await OperationsFixture.run(database.url, ["calls", "--json"] + arguments)
        return try run.array().compactMap { $0["call_id"] as? String }
      }
      try await database.execute("select push.end_call('call-1', 'busy', 'porteiro')")
      #expect(try await found("--user", "ios") == ["call-1"])
      #expect(try await found("--user", "u", "--app", "condo") == ["shared"])
      #expect(try await found("--outcome", "ended") == ["call-1"])
      #expect(try await found("--id", "sha") == ["shared", "shared"])
      #expect(try await found("--id", "sha", "--limit", "1").count == 1)
      #expect(try await found("--user", "nobody").isEmpty)
      let ordered = try await database.value(
        "select string_agg(call_id, ',' order by created_at desc) from push.outbox")
      #expect(try await found("--since", "1h").joined(separator: ",") == ordered)

      let text = try await run(database, "calls", "--app", "porteiro", "--id", "call")
      #expect(text.output.contains("OUTCOME") && text.output.contains("busy") && text.output.contains("android"))
      #expect(try await run(database, "calls", "--user", "nobody").output.hasPrefix("no call was found"))
      let mistyped = try await run(database, "calls", "--app", "portero")
      #expect(mistyped.status == 1 && mistyped.output.isEmpty)
      #expect(
        mistyped.errors
          == "Error: there is no app portero; did you mean porteiro? (push-gateway lanes lists them)\n")
      let columns = try await database.value(
        "select string_agg(attname, ',' order by attname) from pg_attribute where attrelid = 'push.calls'::regclass and attnum > 0"
      )
      let calls = try await run(database, "calls", "--json").array()
      #expect(calls[0].keys.sorted().joined(separator: ",") == columns)
      try await database.execute(
        """
        set session_replication_role = replica;
        update push.outbox set created_at = created_at - interval '2 days' where call_id = 'call-1';
        set session_replication_role = origin;
        """)
      #expect(try await found("--user", "ios").isEmpty, "of the last day")
      #expect(try await found("--user", "ios", "--since", "3d") == ["call-1"])
      #expect(try await found("--id", "call-1") == ["call-1"], "an id is found whatever its time")
      for wrong in [["--since", "1 hour"], ["--since", "h"], ["--outcome", "lost"], ["--limit", "0"]] {
        #expect(try await OperationsFixture.run(database.url, ["calls"] + wrong).status == 64, "\(wrong)")
      }
    }
  }

  @Test func `a call whose invites have failed is requeued once`() async throws {
    try await OperationsFixture.with { database in
      // As a gateway settles a delivery.
      try await database.execute(
        """
        select push.settle(g.id, array[c.place], array[c.outbox_id], array[c.n], array[1], array[1], array[4]::smallint[],
          array[400]::smallint[], array['BadRequest'], array[null], array[c.call_id], array[null]::timestamptz[],
          array[null]::timestamptz[])
        from (select max(id) as id from push.gateways) g, push.lane l,
          push.claim(g.id, 1, array[l.id], array[1], array['-infinity'::timestamptz]) c
        where l.app = 'porteiro' and l.provider = 'fcm';
        """)
      #expect(try await database.value("select count(*) from push.delivery_history where outcome = 'dead'") == "1")
      #expect(try await run(database, "requeue", "call-1", "--json").object()["requeued"] as? Int == 1)
      #expect(try await run(database, "requeue", "call-1", "--app", "porteiro").output.contains("nothing to requeue"))
      #expect(try await run(database, "requeue", "shared").errors.contains("name one with --app"))
      #expect(try await run(database, "requeue", "nope").status == 1)
    }
  }

  @Test func `a call is voided, and nobody gets a missed call`() async throws {
    try await OperationsFixture.with { database in
      let voided = try await run(database, "void", "call-1", "--reason", "test call", "--json").object()
      #expect(voided["voided"] as? Int == 2)
      #expect(
        try await database.value("select state || ' ' || end_reason from push.outbox where call_id = 'call-1'")
          == "ended test call")
      #expect(
        try await run(database, "void", "call-1").output
          == "call call-1 had ended before (test call); nothing was done\n")
      #expect(try await database.value("select count(*) from push.delivery where kind = 2") == "0")
      #expect(try await run(database, "void", "call-1", "--reason", "").status == 64)
    }
  }

  // MARK: Keys

  @Test func `a new key is printed on standard output only, and is listed and revoked by its number`() async throws {
    try await OperationsFixture.with { database in
      let made = try await run(database, "api-key", "create", "porteiro", "call backend", "--scopes", "enqueue,read")
      func day(_ after: String) async throws -> String {
        try await database.value("select to_char((now() + interval '\(after)') at time zone 'UTC', 'YYYY-MM-DD')")
      }
      #expect(made.status == 0)
      let key = made.output.trimmingCharacters(in: .newlines)
      #expect(key.wholeMatch(of: /pgk_1_[0-9a-f]{64}/) != nil)
      #expect(
        made.errors
          == """
          key 1 gives access to app porteiro for enqueue, read until \(try await day("1 year")). It is shown only once; \
          push-gateway api-key revoke 1 revokes it

          """)
      #expect(try await database.value("select hash = sha256('\(key)'::bytea) from push.look_up_api_key(1)") == "true")

      let other = try await run(database, "api-key", "create", "portero", "b", "--expires", "30", "--json")
      #expect(Set(try other.object().keys) == ["id", "key", "expires"])
      #expect(other.errors.contains(" until \(try await day("30 days"))."))
      #expect(other.errors.contains("no gateway has served an app portero yet; did you mean porteiro?"))

      let list = try await run(database, "api-key", "list")
      #expect(list.output.contains("call backend") && !list.output.contains(key))
      let keys = try await run(database, "api-key", "list", "--json").array()
      #expect(keys.map { $0["scopes"] as? [String] } == [["enqueue", "read"], ["device", "enqueue", "read"]])
      #expect(keys.allSatisfy { $0["expires_at"] is String && $0["last_used_at"] is NSNull })
      #expect(try await run(database, "api-key", "list", "--app", "condo").output == "there are no keys\n")

      #expect(try await run(database, "api-key", "revoke", "1", "--json").object()["revoked"] as? Bool == true)
      #expect(try await run(database, "api-key", "revoke", "1").output.contains("was revoked already"))
      #expect(try await database.value("select state from push.look_up_api_key(1)") == "revoked")
      #expect(
        try await run(database, "api-key", "revoke", "77").errors
          == "Error: there is no API key 77 (push-gateway api-key list lists them)\n")
      let bound = try await run(
        database, "api-key", "create", "porteiro", "c", "--expires", "never", "--addresses", "10.1.2.3/8 2001:db8::1")
      #expect(bound.errors.contains(" from 10.0.0.0/8, 2001:db8::1, without expiry. "))
      try await database.execute("select push.note_api_key_uses('{3}', '{0}', '{10.9.8.7}')")
      let shown = try await run(database, "api-key", "list", "--json").array()[2]
      #expect(shown["addresses"] as? [String] == ["10.0.0.0/8", "2001:db8::1/128"])
      #expect(shown["expires_at"] is NSNull && shown["last_used_from"] as? String == "10.9.8.7")
      #expect(try await run(database, "api-key", "list").output.contains("LAST USED"))
      for (option, value, complaint) in [
        ("--addresses", "10.0.0.0/8,intranet", "intranet is not a network"), ("--addresses", ",", "1 to 64 networks"),
        ("--expires", "0", "from 1 to 36500 days, or never"), ("--expires", "soon", "or never"),
      ] {
        let refused = try await run(database, "api-key", "create", "porteiro", "b", option, value)
        #expect(refused.status == 64 && refused.errors.contains(complaint), "\(refused.errors)")
      }
      let wrong = try await run(database, "api-key", "create", "porteiro", "b", "--scopes", "enqueu")
      #expect(wrong.status == 64 && wrong.errors.contains("there is no scope enqueu; did you mean enqueue?"))
    }
  }

  @Test func `keys are listed in the order of their numbers`() async throws {
    try await OperationsFixture.with { database in
      try await database.execute(
        "select push.create_api_key('porteiro', 'backend', '{read}') from generate_series(1, 11)")
      let list = try await run(database, "api-key", "list").output.split(separator: "\n").dropFirst()
      #expect(list.compactMap { Int($0.prefix { $0 != " " }) ?? Int($0.split(separator: " ")[0]) } == Array(1...11))
    }
  }

  // MARK: People

  @Test func `a user is erased, and the user's id is neither printed nor recorded`() async throws {
    try await OperationsFixture.with { database in
      try await database.execute(
        "select push.register_device('android', 'porteiro', 'fcm', '\(OperationsFixture.fcmToken)')")
      // Calls are not masked while they ring.
      try await database.execute("select push.answer_call('call-1', 'android', 'porteiro')")
      try await database.followUp()
      let erased = try await run(database, "erase-user", "android", "--app", "porteiro")
      #expect(erased.status == 0, "\(erased.errors)")
      #expect(erased.output == "devices: 1 removed; outbox: 1 masked; history: 1 masked\n")
      #expect(
        try await database.value("select count(*) from push.outbox where recipients::text like '%android%'") == "0")
      #expect(try await database.value("select state from push.outbox where call_id = 'call-1'") == "answered")
      #expect(
        try await database.value("select bool_and(a::text !~ 'android') from push.audit a where action = 'erase_user'")
          == "true")
      let again = try await run(database, "erase-user", "android", "--app", "porteiro")
      #expect(again.output == "nothing was found\n")
      let rows = try await run(database, "erase-user", "android", "--app", "porteiro", "--json").array()
      #expect(Set(rows[0].keys) == ["place", "removed", "masked", "waiting", "is_complete"])
      #expect(try await run(database, "erase-user", "android", "--app", "no app").status == 1)
      let mistyped = try await run(database, "erase-user", "android", "--app", "portero")
      #expect(mistyped.status == 1 && mistyped.output.isEmpty)
      #expect(
        mistyped.errors
          == "Error: app: no gateway has served portero, and it has no calls and no devices. There are condo, porteiro\n"
      )
      #expect(try await run(database, "erase-user", "", "--app", "porteiro").status == 64)
      #expect(try await run(database, "erase-user", "android").status == 64)
    }
  }

  // MARK: What goes wrong

  @Test func `an unknown lane is answered with the nearest one`() async throws {
    try await OperationsFixture.with { database in
      let run = try await run(database, "pause", "portero", "fcm")
      #expect(run.status == 1)
      #expect(
        run.errors
          == "Error: there is no lane portero/fcm; did you mean porteiro/fcm? (push-gateway lanes lists them)\n")
      #expect(try await self.run(database, "pause", "porteiro", "gcm").status == 64)
    }
  }

  private static let all: [[String]] = [
    ["status"], ["status", "--json"], ["status", "--watch"], ["lanes"], ["calls"], ["timeline", "c"], ["requeue", "c"],
    ["ring", "--app", "a", "--user", "u"],
    ["void", "c"],
    ["pause", "a", "fcm"], ["resume", "a", "fcm"], ["resume-invalidation", "a", "fcm"],
    ["erase-user", "u", "--app", "a"], ["api-key", "create", "a", "b"],
    ["api-key", "list"], ["api-key", "revoke", "1"],
  ]

  @Test(arguments: all) func `without a server or a schema, each command says what to do`(arguments: [String])
    async throws
  {
    let unreachable = try await OperationsFixture.run("postgres://push:hunter2@127.0.0.1:1/push", arguments)
    #expect(unreachable.status == 1 && unreachable.output.isEmpty)
    #expect(unreachable.errors.hasPrefix("Error: cannot reach the database: "))
    #expect(unreachable.errors.contains("DATABASE_URL") && !unreachable.errors.contains("hunter2"))
    try await TestDatabase.with(.empty) { database in
      let run = try await OperationsFixture.run(database.url, arguments)
      #expect(run.status == 1 && run.output.isEmpty)
      #expect(run.errors.hasPrefix("Error: the schema push of this database is missing"))
      #expect(run.errors.hasSuffix("run push-gateway migrate\n"))
    }
  }

  @Test func `members of push_ops and push_keys may run all commands, and other roles are told what is missing`()
    async throws
  {
    try await OperationsFixture.with { database in
      let role = "ops_" + UUID().uuidString.prefix(8).lowercased()
      try await database.execute("create role \(role) login")
      let asRole = try #require(URL(string: database.url)).absoluteString.replacing("//push@", with: "//\(role)@")
      let refused = try await OperationsFixture.run(asRole, ["lanes"])
      #expect(refused.status == 1 && refused.errors.contains("permission denied"))
      try await database.execute("grant push_ops to \(role)")
      for arguments in [
        ["status"], ["status", "--json"], ["lanes"], ["calls"], ["timeline", "call-1"], ["requeue", "call-1"],
        ["pause", "porteiro", "fcm"], ["resume", "porteiro", "fcm"], ["resume-invalidation", "porteiro", "fcm"],
        ["void", "call-1"], ["erase-user", "ios", "--app", "porteiro"], ["api-key", "list"],
      ] {
        let run = try await OperationsFixture.run(asRole, arguments)
        #expect(run.status == 0, "\(arguments): \(run.errors)")
      }
      for arguments in [["api-key", "create", "porteiro", "b"], ["api-key", "revoke", "1"]] {
        let run = try await OperationsFixture.run(asRole, arguments)
        #expect(
          run.status == 1 && run.errors.contains("this requires membership in the role push_keys"), "\(run.errors)")
      }
      try await database.execute("revoke push_ops from \(role); grant push_keys to \(role)")
      let lanes = try await OperationsFixture.run(asRole, ["lanes"])
      #expect(lanes.status == 1 && lanes.errors.contains("this requires membership in the role push_ops"))
      #expect(lanes.errors.contains("do not grant that to a backend's login"), "\(lanes.errors)")
      for arguments in [
        ["api-key", "create", "porteiro", "b"], ["api-key", "list"], ["api-key", "revoke", "1"],
      ] {
        let run = try await OperationsFixture.run(asRole, arguments)
        #expect(run.status == 0, "\(arguments): \(run.errors)")
      }
      #expect(try await database.value("select bool_and(who like '\(role)%') from push.audit") == "true")
      try await database.execute("drop owned by \(role); drop role \(role)")
    }
  }
}
