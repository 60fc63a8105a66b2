// The section apps.APP.webhook: its values, and every kind of error.

import SettingsTestSupport
import Testing

@testable import Settings

@Suite struct WebhookConfigurationTests {
  private let folder = try! ConfigurationFolder()

  private static func yaml(_ webhook: String) -> String {
    "database: postgres://db/x\napps:\n  a:\n    expo: {}\n    webhook: { \(webhook) }\n"
  }

  @Test func `an app has no webhook unless it is configured`() throws {
    let configuration = try folder.load("database: postgres://db/x\napps: { a: { expo: } }")
    #expect(configuration.apps[0].webhook == nil)
  }

  @Test func `omitted keys have the documented defaults`() throws {
    let configuration = try folder.load(Self.yaml("url: \"https://backend.example/hook?k=1\", secret_file: token"))
    #expect(
      configuration.apps[0].webhook
        == .init(
          url: "https://backend.example/hook?k=1", host: "backend.example", secretFile: folder.path + "/token",
          events: nil, timeoutMilliseconds: 10_000))
  }

  @Test func `all keys`() throws {
    let configuration = try folder.load(
      Self.yaml(
        "url: \"https://[2001:db8::1]:8443\", secret_file: token, events: \"call.ended, token.dead\", timeout_seconds: 1.5"
      ))
    let webhook = try #require(configuration.apps[0].webhook)
    #expect(webhook.host == "[2001:db8::1]:8443")
    #expect(webhook.events == ["call.ended", "token.dead"])
    #expect(webhook.timeoutMilliseconds == 1500)
  }

  @Test func `clear text is accepted on a loopback address`() throws {
    for host in ["127.0.0.1:1", "127.8.9.1", "localhost:80", "[::1]:8080"] {
      #expect(try folder.message(Self.yaml("url: \"http://\(host)/x\", secret_file: token")) == "", "\(host)")
    }
  }

  private static let faults: [(webhook: String, message: String)] = [
    ("secret_file: token", "url: is missing; it may also be given as PUSH_GATEWAY_APPS_A_WEBHOOK_URL"),
    (
      "url: \"https://b.example\"",
      "secret_file: is missing; it may also be given as PUSH_GATEWAY_APPS_A_WEBHOOK_SECRET_FILE"
    ),
    (
      "url: \"http://b.example\", secret_file: token",
      "url: must begin with https://; http:// is accepted on a loopback address only"
    ),
    (
      "url: \"http://127.0.0.1.b.example\", secret_file: token",
      "url: must begin with https://; http:// is accepted on a loopback address only"
    ),
    ("url: b.example, secret_file: token", "url: must be a URL such as https://backend.example.com/push-events"),
    (
      "url: \"https://u:p@b.example\", secret_file: token",
      "url: must not contain a user name or password: the receiver checks the signature"
    ),
    (
      "url: \"https://b.example:0/x\", secret_file: token",
      "url: has no valid host and port (1 to 65535); it must look like https://backend.example.com/push-events"
    ),
    (
      "url: \"https://b.example/#x\", secret_file: token",
      "url: must be a URL in ASCII without a fragment (#), such as https://backend.example.com/push-events"
    ),
    (
      "url: \"https://b.example\", secret_file: token, events: call.end",
      "events: unknown type call.end; did you mean call.ended?"
    ),
    (
      "url: \"https://b.example\", secret_file: token, timeout_seconds: 31",
      "timeout_seconds: must be a number of seconds from 1 to 30"
    ),
  ]

  @Test(arguments: faults) func `every fault is named`(webhook: String, message: String) throws {
    let said = try folder.message(Self.yaml(webhook))
    #expect(said.hasSuffix("apps.a.webhook." + message), "\(said)")
    #expect(!said.contains("u:p@"))
  }
}
