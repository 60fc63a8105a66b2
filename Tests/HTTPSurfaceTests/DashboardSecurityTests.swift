// Access to the dashboard: host names, sessions, requests by other sites, and ops keys.

import HTTPSurfaceTestSupport
import Foundation
import HTTP2TestSupport
import HTTPTypes
import Logging
import Runtime
import Synchronization
import TestSupport
import Testing

@testable import HTTPSurface
@testable import Settings

@Suite(.timeLimit(.minutes(10))) struct DashboardSecurityTests {
  // MARK: - Hosts

  @Test func `only requests to its own names are answered, against DNS rebinding`() {
    let loopback = OpsHosts(listener: .init(host: "127.0.0.1", port: 8080), names: ["Push.Example.com"])
    for host in [
      "127.0.0.1:8080", "localhost:9", "LOCALHOST", "[::1]:8080", "push.example.com", "push.example.com:443",
    ] {
      #expect(loopback.allows(authority: host), "\(host)")
    }
    for host in [
      nil, "", "evil.example", "127.0.0.1.evil.example", "10.0.0.7:8080", "localhost:x", "localhost:", "[::1",
      "push.example.com.", "push.example.com@evil.example",
    ] {
      #expect(!loopback.allows(authority: host), "\(host ?? "nil")")
    }
    let everywhere = OpsHosts(listener: .init(host: "0.0.0.0", port: 8080), names: [])
    #expect(everywhere.allows(authority: "10.0.0.7:8080") && everywhere.allows(authority: "[fd00::1]:8080"))
    #expect(!everywhere.allows(authority: "evil.example:8080") && !everywhere.allows(authority: "1.2.3.4.evil.example"))
    #expect(loopback.isLoopback && !everywhere.isLoopback)
    #expect(OpsHosts(listener: .init(host: "::1", port: 1), names: []).isLoopback)
  }

  @Test func `a foreign host reaches nothing, whatever the path`() async throws {
    try await DashboardHarness.with(hosts: ["push.example.com"]) { dashboard in
      for path in ["/", "/ui/main.js", "/ui/session", "/livez", "/readyz"] {
        let answer = try await dashboard.send("GET", path, host: "evil.example")
        #expect(answer.status == 421 && answer.problem == "unknown-host", "\(path)")
        #expect(try await dashboard.send("GET", path, host: "push.example.com").status == 200, "\(path)")
      }
      for path in ["/metrics", "/ui/state", "/ui/calls?id=x", "/nothing"] {
        #expect(try await dashboard.send("GET", path, host: "evil.example").status == 421, "\(path)")
      }
      let socket = try TestSocket(port: dashboard.port)
      defer { socket.close() }
      // HAProxy's default health check sends this.
      #expect(APIAnswer(await socket.exchange(Array("GET /livez HTTP/1.0\r\n\r\n".utf8))).status == 200)
    }
  }

  // MARK: - Reading only

  @Test func `without an ops key nothing can be changed`() async throws {
    try await DashboardHarness.with(hasKey: false) { dashboard in
      #expect(
        try await dashboard.get("/ui/session").body
          == #"{"canLogIn":false,"canLogOut":false,"mustLogIn":false,"name":null,"token":null}"#)
      for path in ["/ui/session", "/ui/lanes", "/ui/session/end"] {
        let answer = try await dashboard.send("POST", path, #"{"key": "x"}"#)
        #expect(answer.status == 403 && answer.problem == "read-only")
      }
    }
  }

  @Test func `with an ops key, a client that has not shown it can only read`() async throws {
    try await DashboardHarness.with { dashboard in
      try await dashboard.database.execute("select push.register_lane('porteiro', 'fcm')")
      #expect(
        try await dashboard.get("/ui/session").body
          == #"{"canLogIn":true,"canLogOut":false,"mustLogIn":false,"name":null,"token":null}"#)
      #expect(try await dashboard.get("/ui/state").status == 200)
      #expect(try await dashboard.switchLane(nil).problem == "logged-out")
      #expect(try await dashboard.get("/ui/lanes").status == 404)
      let invented = DashboardHarness.Visitor(cookie: "push-gateway=" + String(repeating: "A", count: 43), token: "")
      #expect(try await dashboard.switchLane(invented).status == 401)
      #expect(try await dashboard.database.value("select count(*) from push.audit") == "0")
    }
  }

  // MARK: - Logging in

  @Test func `the key opens a session, and the session pauses and resumes a lane`() async throws {
    try await DashboardHarness.with { dashboard in
      try await dashboard.database.execute("select push.register_lane('porteiro', 'fcm')")
      // With the spaces and line break that editors and terminals add.
      let answer = try await dashboard.send("POST", "/ui/session", #"{"key": " \#(DashboardHarness.key)\n"}"#)
      #expect(answer.status == 200)
      let cookie = try #require(answer.headers["set-cookie"])
      #expect(cookie.hasSuffix("; Max-Age=43200; Path=/; HttpOnly; SameSite=Strict"))
      let visitor = DashboardHarness.Visitor(answer)
      #expect(visitor.token.count == 43 && visitor.cookie.count == "push-gateway=".count + 43)
      #expect(
        try await dashboard.get("/ui/session", headers: ["Cookie: \(visitor.cookie)"]).json["token"] as? String
          == visitor.token)

      let paused = try await dashboard.switchLane(visitor, note: "it's \\\"broken\\\"; drop table")
      #expect(
        paused.status == 200
          && paused.json["message"] as? String
            == "porteiro/fcm is paused: its deliveries wait, and expire at their deadlines. Note: it's \"broken\"; drop table"
      )
      let lanes =
        (try await dashboard.get("/ui/state").json["overview"] as? [String: Any])?["lanes"] as? [[String: Any]]
      #expect(lanes?.first?["paused"] as? Bool == true)
      #expect(try await dashboard.switchLane(visitor, paused: false, note: "mended").status == 200)
      #expect(
        try await dashboard.database.value(
          "select string_agg(concat_ws('|', action, target, via, operator, detail ->> 'note'), ' ' order by id) from push.audit"
        )
          == #"pause_lane|porteiro/fcm|push-gateway dashboard|ops|it's "broken"; drop table resume_lane|porteiro/fcm|push-gateway dashboard|ops|mended"#
      )

      #expect(
        try await dashboard.send(
          "POST", "/ui/session/end", "{}", headers: ["Cookie: \(visitor.cookie)", "X-CSRF-Token: \(visitor.token)"]
        ).headers["set-cookie"]?.contains("Max-Age=0") == true)
      #expect(try await dashboard.switchLane(visitor).status == 401)
    }
  }

  @Test func `the session tries a call again and ends it, with the operator and the note in the audit`() async throws {
    try await DashboardHarness.with { dashboard in
      try await dashboard.database.execute(
        """
        select push.register_lane('porteiro', 'fcm');
        select push.enqueue_call('{"callId": "ringing", "from": "d"}',
          '[{"userId": "u", "fcmToken": "a-token-of-a-phone"}]', 'porteiro')
        """)
      func act(_ action: String, id: String = "ringing", _ headers: [String]) async throws -> APIAnswer {
        try await dashboard.send(
          "POST", "/ui/calls", #"{"app": "porteiro", "callId": "\#(id)", "action": "\#(action)", "note": "it's why"}"#,
          headers: headers)
      }
      let visitor = try await dashboard.logIn()
      let session = ["Cookie: \(visitor.cookie)", "X-CSRF-Token: \(visitor.token)"]
      #expect(try await act("void", []).status == 401)
      #expect(try await act("void", [session[0]]).problem == "other-site")
      #expect(try await act("delete", session).status == 422)
      let unknown = try await act("void", id: "nobody-knows", session)
      #expect(unknown.status == 404 && unknown.json["detail"] as? String == "the app has no call with this id")
      #expect(try await dashboard.database.value("select count(*) from push.audit") == "0")
      let again = try await act("requeue", session)
      #expect(again.status == 200)
      #expect((again.json["message"] as? String)?.hasPrefix("call ringing: nothing to requeue") == true)
      let ended = try await act("void", session)
      #expect(ended.status == 200 && (ended.json["message"] as? String)?.hasPrefix("call ringing was ended") == true)
      #expect(try await dashboard.database.value("select state || voided from push.outbox") == "endedtrue")
      #expect(
        try await dashboard.database.value(
          "select string_agg(concat_ws('|', action, target, via, operator, detail ->> 'note'), ' ' order by id) from push.audit"
        )
          == "requeue|porteiro/ringing|push-gateway dashboard|ops|it's why void_call|porteiro/ringing|push-gateway dashboard|ops|it's why"
      )
    }
  }

  @Test func `other sites cannot make a logged-in browser change anything`() async throws {
    try await DashboardHarness.with { dashboard in
      try await dashboard.database.execute("select push.register_lane('porteiro', 'fcm')")
      let visitor = try await dashboard.logIn()
      #expect(try await dashboard.switchLane(visitor, origin: "http://evil.example").problem == "other-site")
      #expect(try await dashboard.switchLane(visitor, origin: "null").problem == "other-site")
      #expect(
        try await dashboard.switchLane(visitor, origin: "http://127.0.0.1:\(dashboard.port).evil.example").problem
          == "other-site")
      #expect(try await dashboard.switchLane(visitor, token: "").problem == "other-site")
      #expect(try await dashboard.switchLane(visitor, token: String(visitor.token.reversed())).problem == "other-site")
      #expect(try await dashboard.switchLane(visitor, headers: ["Sec-Fetch-Site: same-site"]).problem == "other-site")
      #expect(try await dashboard.database.value("select count(*) from push.audit") == "0")
      #expect(try await dashboard.switchLane(visitor, headers: ["Sec-Fetch-Site: same-origin"]).status == 200)
    }
  }

  @Test func `a wrong key, a wrong form and too many tries are refused`() async throws {
    try await DashboardHarness.with { dashboard in
      let wrong = try await dashboard.send("POST", "/ui/session", #"{"key": "not the key"}"#)
      #expect(wrong.status == 403 && wrong.problem == "wrong-key" && wrong.headers["set-cookie"] == nil)
      #expect(!wrong.body.contains("not the key"))
      #expect(try await dashboard.send("POST", "/ui/session", "key=x").status == 400)
      #expect(try await dashboard.send("POST", "/ui/session", #"{"other": "x"}"#).status == 422)
      #expect(
        try await dashboard.send("POST", "/ui/session", #"{"key": "\#(String(repeating: "x", count: 5000))"}"#).status
          == 413)
      let statuses = try await withThrowingTaskGroup(of: Int.self) { tasks in
        for _ in 0..<20 {
          tasks.addTask { try await dashboard.send("POST", "/ui/session", #"{"key": "guess"}"#).status }
        }
        return try await tasks.reduce(into: [Int]()) { $0.append($1) }
      }
      #expect(statuses.contains(429) && Set(statuses) == [403, 429])
    }
  }

  @Test func `answers to wrong keys are delayed longer and longer, until the right key is shown`() async throws {
    let clock = SteppingClock()
    let pauses = Mutex<[Nanoseconds]>([])
    try await withKeyFile(DashboardHarness.key) { file in
      let login = OpsLogin(
        keys: [OpsKey(name: "ops", file: file)], logger: Self.logger, clock: clock,
        pause: { length in pauses.withLock { $0.append(length) } })
      for _ in 0..<6 {
        clock.advance(.seconds(1))
        await #expect(throws: APIProblem.wrongKey) { try await login.open("guess", from: .unknown) }
      }
      #expect(pauses.withLock { $0.map(\.milliseconds) } == [250, 500, 1000, 2000, 4000, 4000])
      clock.advance(.seconds(1))
      let opened = try await login.open(DashboardHarness.key, from: .unknown)
      #expect(await login.session(opened.id)?.token == opened.token)
      clock.advance(.seconds(1))
      await #expect(throws: APIProblem.wrongKey) { try await login.open("guess", from: .unknown) }
      #expect(pauses.withLock { $0.last?.milliseconds } == 250)
    }
  }

  @Test func `a guesser locks out no good key, not even at the same address`() async throws {
    let (guesser, other) = (IPAddress("192.0.2.1")!, IPAddress("192.0.2.2")!)
    let (gate, opening) = AsyncStream.makeStream(of: Void.self)
    let held = Mutex(0)
    try await withKeyFile(DashboardHarness.key) { file in
      // The clock stands still, and no answer to a wrong key is sent before the end: all tries and all delayed answers
      // are used up.
      let login = OpsLogin(
        keys: [OpsKey(name: "ops", file: file)], logger: Self.logger, clock: SteppingClock(),
        pause: { _ in
          held.withLock { $0 += 1 }
          for await _ in gate {}
        })
      try await withThrowingTaskGroup(of: Void.self) { tasks in
        defer { opening.finish() }
        let peers = [guesser] + (1..<LoginLimits.heldInAllMax).map { IPAddress("198.51.100.\($0)")! }
        for peer in peers { tasks.addTask { _ = try? await login.open("guess", from: peer) } }
        while held.withLock({ $0 }) < LoginLimits.heldInAllMax { await Task.yield() }
        for peer in [guesser, other] {
          for wrong in ["guess", "another"] {
            await #expect(throws: APIProblem.tooManyTries) { try await login.open(wrong, from: peer) }
            await #expect(throws: APIProblem.tooManyTries) { try await login.holder(ofShown: wrong, from: peer) }
          }
          for _ in 0..<20 {
            let opened = try await login.open(DashboardHarness.key, from: peer)
            let holder = try await login.holder(ofShown: DashboardHarness.key, from: peer)
            #expect(opened.name == "ops" && holder == .operatorNamed("ops"))
          }
        }
        #expect(held.withLock { $0 } == LoginLimits.heldInAllMax)
      }
    }
  }

  @Test func `a wrong key in a header waits for its answer as a login does`() async throws {
    let clock = SteppingClock()
    let pauses = Mutex<[Nanoseconds]>([])
    try await withKeyFile(DashboardHarness.key) { file in
      let login = OpsLogin(
        keys: [OpsKey(name: "ops", file: file)], logger: Self.logger, clock: clock,
        pause: { length in pauses.withLock { $0.append(length) } })
      for _ in 0..<3 {
        clock.advance(.seconds(1))
        let problem = await #expect(throws: APIProblem.self) {
          try await login.holder(ofShown: "guess", from: .unknown)
        }
        #expect(problem?.status == .unauthorized)
      }
      #expect(pauses.withLock { $0.map(\.milliseconds) } == [250, 500, 1000])
    }
  }

  @Test func `a key whose file cannot be read is not reported as wrong, and other keys stay valid`() async throws {
    let bobs = "bobs-own-key-of-more-than-thirty-two-characters"
    try await withKeyFile(DashboardHarness.key) { file in
      try await withKeyFile(bobs) { bobsFile in
        let login = OpsLogin(
          keys: [OpsKey(name: "alice", file: file), OpsKey(name: "bob", file: bobsFile)], logger: Self.logger,
          pause: { _ in })
        try FileManager.default.removeItem(atPath: bobsFile)
        let shown = await #expect(throws: APIProblem.self) { try await login.holder(ofShown: bobs, from: .unknown) }
        #expect(shown?.status == .serviceUnavailable && shown?.name == "no-key")
        #expect(shown?.detail.contains("log") == true && shown?.detail.contains(bobsFile) == false)
        let peer = IPAddress("192.0.2.1")!
        let typed = await #expect(throws: APIProblem.self) { try await login.open(bobs, from: peer) }
        #expect(typed == shown)
        let opened = try await login.open(DashboardHarness.key, from: peer)
        let holder = try await login.holder(ofShown: DashboardHarness.key, from: peer)
        #expect(opened.name == "alice" && holder == .operatorNamed("alice"))
      }
    }
  }

  @Test func `if a file gets the key of another, it is not a key, and the other stays valid`() async throws {
    let bobs = "bobs-own-key-of-more-than-thirty-two-characters"
    try await withKeyFile(DashboardHarness.key) { file in
      try await withKeyFile(bobs) { bobsFile in
        let (alice, bob) = (OpsKey(name: "alice", file: file), OpsKey(name: "bob", file: bobsFile))
        var keyring = OpsKeyring([alice], metricsKey: bob)
        let digests = [DashboardHarness.key, bobs].map { OpsKey.digest(ofShown: $0) }
        #expect(digests.map { keyring.holder(of: $0) } == [.operatorNamed("alice"), .scraper])
        // The operator's file now contains the key of the metrics, which must not give more access than before.
        try SecretFixture.write(bobs, to: file)
        #expect(digests.map { keyring.holder(of: $0) } == [nil, .scraper])
        let faults = keyring.newFaults()
        #expect(faults.map(\.name) == ["alice"])
        #expect(faults.first?.fault.description.contains("holds the same key as bob") == true)
        try SecretFixture.write(DashboardHarness.key, to: file)
        #expect(digests.map { keyring.holder(of: $0) } == [.operatorNamed("alice"), .scraper])
      }
    }
  }

  @Test func `sessions end after twelve hours, and their number is limited`() async throws {
    let clock = SteppingClock()
    try await withKeyFile(DashboardHarness.key) { file in
      let login = OpsLogin(keys: [OpsKey(name: "ops", file: file)], logger: Self.logger, clock: clock)
      let first = try await login.open(DashboardHarness.key, from: .unknown).id
      clock.advance(.seconds(12 * 3600 - 1))
      #expect(await login.session(first) != nil)
      clock.advance(.seconds(2))
      #expect(await login.session(first) == nil)

      let oldest = try await login.open(DashboardHarness.key, from: .unknown).id
      var ids = Set([oldest])
      for _ in 0..<OpsSessions.countMax {
        clock.advance(.seconds(1))
        ids.insert(try await login.open(DashboardHarness.key, from: .unknown).id)
      }
      #expect(ids.count == OpsSessions.countMax + 1)
      #expect(await login.session(oldest) == nil)
    }
  }

  @Test(arguments: ["another-key-of-more-than-thirty-two-characters", "", "too short", nil])
  func `a session ends at once when its key changes, or its file is empty or missing`(content: String?) async throws {
    let clock = SteppingClock()
    try await withKeyFile(DashboardHarness.key) { file in
      try await withKeyFile("bobs-own-key-of-more-than-thirty-two-characters") { bobsFile in
        let login = OpsLogin(
          keys: [OpsKey(name: "alice", file: file), OpsKey(name: "bob", file: bobsFile)], logger: Self.logger,
          clock: clock)
        let alice = try await login.open(DashboardHarness.key, from: .unknown)
        clock.advance(.seconds(1))
        let bob = try await login.open("bobs-own-key-of-more-than-thirty-two-characters", from: .unknown)
        #expect(alice.name == "alice" && bob.name == "bob")
        #expect(await login.session(alice.id)?.name == "alice")
        if let content {
          try SecretFixture.write(content, to: file)
        } else {
          try FileManager.default.removeItem(atPath: file)
        }
        #expect(await login.session(alice.id) == nil)
        #expect(await login.session(bob.id)?.name == "bob")
        // The session stays ended if the old key comes back.
        try SecretFixture.write(DashboardHarness.key, to: file)
        #expect(await login.session(alice.id) == nil)
        clock.advance(.seconds(1))
        #expect(try await login.open(DashboardHarness.key, from: .unknown).name == "alice")
      }
    }
  }

  @Test(arguments: ["", "too short", String(repeating: " ", count: 100)])
  func `a key file without a long key gives access to nobody`(content: String) async throws {
    try await withKeyFile(content) { file in
      let login = OpsLogin(
        keys: [OpsKey(name: "ops", file: file)], metricsKey: OpsKey(name: "metrics", file: file), logger: Self.logger)
      let problem = await #expect(throws: APIProblem.self) { try await login.open(content, from: .unknown) }
      #expect(problem?.name == "no-key")
      await #expect(throws: APIProblem.self) { try await login.holder(ofShown: content, from: .unknown) }
    }
  }

  @Test func `except on loopback, the cookie is sent over TLS only`() {
    let cookie = OpsCookie(isSecure: true)
    #expect(cookie.header("x") == "__Host-push-gateway=x; Max-Age=43200; Path=/; HttpOnly; SameSite=Strict; Secure")
    #expect(cookie.id(in: "a=b; __Host-push-gateway=x") == "x")
    #expect(cookie.id(in: "push-gateway=x") == nil)
    #expect(cookie.id(in: "__Host-push-gateway=") == nil)
    #expect(cookie.id(in: nil) == nil)
  }

  // MARK: - Parts

  private static var logger: Logger {
    var logger = Logger(label: "test", factory: { StreamLogHandler.standardError(label: $0) })
    logger.logLevel = .critical
    return logger
  }

  private func withKeyFile(_ content: String, _ body: (String) async throws -> Void) async throws {
    let file = FileManager.default.temporaryDirectory.appending(path: "ops-key-\(UUID().uuidString)").path
    try SecretFixture.write(content, to: file)
    defer { try? FileManager.default.removeItem(atPath: file) }
    try await body(file)
  }
}

/// A clock that the test moves.
private final class SteppingClock: GatewayClock {
  private let instant = Mutex(Instant(nanoseconds: 0))
  func now() -> Instant { instant.withLock { $0 } }
  func wallMilliseconds() -> Int64 { 0 }
  func advance(_ length: Nanoseconds) { instant.withLock { $0 = $0 + length } }
}
