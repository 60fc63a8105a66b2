// The keys api.* of the configuration.

import SettingsTestSupport
import Testing

@testable import Settings

struct APIConfigurationTests {
  private let folder = try! ConfigurationFolder()

  private func load(_ api: String) throws -> GatewayConfiguration.API? {
    try folder.load("database: postgres://db/x\napps: { a: { expo: } }\n\(api)").api
  }

  @Test func `the API is off by default, and has the documented limits when it is on`() throws {
    #expect(try load("") == nil)
    #expect(try load("api: { listen: 0.0.0.0:9000 }") == nil)
    #expect(
      try load("api: { enabled: true }")
        == GatewayConfiguration.API(
          listener: .init(host: "127.0.0.1", port: 8081), bodyMaxBytes: 65_536, requestTimeoutSeconds: 10,
          busyAfterSeconds: 5, ratePerSecond: 1000, connectionsMax: 512, database: .init(url: "postgres://db/x"),
          trustedProxies: []))
  }

  @Test func `proxies are named by addresses and networks`() throws {
    let wide = try load("api: { enabled: true, trusted_proxies: '11.0.0.0/8, fc00::/7, fd00::/8, 2001::/16' }")
    #expect(wide?.trustedProxies.count == 4)
    let proxies = try #require(try load("api: { enabled: true, trusted_proxies: '10.1.2.3/8, ::1' }")).trustedProxies
    #expect(proxies.map(\.description) == ["10.0.0.0/8", "::1"])
  }

  @Test func `networks that are too wide are refused as proxies, and so are names`() throws {
    func message(_ proxies: String) throws -> String {
      try folder.message(
        "database: postgres://db/x\napps: { a: { expo: } }\napi: { trusted_proxies: '\(proxies)' }")
    }
    for wide in ["0.0.0.0/0", "0.0.0.0/1, 128.0.0.0/1", "10.0.0.0/7", "::/1, 8000::/1", "2000::/3", "2a00::/12"] {
      #expect(try message(wide).contains("is too wide"), "\(wide)")
    }
    #expect(try message("10.0.0.1, proxy.internal").contains("must be addresses or networks"))
  }

  @Test(arguments: [
    "enabled: maybe", "listen: nowhere", "body_max_bytes: 10", "request_timeout_seconds: 0", "busy_after_seconds: 601",
    "rate_per_second: 0", "connections_max: 0", "limit: 5",
    "trusted_proxies: 10.0.0.0/33", "trusted_proxies: '::/0'",
  ])
  func `a wrong value is an error even while the API is off`(_ setting: String) {
    #expect(throws: ConfigurationError.self) { try load("api: { \(setting) }") }
  }
}
