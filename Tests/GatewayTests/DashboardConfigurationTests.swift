// The keys dashboard.* of the configuration.

import Testing

@testable import Gateway

struct DashboardConfigurationTests {
  private let folder = try! ConfigurationFolder()

  private func load(_ dashboard: String) throws -> GatewayConfiguration {
    try folder.load("database: postgres://db/x\napps: { a: { expo: } }\n\(dashboard)")
  }

  @Test func `the dashboard is on, to be looked at, unless it is switched off`() throws {
    #expect(try load("").dashboard == GatewayConfiguration.Dashboard(opsKeyFile: nil, hosts: []))
    #expect(try load("dashboard: { enabled: false }").dashboard == nil)
    #expect(
      try load("dashboard: { hosts: 'push.example.com, 10.0.0.7 [fd00::1]' }").dashboard?.hosts
        == ["push.example.com", "10.0.0.7", "[fd00::1]"])
  }

  @Test(arguments: [
    "enabled: maybe", "ops_key_file: nowhere.key", "hosts: 'https://push.example.com'", "hosts: push.example.com:80",
    "key: x",
  ])
  func `a wrong value is an error even while the dashboard is off`(_ setting: String) {
    #expect(throws: ConfigurationError.self) { try load("dashboard: { enabled: false, \(setting) }") }
    #expect(throws: ConfigurationError.self) { try load("dashboard: { \(setting) }") }
  }

  @Test func `a key that is too short is told by check-config, and not repeated`() throws {
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
        "short.key: must hold a key of at least 32 characters, such as openssl rand -hex 32 makes"))
    #expect(try result("long.key").hasPrefix("a key in "))
  }
}
