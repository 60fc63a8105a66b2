// The warnings of check-config, and its check of the limit of open files.

import HTTPSurfaceTestSupport
import SettingsTestSupport
import Testing

@testable import Gateway
@testable import Settings

@Suite struct SecurityRemarksTests {
  private let folder: ConfigurationFolder

  init() throws { folder = try ConfigurationFolder() }

  private func configuration(_ environment: [String: String]) throws -> GatewayConfiguration {
    try folder.load(
      "database: postgres:///push\napi: { enabled: true }\napps: { porteiro: { expo: } }\n", environment)
  }

  @Test func `what stays on this machine causes no warning`() throws {
    #expect(SecurityRemarks.all(of: try configuration([:])) == [])
  }

  @Test(arguments: [
    ("PUSH_GATEWAY_HTTP_LISTEN", "0.0.0.0:8080", "http.listen"),
    ("PUSH_GATEWAY_API_LISTEN", "10.0.0.1:8081", "api.listen"),
    ("DATABASE_URL", "postgres://u@db.example/push", "database"),
    ("DATABASE_URL", "postgres://u@db.example/push?sslmode=prefer", "database"),
  ])
  func `what is sent over the network in clear text is named`(key: String, value: String, named: String) throws {
    let remarks = SecurityRemarks.all(of: try configuration([key: value])).filter { !$0.hasPrefix("dashboard.") }
    #expect(remarks.count == 1 && remarks[0].hasPrefix("\(named): "), "\(remarks)")
  }

  @Test func `a listener that other machines reach, without a configured login, is named with the keys to set`() throws
  {
    try folder.write(DashboardHarness.key, to: "ops.key")
    let key = ["PUSH_GATEWAY_DASHBOARD_OPS_KEY_FILE": folder.path + "/ops.key"]
    for reached in [
      ["PUSH_GATEWAY_HTTP_LISTEN": "0.0.0.0:8080"], ["PUSH_GATEWAY_HTTP_HOSTS": "push.example.com"],
      ["PUSH_GATEWAY_HTTP_TRUSTED_PROXIES": "10.0.0.7"],
    ] {
      func remark(_ more: [String: String] = [:]) throws -> String? {
        SecurityRemarks.all(of: try configuration(reached.merging(more) { $1 })).first { $0.hasPrefix("dashboard.") }
      }
      #expect(try remark()?.contains("/metrics refuse everyone") == true)
      #expect(
        try remark(["PUSH_GATEWAY_HTTP_METRICS_KEY_FILE": folder.path + "/ops.key"])?.contains("http.metrics_key_file")
          == false)
      #expect(try remark(key) == nil)
    }
  }

  @Test func `a proxy's password that is sent over the network in clear text is named once, with the proxy`() throws {
    for (url, count) in [("http://proxy.example:3128", 1), ("http://127.0.0.1:3128", 0)] {
      let environment = ["PUSH_GATEWAY_PROXY_URL": url, "PUSH_GATEWAY_PROXY_CREDENTIALS_FILE": folder.path + "/token"]
      let remarks = SecurityRemarks.all(of: try configuration(environment))
      #expect(remarks.count == count, "\(remarks)")
      #expect(remarks.allSatisfy { $0.hasPrefix("proxy.credentials_file: ") && $0.contains("proxy.example:3128") })
      #expect(SecurityRemarks.all(of: try configuration(["PUSH_GATEWAY_PROXY_URL": url])) == [])
    }
  }

  @Test func `a database that is reached only with TLS causes no warning`() throws {
    let url = "postgres://u@db.example/push?sslmode=verify-full"
    #expect(SecurityRemarks.all(of: try configuration(["DATABASE_URL": url])) == [])
  }

  @Test func `connections that exceed the limit of open files are named, with the remedy`() throws {
    let configuration = try configuration([
      "PUSH_GATEWAY_API_CONNECTIONS_MAX": "2000"
    ])
    let need = DescriptorLimit.need(of: configuration)
    #expect(need > 2_000 + 128)
    #expect(DescriptorLimit.fault(of: configuration, under: need) == nil)
    let fault = try #require(DescriptorLimit.fault(of: configuration, under: need - 5))
    #expect(
      fault.contains("the limit is \(need - 5)") && fault.contains("api.connections_max")
        && fault.contains("by 5 in total"))
  }

  @Test func `the default configuration fits into 1,024 open files`() throws {
    #expect(DescriptorLimit.fault(of: try configuration([:]), under: 1_024) == nil)
  }

  @Test func `the limits of connections are lowered in proportion, and refused if too few would be left`() throws {
    let wanted = try configuration(["PUSH_GATEWAY_API_CONNECTIONS_MAX": "1152"])
    let need = DescriptorLimit.need(of: wanted)
    #expect(DescriptorLimit.fitted(wanted, under: need)?.api?.connectionsMax == 1_152)
    let half = try #require(DescriptorLimit.fitted(wanted, under: need - 640))
    #expect(half.httpConnectionsMax == 64 && half.api?.connectionsMax == 576)
    for limit in (need - 1_248)..<need {
      let fitted = try #require(DescriptorLimit.fitted(wanted, under: limit))
      #expect(DescriptorLimit.need(of: fitted) == limit)
      #expect(fitted.httpConnectionsMax >= 16 && (fitted.api?.connectionsMax ?? 0) >= 16)
    }
    #expect(DescriptorLimit.fitted(wanted, under: need - 1_249) == nil)
  }

  @Test func `configured limits below the minimum are not raised`() throws {
    let wanted = try configuration(["PUSH_GATEWAY_HTTP_CONNECTIONS_MAX": "4", "PUSH_GATEWAY_API_ENABLED": "false"])
    let need = DescriptorLimit.need(of: wanted)
    #expect(DescriptorLimit.fitted(wanted, under: need)?.httpConnectionsMax == 4)
    #expect(DescriptorLimit.fitted(wanted, under: need - 1) == nil)
  }
}
