// What the dashboard shows, and which answers may be cached.

import HTTPSurfaceTestSupport
import Foundation
import TestSupport
import TestTime
import Testing

@testable import HTTPSurface
@testable import Providers

@Suite(.timeLimit(.minutes(10))) struct DashboardTests {
  @Test func `the page and its files come with their types, their tags and a strict policy`() async throws {
    try await DashboardHarness.with { dashboard in
      for asset in DashboardAsset.all {
        let answer = try await dashboard.get(asset.path)
        #expect(answer.status == 200 && answer.body == String(decoding: asset.bytes, as: UTF8.self))
        #expect(answer.headers["content-type"] == asset.type)
        #expect(answer.headers["cache-control"] == "no-cache")
        let policy = try #require(answer.headers["content-security-policy"])
        for rule in [
          "default-src 'none'", "script-src 'self'", "style-src 'self'", "base-uri 'none'", "form-action 'self'",
          "frame-ancestors 'none'",
        ] {
          #expect(policy.contains(rule))
        }
        #expect(!policy.contains("unsafe"))
        #expect(answer.headers["x-content-type-options"] == "nosniff")
        #expect(answer.headers["referrer-policy"] == "no-referrer")
        let tag = try #require(answer.headers["etag"])
        let again = try await dashboard.get(asset.path, headers: ["If-None-Match: \"other\", W/\(tag)"])
        #expect(again.status == 304 && again.body.isEmpty && again.headers["etag"] == tag)
        #expect(again.headers["content-security-policy"] == policy)
        let head = try await dashboard.send("HEAD", asset.path)
        #expect(head.status == 200 && head.body.isEmpty && head.headers["etag"] == tag)
      }
    }
  }

  @Test func `the page sends requests to no other server, and has nothing inline that its policy would refuse`() throws
  {
    // Pages of operations are text, in which nothing is loaded or run.
    for asset in DashboardAsset.all where asset.type != "text/plain; charset=utf-8" {
      let text = String(decoding: asset.bytes, as: UTF8.self)
        .replacing("http://www.w3.org/2000/svg", with: "")
      #expect(!text.contains("://"), "\(asset.path)")
      for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style=\"", "onclick=\""]
      {
        #expect(!text.contains(word), "\(asset.path) has \(word)")
      }
    }
    let page = String(decoding: try #require(DashboardAsset.at("/")).bytes, as: UTF8.self)
    #expect(!page.contains("<style") && !page.contains("<script>"))
  }

  @Test func `the state has every part, and the charts their minutes`() async throws {
    try await DashboardHarness.with { dashboard in
      try await dashboard.database.execute(
        """
        select push.register_lane('porteiro', 'fcm'), push.ensure_partitions();
        insert into push.history (finished_at, outbox_id, created_at, deadline_at, sent_at, answered_at, n, attempts, lane,
          kind, outcome, user_id, device, reason)
        select now() - m * interval '1 minute', 1, now() - m * interval '1 minute' - interval '80 ms', now(), now(),
          now() - m * interval '1 minute', 0, 1, 1, 0, case m when 20 then 4 else 0 end, 'u', 'd', case m when 20 then 'Unregistered' end
        from unnest('{0,3,20,50}'::int[]) m
        """)
      let answer = try await dashboard.get("/ui/state")
      #expect(answer.status == 200 && answer.headers["cache-control"] == "no-store")
      #expect(answer.headers["content-security-policy"] != nil)
      let state = answer.json
      let overview = try #require(state["overview"] as? [String: Any])
      #expect(Set(overview.keys) == ["now", "lanes", "health", "failures", "stuck", "recent", "replicas", "audit"])
      #expect((overview["lanes"] as? [[String: Any]])?.first?["app"] as? String == "porteiro")
      #expect((overview["failures"] as? [[String: Any]])?.first?["reason"] as? String == "Unregistered")
      let minutes = try #require(state["minutes"] as? [[String: Any]])
      #expect(minutes.compactMap { $0["invites"] as? Int } == [1, 1, 1])
      #expect(minutes.compactMap { $0["dead"] as? Int } == [1, 0, 0])
      let recent = try #require(state["recent"] as? [String: Any])
      #expect(recent["invites"] as? Int == 2 && recent["p50"] as? Double == 80)
    }
  }

  @Test func `each check of push.health has a page of operations, which the gateway has`() async throws {
    let script = String(decoding: try #require(DashboardAsset.at("/ui/troubles.js")).bytes, as: UTF8.self)
    let names = script.matches(of: /"([a-z]+(?:-[a-z]+)+)"/).map { String($0.1) }
    #expect(names.count > 20)
    for name in names {
      let page = try #require(DashboardAsset.at("/ui/operations/\(name).md"), "\(name)")
      #expect(page.bytes.starts(with: Array("# ".utf8)) && page.type == "text/plain; charset=utf-8")
    }
    try await TestDatabase.with { database in
      let items = try await database.value("select string_agg(item, ',') from push.health where item !~ '^dead rows'")
      for item in items.split(separator: ",").map(String.init) {
        #expect(script.contains("\"\(item)\": \"") || script.contains("\(item): \""), "\(item) has no page")
      }
    }
  }

  @Test func `a reason for which pushes fail has the page of what the provider means by it`() throws {
    let script = String(decoding: try #require(DashboardAsset.at("/ui/troubles.js")).bytes, as: UTF8.self)
    func reasons(_ page: String) throws -> Set<String> {
      let start = try #require(script.range(of: "\"\(page)\": ["), "\(page)")
      return Set(script[start.upperBound...].prefix { $0 != "]" }.matches(of: /"(\w+)"/).map { String($0.1) })
    }
    let webPush = WebPushReasonTable.rows + WebPushReasonTable.statuses
    var dead = Set(webPush.filter { $0.meaning == .dead }.map(\.reason))
    dead.formUnion(APNsReasonTable.rows.filter { $0.meaning == .deadToken }.map(\.reason))
    dead.formUnion(FCMReasonTable.rows.filter { $0.meaning == .deadToken }.map(\.code))
    dead.formUnion(ExpoReasonTable.tickets.filter { $0.meaning == .tokenInvalid }.map(\.code))
    #expect(try reasons("tokens-vanish") == dead)
    var refused = ProviderReasons.ofSomeCredentials
    refused.formUnion(webPush.filter { [.credentials, .otherKey].contains($0.meaning) }.map(\.reason))
    let ofAPNs: [APNsReasonTable.Meaning] = [.credentials, .connectionCredentials, .expiredProviderToken]
    refused.formUnion(APNsReasonTable.rows.filter { ofAPNs.contains($0.meaning) }.map(\.reason))
    let ofFCM: [FCMReasonTable.Meaning] = [.unauthorized, .accessTokenRefused]
    refused.formUnion(FCMReasonTable.rows.filter { ofFCM.contains($0.meaning) }.map(\.code))
    refused.formUnion(ExpoReasonTable.requests.filter { $0.meaning == .unauthorized }.map(\.code))
    #expect(try reasons("credentials-fail") == refused)
    #expect(try reasons("requests-go-unanswered").isSubset(of: ProviderReasons.common + ProviderReasons.expo))
  }

  @Test func `a list of calls has the newest first, and those that its filters name`() async throws {
    try await DashboardHarness.with { dashboard in
      try await dashboard.database.execute(
        """
        select push.register_lane('porteiro', 'fcm'), push.register_lane('condo', 'fcm');
        select push.enqueue_call(jsonb_build_object('callId', 'call-' || i, 'from', 'secret-payload'),
          jsonb_build_array(jsonb_build_object('userId', case i when 2 then 'ana' else '<b>bruno</b>' end,
            'fcmToken', 'a-secret-token-of-phone-' || i)), case i when 3 then 'condo' else 'porteiro' end)
        from generate_series(1, 4) i;
        alter table push.outbox disable trigger user;
        update push.outbox set created_at = now() - interval '10 minutes' + right(call_id, 1)::int * interval '1 minute';
        update push.outbox set created_at = now() - interval '3 hours' where call_id = 'call-4';
        alter table push.outbox enable trigger user;
        select push.end_call('call-1', app => 'porteiro');
        """)
      func list(_ query: String) async throws -> [String?] {
        let answer = try await dashboard.get("/ui/calls?\(query)")
        #expect(answer.status == 200 && answer.headers["cache-control"] == "no-store")
        #expect(!answer.body.contains("secret"))
        let calls = try #require(try JSONSerialization.jsonObject(with: Data(answer.body.utf8)) as? [[String: Any]])
        for call in calls {
          #expect(Set(call.keys) == ["callId", "app", "users", "outcome", "endReason", "createdAt", "pushes"])
        }
        return calls.map { $0["callId"] as? String }
      }
      #expect(try await list("since=60") == ["call-3", "call-2", "call-1"])
      #expect(try await list("since=600") == ["call-3", "call-2", "call-1", "call-4"])
      #expect(try await list("since=60&app=porteiro") == ["call-2", "call-1"])
      #expect(try await list("since=60&user=ana") == ["call-2"])
      #expect(try await list("since=60&user=%3Cb%3Ebruno%3C%2Fb%3E&outcome=ended") == ["call-1"])
      #expect(try await list("since=60&app=porteiro&user=nobody") == [])
      // The longest id of a user, and the longest time that the page offers.
      #expect(try await list("since=10080&user=" + String(repeating: "x", count: 256)) == [])
      let bad = ["since=", "since=0", "since=10081", "since=x", "since=60&user=" + String(repeating: "x", count: 257)]
      for query in bad + ["since=60&app=%00"] {
        #expect(try await dashboard.get("/ui/calls?\(query)").status == 422, "\(query)")
      }
    }
  }

  @Test func `lists of calls, however many and slow, leave one connection for the state and operators`() async throws {
    try await DashboardHarness.with { dashboard in
      let database = dashboard.database
      try await database.execute(
        """
        select push.register_lane('porteiro', 'fcm');
        select push.enqueue_call('{"callId": "c", "from": "d"}', '[{"userId": "u", "fcmToken": "a-token-of-a-phone"}]', 'porteiro');
        create table public.released (is_over boolean);
        create function public.is_released() returns boolean language plpgsql as $$
        begin
          while not exists (select from public.released) loop
            perform pg_sleep(0.01);
          end loop;
          return true;
        end $$;
        alter view push.calls rename to calls_at_once;
        create view push.calls as select * from push.calls_at_once where public.is_released();
        """)
      let running = """
        select count(*) from pg_stat_activity where datname = current_database() and state = 'active'
          and application_name = '\(Dashboard.applicationName)' and query like '%from push.calls c%'
        """
      let visitor = try await dashboard.logIn()
      try await withThrowingTaskGroup(of: APIAnswer.self) { lists in
        for _ in 0..<12 { lists.addTask { try await dashboard.get("/ui/calls?since=60") } }
        try await database.wait(for: running, toBe: "1")
        #expect(try await dashboard.get("/ui/state").status == 200)
        #expect(try await dashboard.switchLane(visitor).status == 200)
        #expect(Int(try await database.value(running)) ?? 2 <= 1)
        try await database.execute("insert into public.released values (true)")
        for try await list in lists {
          #expect(list.status == 200 || list.status == 503 && list.headers["retry-after"] != nil, "\(list.status)")
        }
      }
      #expect(try await dashboard.get("/ui/calls?since=60").status == 200)
    }
  }

  @Test func `with several databases, a request names the one that it is about`() async throws {
    try await TestDatabase.with { south in
      try await DashboardHarness.with(south: south) { dashboard in
        _ = try await south.execute("select push.register_lane('only-in-south', 'fcm')")
        let first = try await dashboard.get("/ui/state").json
        #expect(first["database"] as? String == "north")
        #expect(first["databases"] as? [String] == ["north", "south"])
        let second = try await dashboard.get("/ui/state?database=south").json
        #expect(second["database"] as? String == "south")
        let lanes = (second["overview"] as? [String: Any])?["lanes"] as? [[String: Any]]
        #expect(lanes?.first?["app"] as? String == "only-in-south")
        #expect(try await dashboard.get("/ui/calls?id=c&database=south").status == 200)
        let unknown = try await dashboard.get("/ui/state?database=west")
        #expect(unknown.status == 404 && unknown.json["type"] as? String == "urn:push-gateway:problem:unknown-database")

        let visitor = try await dashboard.logIn()
        let paused = try await dashboard.send(
          "POST", "/ui/lanes?database=south",
          #"{"app": "only-in-south", "provider": "fcm", "paused": true, "note": "test"}"#,
          headers: ["Cookie: \(visitor.cookie)", "X-CSRF-Token: \(visitor.token)"])
        #expect(paused.status == 200)
        #expect(try await south.value("select paused from push.lanes where app = 'only-in-south'") == "true")
      }
    }
  }

  @Test func `without several databases, the state names none`() async throws {
    try await DashboardHarness.with { dashboard in
      let state = try await dashboard.get("/ui/state").json
      #expect(state["database"] == nil && state["databases"] == nil)
    }
  }

  @Test func `many open pages cause one query a second`() async throws {
    try await DashboardHarness.with { dashboard in
      let state = try await withThrowingTaskGroup(of: APIAnswer.self) { tasks in
        for _ in 0..<40 { tasks.addTask { try await dashboard.get("/ui/state") } }
        return try await tasks.reduce(into: [APIAnswer]()) { $0.append($1) }
      }
      #expect(state.allSatisfy { $0.status == 200 })
      // Each answer contains the time at which the database made it.
      let moments = Set(state.compactMap { ($0.json["overview"] as? [String: Any])?["now"] as? Int })
      #expect(1...3 ~= moments.count)
      let connections = try await dashboard.database.value(
        "select count(*) from pg_stat_activity where application_name = '\(Dashboard.applicationName)' and datname = current_database()"
      )
      #expect(Int(connections) ?? 0 <= 2)
    }
  }

  @Test func `a call is found by any id, and its tokens are not shown`() async throws {
    try await DashboardHarness.with { dashboard in
      let id = #"</script><img src=x onerror="alert(1)">&é"#
      try await dashboard.database.execute(
        """
        select push.register_lane('porteiro', 'fcm');
        select * from push.enqueue_call(jsonb_build_object('callId', $$\(id)$$, 'from', 'secret-payload'),
          '[{"userId": "<b>ana</b>", "fcmToken": "a-secret-token-of-anas-phone"}]', 'porteiro')
        """)
      var allowed = CharacterSet.alphanumerics
      allowed.remove("é")
      let query = try #require(id.addingPercentEncoding(withAllowedCharacters: allowed))
      let answer = try await dashboard.get("/ui/calls?id=\(query)")
      #expect(answer.status == 200 && answer.headers["content-type"] == "application/json")
      let calls = try #require(try JSONSerialization.jsonObject(with: Data(answer.body.utf8)) as? [[String: Any]])
      #expect(calls.count == 1 && calls.first?["callId"] as? String == id)
      #expect(
        (calls.first?["timeline"] as? [[String: Any]])?.compactMap { $0["event"] as? String } == ["enqueued", "ready"])
      #expect(!answer.body.contains("secret"))
      #expect(try await dashboard.get("/ui/calls?id=nobody").body == "[]")
      for bad in [
        "/ui/calls", "/ui/calls?id=", "/ui/calls?id=%00", "/ui/calls?id=" + String(repeating: "x", count: 129),
      ] {
        #expect(try await dashboard.get(bad).status == 422)
      }
    }
  }

  @Test func `without a database the answer is an error, until it is back`() async throws {
    try await DashboardHarness.with { dashboard in
      try await dashboard.database.execute("alter function push.overview rename to overview_away")
      let broken = try await dashboard.get("/ui/state")
      #expect(broken.status == 503 && broken.problem == "database-unavailable")
      try await dashboard.database.execute("alter function push.overview_away rename to overview")
      try await eventually("it answers again", every: .milliseconds(50)) {
        try await dashboard.get("/ui/state").status == 200
      }
    }
  }

  @Test func `unknown paths are not found`() async throws {
    try await DashboardHarness.with { dashboard in
      for path in ["/ui/", "/ui/other.js", "/ui/../livez", "/index.html"] {
        let answer = try await dashboard.get(path)
        #expect(answer.status == 404, "\(path)")
      }
      #expect(try await dashboard.get("/livez").status == 200)
    }
  }
}
