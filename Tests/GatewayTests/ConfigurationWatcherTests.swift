// What a running gateway changes when its configuration is read again.

import Foundation
import HTTP2TestSupport
import Logging
import Providers
import Queue
import Runtime
import Synchronization
import Testing

@testable import Console
@testable import Gateway
@testable import Settings
@testable import Simulators

/// Keeps log messages.
private final class LogKeeper: Sendable {
  private let kept = Mutex<[String]>([])
  var messages: [String] { kept.withLock { $0 } }
  func keep(_ message: String) { kept.withLock { $0.append(message) } }
}

private struct KeepingHandler: LogHandler {
  let keeper: LogKeeper
  var metadata: Logger.Metadata = [:]
  var logLevel = Logger.Level.trace

  subscript(metadataKey key: String) -> Logger.Metadata.Value? {
    get { metadata[key] }
    set { metadata[key] = newValue }
  }

  func log(event: LogEvent) {
    let provider = event.metadata?["provider"].map { " \($0)" } ?? ""
    keeper.keep("\(event.message)\(provider)")
  }
}

@Suite("Configuration watcher", .timeLimit(.minutes(10))) struct ConfigurationWatcherTests {
  /// A watcher of the files that `simulate` makes, without providers or a database.
  ///
  /// - Parameter more: text appended to the configuration.
  private static func with(
    _ more: String = "",
    _ body: (ConfigurationWatcher, SimulatorMaterial, LogThreshold, LogKeeper) async throws -> Void
  ) async throws {
    let material = try SimulatorMaterial()
    try material.writeServiceAccount(tokenURI: "https://127.0.0.1:1/token")
    try material.writeConfiguration(
      SimulatorEndpoints(
        apnsProduction: "https://127.0.0.1:1", apnsSandbox: "https://127.0.0.1:2", fcm: "https://127.0.0.1:3",
        token: "https://127.0.0.1:3/token", expo: "https://127.0.0.1:4"),
      database: "postgres://127.0.0.1/push")
    defer { try? FileManager.default.removeItem(atPath: material.directory) }
    try edit(material) { $0 + more }
    let configuration = try GatewayConfiguration.load(file: material.configurationFile, environment: [:])
    let keeper = LogKeeper()
    let logger = Logger(label: "test") { _ in KeepingHandler(keeper: keeper) }
    let loop = EventLoop(name: "credentials")
    let accounts = LaneAccounts(
      ProviderFactory(caFile: configuration.caFile, loop: loop, logger: logger), logger: logger)
    _ = try await accounts.make(for: configuration.apps)
    let threshold = LogThreshold(.info)
    let watcher = ConfigurationWatcher(
      source: ConfigurationFile(path: material.configurationFile, environment: [:]), configuration: configuration,
      accounts: accounts, threshold: threshold, logger: logger
    ) { apps in
      keeper.keep(
        "serves \(apps.map { "\($0.app.name) \($0.app.providers.map(\.rawValue).joined(separator: " "))" }.joined(separator: ", "))"
      )
    }
    try await body(watcher, material, threshold, keeper)
    loop.stop()
  }

  private static func edit(_ material: SimulatorMaterial, _ change: (String) -> String) throws {
    let text = try String(contentsOfFile: material.configurationFile, encoding: .utf8)
    try SecretFixture.write(change(text), to: material.configurationFile)
  }

  @Test("without a change, nothing is rotated")
  func unchanged() async throws {
    try await Self.with { watcher, _, _, keeper in
      await watcher.reload()
      #expect(keeper.messages == [])
    }
  }

  @Test("a new access token rotates its lane once, and no other lane")
  func rotated() async throws {
    try await Self.with { watcher, material, _, keeper in
      try SecretFixture.write("another-access-token", to: material.expoAccessTokenFile)
      await watcher.reload()
      await watcher.reload()
      #expect(keeper.messages == ["A lane's credentials have changed expo"])
    }
  }

  @Test("a file that cannot be used is logged, and the lane keeps its credentials")
  func unusable() async throws {
    try await Self.with { watcher, material, _, keeper in
      try SecretFixture.write("no key", to: material.apnsKeyFile)
      try SecretFixture.write("another-access-token", to: material.expoAccessTokenFile)
      await watcher.reload()
      #expect(
        keeper.messages == [
          "New credentials cannot be used: the current ones stay in use apns", "A lane's credentials have changed expo",
        ])
    }
  }

  @Test("a service account of another project gives the app a new connection, one of the same project does not")
  func otherProject() async throws {
    try await Self.with { watcher, material, _, keeper in
      let account = try String(contentsOfFile: material.serviceAccountFile, encoding: .utf8)
      for email in ["push-gateway@", "another@"] {
        let other = account.replacing("\"simulated-project\"", with: "\"other-project\"").replacing(
          "push-gateway@", with: email)
        try SecretFixture.write(other, to: material.serviceAccountFile)
        await watcher.reload()
      }
      #expect(
        // The other project's server does not exist.
        keeper.messages.filter { $0 != "no provider token" } == [
          "An app's settings have changed", "serves porteiro apns fcm expo", "A lane's credentials have changed fcm",
        ])
    }
  }

  @Test("a service account with another private key and the same ids rotates its lane once")
  func otherPrivateKey() async throws {
    try await Self.with { watcher, material, _, keeper in
      let account = try String(contentsOfFile: material.serviceAccountFile, encoding: .utf8)
      let other = try SimulatorMaterial()
      defer { try? FileManager.default.removeItem(atPath: other.directory) }
      try FileManager.default.removeItem(atPath: "\(other.directory)/fcm-key.pem")
      try SecretFixture.write(SigningKey.generate(for: .rs256).privateKeyPEM(), to: "\(other.directory)/fcm-key.pem")
      try SimulatorMaterial(directory: other.directory).writeServiceAccount(tokenURI: "https://127.0.0.1:1/token")
      let mended = try String(contentsOfFile: other.serviceAccountFile, encoding: .utf8)
      try SecretFixture.write(mended, to: material.serviceAccountFile)
      await watcher.look()
      await watcher.look()
      try SecretFixture.write(account, to: material.serviceAccountFile)
      await watcher.look()
      #expect(
        keeper.messages.filter { $0 != "no provider token" } == [
          "A lane's credentials have changed fcm", "A lane's credentials have changed fcm",
        ])
    }
  }

  @Test("an app is added, changed and removed, and the others keep their connections")
  func apps() async throws {
    try await Self.with { watcher, material, _, keeper in
      let original = try String(contentsOfFile: material.configurationFile, encoding: .utf8)
      let added = """
          zelador:
            expo: { url: "https://127.0.0.1:4" }

        """
      try Self.edit(material) { $0.replacing("apps:\n", with: "apps:\n" + added) }
      await watcher.reload()
      try Self.edit(material) { $0.replacing("zelador:\n", with: "zelador:\n    ring_seconds: 20\n") }
      await watcher.reload()
      await watcher.reload()
      try Self.edit(material) { _ in original }
      await watcher.reload()
      let both = "serves porteiro apns fcm expo, zelador expo"
      #expect(
        keeper.messages == [
          "An app is added", both, "An app's settings have changed", both,
          "An app is removed: its deliveries are no longer sent", "serves porteiro apns fcm expo",
        ])
    }
  }

  @Test("a new app whose key cannot be used is not served, and is as soon as the key is there")
  func unusableApp() async throws {
    try await Self.with { watcher, material, _, keeper in
      let key = material.directory + "/zelador.token"
      try SecretFixture.write("a-token", to: key, mode: 0o644)
      let added = """
          zelador:
            expo: { url: "https://127.0.0.1:4", access_token_file: \(key) }

        """
      try Self.edit(material) { $0.replacing("apps:\n", with: "apps:\n" + added) }
      await watcher.reload()
      #expect(keeper.messages == ["A new app cannot be served"])
      try SecretFixture.write("a-token", to: key, mode: 0o600)
      await watcher.reload()
      #expect(keeper.messages.suffix(2) == ["An app is added", "serves porteiro apns fcm expo, zelador expo"])
    }
  }

  @Test("other settings need a restart, which is logged")
  func restart() async throws {
    try await Self.with { watcher, material, _, keeper in
      try Self.edit(material) { $0 + "\nshutdown: { drain_seconds: 3 }\n" }
      await watcher.reload()
      await watcher.reload()
      #expect(
        keeper.messages == [
          "Settings have changed that take effect only after a restart: only apps, credentials and log.level do at once"
        ])
    }
  }

  @Test("new connections of all lanes of a proxy use its new credentials, once they can be read")
  func proxyCredentials() async throws {
    let file = FileManager.default.temporaryDirectory.appending(path: "proxy-\(UUID())").path()
    defer { try? FileManager.default.removeItem(atPath: file) }
    try SecretFixture.write("gateway:word", to: file)
    let proxy = "\nproxy: { url: \"http://proxy.test:3128\", credentials_file: \(file) }\n"
    try await Self.with(proxy) { watcher, _, _, keeper in
      await watcher.reload()
      #expect(keeper.messages == [])
      for text in ["gateway:other", "nothing of the kind", "gateway:third"] {
        try SecretFixture.write(text, to: file)
        await watcher.reload()
        await watcher.reload()
      }
      #expect(
        keeper.messages == [
          "A proxy's credentials have changed: new connections use them",
          "New credentials cannot be used: the current ones stay in use",
          "New credentials cannot be used: the current ones stay in use",
          "A proxy's credentials have changed: new connections use them",
        ])
    }
  }

  @Test("the log level follows the configuration")
  func level() async throws {
    try await Self.with { watcher, material, threshold, keeper in
      try Self.edit(material) { $0 + "\nlog: { level: warning }\n" }
      await watcher.reload()
      #expect(threshold.level == .warning)
      #expect(keeper.messages == ["The log level has changed"])
    }
  }

  @Test("an invalid configuration changes nothing")
  func broken() async throws {
    try await Self.with { watcher, material, threshold, keeper in
      try Self.edit(material) { $0 + "\nlog: { level: loud }\n" }
      try SecretFixture.write("another-access-token", to: material.expoAccessTokenFile)
      await watcher.reload()
      #expect(threshold.level == .info)
      #expect(keeper.messages == ["The configuration was not read again: the current one stays in use"])
    }
  }

  @Test("a configuration with a problem is read until it has none, and the problem is logged once")
  func repaired() async throws {
    try await Self.with { watcher, material, _, keeper in
      let templates = material.directory + "/templates.yaml"
      try Self.edit(material) {
        $0.replacing("    ring_seconds: 60\n", with: "    ring_seconds: 30\n    templates_file: \(templates)\n")
      }
      await watcher.look()
      await watcher.look()
      #expect(keeper.messages == ["The configuration was not read again: the current one stays in use"])
      // The file that was missing is none of the files of the configuration in use.
      try SecretFixture.write("{}", to: templates)
      await watcher.look()
      #expect(keeper.messages.suffix(2) == ["An app's settings have changed", "serves porteiro apns fcm expo"])
    }
  }

  @Test("a key that others may read is used as soon as its mode is corrected, though its content stays")
  func corrected() async throws {
    try await Self.with { watcher, material, _, keeper in
      try SecretFixture.write("another-access-token", to: material.expoAccessTokenFile, mode: 0o644)
      await watcher.look()
      await watcher.look()
      #expect(keeper.messages == ["New credentials cannot be used: the current ones stay in use expo"])
      try FileManager.default.setAttributes([.posixPermissions: 0o640], ofItemAtPath: material.expoAccessTokenFile)
      await watcher.look()
      #expect(keeper.messages.last == "A lane's credentials have changed expo")
    }
  }

  @Test("several reloads at once apply a change once")
  func atOnce() async throws {
    try await Self.with { watcher, material, _, keeper in
      let added = "  zelador:\n    expo: { url: \"https://127.0.0.1:4\" }\n"
      try Self.edit(material) { $0.replacing("apps:\n", with: "apps:\n" + added) }
      try SecretFixture.write("another-access-token", to: material.expoAccessTokenFile)
      await withTaskGroup { group in for _ in 0..<8 { group.addTask { await watcher.reload() } } }
      #expect(
        keeper.messages == [
          "A lane's credentials have changed expo", "An app is added", "serves porteiro apns fcm expo, zelador expo",
        ])
    }
  }

  @Test("a key that others may read is refused, and the lane keeps its credentials")
  func exposed() async throws {
    try await Self.with { watcher, material, _, keeper in
      try SecretFixture.write("another-access-token", to: material.expoAccessTokenFile, mode: 0o644)
      await watcher.reload()
      #expect(keeper.messages == ["New credentials cannot be used: the current ones stay in use expo"])
      try SecretFixture.write("another-access-token", to: material.expoAccessTokenFile, mode: 0o640)
      await watcher.reload()
      #expect(keeper.messages.last == "A lane's credentials have changed expo")
    }
  }
}
