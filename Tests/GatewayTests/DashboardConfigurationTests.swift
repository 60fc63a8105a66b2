// The keys dashboard.* of the configuration.

import HTTPSurfaceTestSupport
import SettingsTestSupport
import Testing

@testable import Console
@testable import Gateway
@testable import Settings

struct DashboardConfigurationTests {
  private let folder = try! ConfigurationFolder()

  private func load(_ dashboard: String) throws -> GatewayConfiguration {
    try folder.load("database: postgres://db/x\napps: { a: { expo: } }\n\(dashboard)")
  }

  @Test func `the dashboard is on and read-only by default`() throws {
    #expect(try load("").hasDashboard && load("").opsAccess == GatewayConfiguration.OpsAccess())
    #expect(try !load("dashboard: { enabled: false }").hasDashboard)
    #expect(
      try load("dashboard: { hosts: 'push.example.com, 10.0.0.7 [fd00::1]' }").opsAccess.hosts
        == ["push.example.com", "10.0.0.7", "[fd00::1]"])
    #expect(
      try load("http: { hosts: a.example }\ndashboard: { hosts: b.example }").opsAccess.hosts == [
        "a.example", "b.example",
      ])
  }

  @Test func `ops keys have names, from the file and the environment`() throws {
    for name in ["a.key", "b.key", "o.key"] { try folder.write("x", to: name) }
    let yaml = "dashboard: { ops_key_file: o.key, ops_keys: { alice: a.key, Bob.B: b.key } }"
    #expect(try load(yaml).opsAccess.opsKeys.map(\.name) == ["Bob.B", "alice", "ops"])
    let configuration = try folder.load(
      "database: postgres://db/x\napps: { a: { expo: } }",
      ["PUSH_GATEWAY_DASHBOARD_OPS_KEYS_CARLA": folder.path + "/a.key"])
    #expect(configuration.opsAccess.opsKeys == [OpsKey(name: "carla", file: folder.path + "/a.key")])
    #expect(throws: ConfigurationError.self) {
      try load("dashboard: { ops_key_file: o.key, ops_keys: { ops: a.key } }")
    }
  }

  @Test func `two names with the same key are refused at the start, and the error has both names`() async throws {
    let key = "an-ops-key-of-more-than-thirty-two-characters"
    for name in ["a.key", "b.key"] { try folder.write(key + "\n", to: name) }
    try folder.write("another-ops-key-of-more-than-thirty-two-characters", to: "c.key")
    for (keys, fault) in [
      ("dashboard: { ops_keys: { alice: a.key, bob: b.key } }", "dashboard.ops_keys.bob: "),
      ("dashboard: { ops_keys: { alice: a.key } }\nhttp: { metrics_key_file: b.key }", "http.metrics_key_file: "),
    ] {
      let configuration = try load(keys)
      let error = #expect(throws: ConfigurationError.self) {
        try CredentialCheck.require(configuration, from: ConfigurationFile(path: nil, environment: [:]))
      }
      #expect(error?.description.contains(fault) == true, "\(keys)")
      try folder.write("database: postgres://db/x\napps: { a: { expo: } }\n\(keys)\n", to: "gateway.yaml")
      let run = try await OperationsFixture.run("", ["serve", "--config", folder.path + "/gateway.yaml"])
      #expect(run.status == 78 && run.errors.contains(fault), "\(run)")
      #expect(
        run.errors.contains("holds the same key as dashboard.ops_keys.alice") && !run.errors.contains(key), "\(run)")
    }
    #expect(throws: Never.self) {
      try CredentialCheck.require(
        load("dashboard: { ops_keys: { alice: a.key, bob: c.key } }"),
        from: ConfigurationFile(path: nil, environment: [:]))
    }
  }

  private static let identity =
    "header: Cf-Access-Jwt-Assertion, issuer: 'https://team.example', audience: abc, jwks_file: token, allowed: 'a@x.example @y.example'"

  @Test func `the name of an identity is its email by default`() throws {
    let identity = try #require(try load("dashboard: { identity: { \(Self.identity) } }").opsAccess.identity)
    #expect(identity.header == "Cf-Access-Jwt-Assertion" && identity.keysFile == folder.path + "/token")
    #expect(
      identity.rules
        == IdentityRules(
          issuer: "https://team.example", audience: "abc", nameClaim: "email", allowed: ["a@x.example", "@y.example"]))
    let named = try load("dashboard: { identity: { \(Self.identity), name_claim: sub } }").opsAccess.identity
    #expect(named?.rules.nameClaim == "sub")
    for (right, wrong) in [
      ("header: Cf-Access-Jwt-Assertion", "header: 'a b'"), ("header: Cf-Access-Jwt-Assertion", "header: Cookie"),
      ("issuer: 'https://team.example', ", ""), ("audience: abc, ", ""), ("jwks_file: token", "jwks_file: nowhere"),
      (", allowed: 'a@x.example @y.example'", ""), ("@y.example", "@"),
    ] {
      #expect(throws: ConfigurationError.self, "\(wrong)") {
        try load("dashboard: { identity: { \(Self.identity.replacing(right, with: wrong)) } }")
      }
    }
  }

  @Test(arguments: [
    "trusted_proxies: 10.0.0.0/33", "trusted_proxies: proxy.example", "metrics_key_file: nowhere", "hosts: 'a:80'",
  ])
  func `a wrong value of the listener is an error`(setting: String) {
    #expect(throws: ConfigurationError.self) { try load("http: { \(setting) }") }
  }

  @Test(arguments: [
    "enabled: maybe", "ops_key_file: nowhere.key", "hosts: 'https://push.example.com'", "hosts: push.example.com:80",
    "key: x",
  ])
  func `a wrong value is an error even while the dashboard is off`(_ setting: String) {
    #expect(throws: ConfigurationError.self) { try load("dashboard: { enabled: false, \(setting) }") }
    #expect(throws: ConfigurationError.self) { try load("dashboard: { \(setting) }") }
  }

  @Test func `check-config reports a key that is too short without quoting it`() throws {
    try folder.write("short-secret", to: "short.key")
    try folder.write(DashboardHarness.key, to: "long.key")
    func result(_ file: String) throws -> String {
      let checks = CredentialCheck.all(of: try load("dashboard: { ops_key_file: \(file) }"))
      let check = try #require(checks.first { $0.subject == "dashboard.ops_key_file" })
      switch check.result {
      case .success(let found): return found
      case .failure(let failure): return failure.description
      }
    }
    #expect(
      try result("short.key").hasSuffix(
        "short.key: must contain a key of at least 32 characters, for example from openssl rand -hex 32"))
    #expect(try result("long.key").hasPrefix("a key in "))
    let twice = try load(
      "dashboard: { ops_key_file: long.key, ops_keys: { alice: long.key } }\nhttp: { metrics_key_file: long.key }")
    let failures = CredentialCheck.all(of: twice).filter { if case .failure = $0.result { true } else { false } }
    #expect(failures.map(\.subject) == ["dashboard.ops_key_file", "http.metrics_key_file"])
  }
}
