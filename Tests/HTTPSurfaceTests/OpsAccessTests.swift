// Access to http.listen: who may read, and under which name. Over real sockets.

import HTTPSurfaceTestSupport
import Foundation
import HTTP2TestSupport
import TestSupport
import Testing

@testable import HTTPSurface
@testable import Settings

@Suite(.timeLimit(.minutes(10))) struct OpsAccessTests {
  private static let data = ["/ui/state", "/ui/calls?id=x", "/metrics"]
  private static let open = ["/", "/ui/main.js", "/ui/dashboard.css", "/ui/session", "/livez", "/readyz"]
  private static let key = "Authorization: Bearer \(DashboardHarness.key)"

  // MARK: - Reading

  @Test func `except on loopback, reading needs a login`() async throws {
    try await DashboardHarness.with(listen: "0.0.0.0") { dashboard in
      for path in Self.data {
        let answer = try await dashboard.get(path)
        #expect(answer.status == 401 && !answer.body.contains("push_gateway_"), "\(path)")
        #expect(answer.headers["www-authenticate"] == (path == "/metrics" ? "Bearer" : "Session"))
        let wrong = try await dashboard.get(
          path, headers: ["Authorization: Bearer \(String(repeating: "x", count: 64))"])
        #expect([401, 429].contains(wrong.status), "\(path)")
        #expect(try await dashboard.get(path, headers: ["Authorization: Basic b3BzOm9wcw=="]).status == 401, "\(path)")
      }
      for path in Self.open { #expect(try await dashboard.get(path).status == 200, "\(path)") }
      #expect(try await dashboard.get("/ui/session").json["mustLogIn"] as? Bool == true)
    }
  }

  @Test func `an ops key, or a session opened with one, reads everything`() async throws {
    try await DashboardHarness.with(listen: "0.0.0.0") { dashboard in
      try await dashboard.database.execute("select push.register_lane('porteiro', 'fcm')")
      let visitor = try await dashboard.logIn()
      #expect(visitor.cookie.hasPrefix("__Host-push-gateway="))
      for path in Self.data {
        #expect(try await dashboard.get(path, headers: ["Cookie: \(visitor.cookie)"]).status == 200, "\(path)")
        #expect(try await dashboard.get(path, headers: [Self.key]).status == 200, "\(path)")
      }
      // A key with each request gives read access; changes need a session.
      #expect(try await dashboard.switchLane(nil, headers: [Self.key]).problem == "logged-out")
      #expect(try await dashboard.switchLane(visitor).status == 200)
    }
  }

  @Test func `the key of the metrics gives access to them and nothing else`() async throws {
    let file = try KeyFile("a-metrics-key-of-more-than-thirty-two-characters")
    let access = GatewayConfiguration.OpsAccess(metricsKey: OpsKey(name: "metrics", file: file.path))
    try await DashboardHarness.with(listen: "0.0.0.0", access: access) { dashboard in
      // The header that Prometheus sends with authorization.credentials_file.
      let field = "Authorization: Bearer a-metrics-key-of-more-than-thirty-two-characters"
      let answer = try await dashboard.get("/metrics", headers: [field])
      #expect(answer.status == 200 && answer.body.contains("push_gateway_"))
      #expect(try await dashboard.get("/ui/state", headers: [field]).status == 401)
      #expect(try await dashboard.get("/readyz", headers: [field]).body == "ready\n")
      let login = #"{"key": "a-metrics-key-of-more-than-thirty-two-characters"}"#
      #expect(try await dashboard.send("POST", "/ui/session", login).status == 403)
      try file.write("another-metrics-key-of-more-than-thirty-two-characters")
      #expect(try await dashboard.get("/metrics", headers: [field]).status == 401)
    }
  }

  @Test func `without an ops key, other machines are told which setting is missing`() async throws {
    try await DashboardHarness.with(hasKey: false, listen: "0.0.0.0") { dashboard in
      for path in ["/ui/state", "/ui/calls?id=x"] {
        let answer = try await dashboard.get(path)
        #expect(answer.status == 403 && answer.problem == "no-login" && answer.body.contains("dashboard.ops_key_file"))
      }
      let metrics = try await dashboard.get("/metrics")
      #expect(metrics.status == 401 && metrics.body.contains("http.metrics_key_file"))
      #expect(try await dashboard.get("/readyz").status == 200)
    }
  }

  @Test func `on loopback, a login is needed if there may be a proxy`() async throws {
    try await DashboardHarness.with { (dashboard: DashboardHarness) async throws in
      for path in Self.data {
        #expect(try await dashboard.get(path).status == 200)
        for field in [
          "X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1", "X-Forwarded-Proto: https", "Via: 1.1 x",
        ] {
          #expect(try await dashboard.get(path, headers: [field]).status == 401, "\(path) \(field)")
        }
      }
    }
    // A proxy that adds no header, and sends any Host.
    try await DashboardHarness.with(hosts: ["push.example.com"]) { (dashboard: DashboardHarness) async throws in
      for host in ["push.example.com", "localhost", "127.0.0.1"] {
        for path in Self.data {
          #expect(try await dashboard.send("GET", path, host: host).status == 401, "\(host)\(path)")
        }
      }
    }
  }

  @Test func `clients without a login get one word from health checks`() async throws {
    let readiness = Readiness.notReady(["porteiro/apns has no connection"])
    try await DashboardHarness.with(listen: "0.0.0.0", readiness: readiness) { dashboard in
      let answer = try await dashboard.get("/readyz")
      #expect(answer.status == 503 && answer.body == "not ready\n")
      #expect(try await dashboard.get("/readyz", headers: [Self.key]).body == "porteiro/apns has no connection\n")
    }
    try await DashboardHarness.with(listen: "0.0.0.0") { (dashboard: DashboardHarness) async throws in
      #expect(try await dashboard.get("/readyz").body == "ready\n")
      #expect(try await dashboard.get("/readyz", headers: [Self.key]).body == "ready\nporteiro/fcm: a remark\n")
    }
    try await DashboardHarness.with(readiness: readiness) { (dashboard: DashboardHarness) async throws in
      #expect(try await dashboard.get("/readyz").body == "porteiro/apns has no connection\n")
    }
  }

  // MARK: - Cookies

  @Test func `with TLS, a session's cookie is sent over TLS only`() async throws {
    func cookie(_ dashboard: DashboardHarness, host: String? = nil, origin: String? = nil) async throws -> String {
      let login = #"{"key": "\#(DashboardHarness.key)"}"#
      let answer = try await dashboard.send("POST", "/ui/session", login, host: host, origin: origin)
      #expect(answer.status == 200)
      return answer.headers["set-cookie"] ?? ""
    }
    try await DashboardHarness.with(hosts: ["push.example.com"]) { dashboard in
      // Behind a proxy with TLS that passes the Host on.
      let proxied = try await cookie(dashboard, host: "push.example.com", origin: "https://push.example.com")
      #expect(proxied.hasPrefix("__Host-push-gateway=") && proxied.hasSuffix("; Secure"))
      let value = try #require(proxied.split(separator: ";").first)
      let asked = ["Cookie: \(value)"]
      #expect(try await dashboard.send("GET", "/ui/state", host: "push.example.com", headers: asked).status == 200)
      // Another site of the domain may set a cookie with the other name, which is ignored.
      let tossed = ["Cookie: \(value.dropFirst("__Host-".count))"]
      #expect(try await dashboard.send("GET", "/ui/state", host: "push.example.com", headers: tossed).status == 401)
    }
    try await DashboardHarness.with { (dashboard: DashboardHarness) async throws in
      #expect(try await cookie(dashboard).hasPrefix("push-gateway="))
      let origin = "https://127.0.0.1:\(dashboard.port)"
      #expect(try await cookie(dashboard, origin: origin).hasSuffix("; Secure"))
    }
    try await DashboardHarness.with(isTLS: true) { (dashboard: DashboardHarness) async throws in
      #expect(try await cookie(dashboard).hasSuffix("; Secure"))
    }
  }

  // MARK: - Guessing

  @Test func `a guesser keeps nobody from logging in or reading, at any address`() async throws {
    let proxy = TrustedProxies([try #require(IPRange("127.0.0.1"))])
    try await DashboardHarness.with(access: .init(trustedProxies: proxy)) { dashboard in
      try await withThrowingTaskGroup(of: Int.self) { tasks in
        for _ in 0..<30 {
          tasks.addTask {
            try await dashboard.send(
              "POST", "/ui/session", #"{"key": "guess"}"#, headers: ["X-Forwarded-For: 192.0.2.1"]
            ).status
          }
        }
        // At least one request was refused, so the guesser's limit is used up. Good keys are still accepted, even from
        // that address.
        while let status = try await tasks.next(), status != 429 {}
        for number in 1...9 {
          let visitor = try await dashboard.logIn(headers: ["X-Forwarded-For: 192.0.2.\(number)"])
          #expect(!visitor.token.isEmpty)
          let headers = ["X-Forwarded-For: 192.0.2.\(number)", Self.key]
          #expect(try await dashboard.get("/metrics", headers: headers).status == 200)
        }
        try await tasks.waitForAll()
      }
    }
  }

  @Test func `guessing with requests is slowed down like guessing at the login`() async throws {
    try await DashboardHarness.with(listen: "0.0.0.0") { dashboard in
      let statuses = try await withThrowingTaskGroup(of: Int.self) { tasks in
        for _ in 0..<30 {
          tasks.addTask { try await dashboard.get("/metrics", headers: ["Authorization: Bearer guess"]).status }
        }
        return try await tasks.reduce(into: [Int]()) { $0.append($1) }
      }
      #expect(Set(statuses) == [401, 429])
    }
  }

  // MARK: - Names

  @Test func `each key has a name, which the audit and the page show`() async throws {
    let file = try KeyFile("alices-own-key-of-more-than-thirty-two-characters")
    let access = GatewayConfiguration.OpsAccess(opsKeys: [OpsKey(name: "alice", file: file.path)])
    try await DashboardHarness.with(access: access) { dashboard in
      try await dashboard.database.execute("select push.register_lane('porteiro', 'fcm')")
      let alice = try await dashboard.logIn("alices-own-key-of-more-than-thirty-two-characters")
      let session = try await dashboard.get("/ui/session", headers: ["Cookie: \(alice.cookie)"]).json
      #expect(session["name"] as? String == "alice" && session["canLogOut"] as? Bool == true)
      #expect(try await dashboard.switchLane(alice).status == 200)
      let ops = try await dashboard.logIn()
      #expect(try await dashboard.switchLane(ops, paused: false).status == 200)
      #expect(
        try await dashboard.database.value(
          "select string_agg(concat_ws(' ', action, operator), ', ' order by id) from push.audit")
          == "pause_lane alice, resume_lane ops")
      let overview = try await dashboard.get("/ui/state").json["overview"] as? [String: Any]
      let audit = try #require(overview?["audit"] as? [[String: Any]])
      #expect(audit.compactMap { $0["operator"] as? String } == ["ops", "alice"])
    }
  }
}

/// A file with a key, which is removed with the object.
final class KeyFile {
  let path = FileManager.default.temporaryDirectory.appending(path: "key-\(UUID().uuidString)").path

  init(_ key: String) throws { try write(key) }
  deinit { try? FileManager.default.removeItem(atPath: path) }

  func write(_ key: String) throws { try SecretFixture.write(key, to: path) }
}
