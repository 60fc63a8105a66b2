// The keys of the paths of other push servers.

import SettingsTestSupport
import Testing

@testable import Settings

struct FrontsConfigurationTests {
  private let folder = try! ConfigurationFolder()
  private static let head = "database: postgres://db/x\n"
  private static let apps = """
    apps:
      a:
        fcm: { service_account_file: account.json }
        apns: { team_id: T, key_id: K, key_file: key.p8, topic: com.example }
        matrix: { voip: com.example.voip, apns: 'com.example.ios, com.example.ios.*', fcm: com.example.*, sandbox: '*.dev' }
      b: { expo: }

    """

  private func message(_ yaml: String) throws -> String { try folder.message(Self.head + yaml) }

  @Test func `both are off by default`() throws {
    let api = try folder.load(Self.head + "apps: { a: { expo: } }\napi: { enabled: true }").api
    #expect(api?.matrixNetworks == nil)
    #expect(api?.gorush == nil)
  }

  @Test func `everything that can be set`() throws {
    let configuration = try folder.load(
      Self.head + Self.apps.replacing("'*.dev'", with: "'com.example.voip, com.example.ios.dev'") + """
        api:
          enabled: true
          matrix: { networks: '192.0.2.7, 0.0.0.0/0' }
          gorush: { enabled: true, networks: 10.0.0.0/8, app: b, hide_tokens: false }
        """)
    #expect(configuration.api?.matrixNetworks?.map(\.description) == ["192.0.2.7", "0.0.0.0/0"])
    #expect(
      configuration.api?.gorush
        == GatewayConfiguration.Gorush(networks: [IPRange("10.0.0.0/8")!], app: "b", hidesTokens: false))
    let matrix = try #require(configuration.apps[0].matrix)
    #expect(matrix.patterns[.apns]?.map(\.description) == ["com.example.ios", "com.example.ios.*"])
    #expect(matrix.patterns[.fcm]?.first?.matches("com.example.android") == true)
    #expect(matrix.patterns[.voip]?.first?.matches("com.example.voip2") == false)
    #expect(matrix.sandbox.count == 2)
  }

  @Test(arguments: [
    ("matrix: { networks: nowhere }", "api.matrix.networks: must be addresses or networks"),
    ("matrix: { networks: '' }", "api.matrix.networks: must name at least one"),
    ("matrix: { }", "api.matrix.networks: is missing"),
    ("matrix: { hosts: x }", "api.matrix.hosts: unknown key"),
    ("gorush: { enabled: maybe }", "api.gorush.enabled: unknown value"),
    ("gorush: { networks: 10.0.0.0/8 }", "api.gorush.networks: needs api.gorush.app"),
    ("gorush: { app: a }", "api.gorush.app: needs api.gorush.networks"),
    ("gorush: { app: portero, networks: 10.0.0.1 }", "api.gorush.app: there is no app portero; did you mean porteiro?"),
  ])
  func `a wrong value of the API is explained`(_ setting: String, _ expected: String) throws {
    let matrix = setting.hasPrefix("matrix") ? "" : "matrix: { networks: 10.0.0.1 }, "
    let said = try message(
      "apps: { porteiro: { fcm: { service_account_file: account.json }, matrix: { fcm: x } } }\napi: { \(matrix)\(setting) }"
    )
    #expect(said.contains(expected), "\(said)")
  }

  @Test(arguments: [
    ("fcm: x", "apps.a.matrix.fcm: needs the section fcm", "expo: {}"),
    ("voip: x", "apps.a.matrix.voip: needs the section apns", "fcm: { service_account_file: account.json }"),
    ("{ }", "apps.a.matrix: must have at least one of voip, apns and fcm", "expo: {}"),
    ("fcm: 'a.*.b'", "an asterisk may stand only at the end", "fcm: { service_account_file: account.json }"),
    ("fcm: '*'", "an asterisk may stand only at the end", "fcm: { service_account_file: account.json }"),
    (
      "fcm: '\(String(repeating: "x", count: 65))'", "at most 64 characters",
      "fcm: { service_account_file: account.json }"
    ),
    (
      "{ fcm: x, sandbox: x }", "apps.a.matrix.sandbox: needs voip or apns",
      "fcm: { service_account_file: account.json }"
    ),
    ("fcm: 'x, y, x'", "x is already in apps.a.matrix.fcm", "fcm: { service_account_file: account.json }"),
  ])
  func `a wrong value of an app is explained`(_ matrix: String, _ expected: String, _ provider: String) throws {
    let said = try message(
      "apps: { a: { \(provider), matrix: \(matrix.hasPrefix("{") ? matrix : "{ \(matrix) }") } }\napi: { matrix: { networks: 10.0.0.1 } }"
    )
    #expect(said.contains(expected), "\(said)")
  }

  @Test func `one half without the other is a mistake`() throws {
    let fcm = "fcm: { service_account_file: account.json }"
    #expect(
      try message("apps: { a: { \(fcm) } }\napi: { matrix: { networks: 10.0.0.1 } }").contains(
        "api.matrix: is used by no app"))
    #expect(
      try message("apps: { a: { \(fcm), matrix: { fcm: x } } }").contains("apps.a.matrix: needs api.matrix.networks"))
    #expect(
      try message(
        "apps: { a: { \(fcm), matrix: { fcm: x } }, b: { \(fcm), matrix: { fcm: x } } }\napi: { matrix: { networks: 127.0.0.1 } }"
      )
      .contains("apps.b.matrix.fcm: x is already in apps.a.matrix.fcm"))
  }

  @Test func `variables set them`() throws {
    let configuration = try folder.load(
      Self.head + "apps: { a: { fcm: { service_account_file: account.json } } }",
      [
        "PUSH_GATEWAY_API_ENABLED": "true", "PUSH_GATEWAY_API_MATRIX_NETWORKS": "127.0.0.1",
        "PUSH_GATEWAY_APPS_A_MATRIX_FCM": "com.example.*", "PUSH_GATEWAY_API_GORUSH_ENABLED": "true",
      ])
    #expect(configuration.api?.matrixNetworks?.count == 1)
    #expect(configuration.api?.gorush == GatewayConfiguration.Gorush())
    #expect(configuration.apps[0].matrix?.patterns[.fcm]?.count == 1)
  }
}
