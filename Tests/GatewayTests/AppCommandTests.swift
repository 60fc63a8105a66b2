// `push-gateway app add` on a real configuration file.

import Foundation
import HTTP2TestSupport
import Providers
import Testing

@testable import Settings
@testable import Simulators

@Suite(.timeLimit(.minutes(10))) struct AppCommandTests {
  private static func with(_ body: (SimulatorMaterial) async throws -> Void) async throws {
    let material = try SimulatorMaterial()
    defer { try? FileManager.default.removeItem(atPath: material.directory) }
    try material.writeServiceAccount(tokenURI: "https://127.0.0.1:1/token")
    try material.writeConfiguration(
      SimulatorEndpoints(
        apnsProduction: "https://127.0.0.1:1", apnsSandbox: "https://127.0.0.1:2", fcm: "https://127.0.0.1:3",
        token: "https://127.0.0.1:3/token", expo: "https://127.0.0.1:4"),
      database: "postgres://127.0.0.1/push")
    try await body(material)
  }

  private static func add(_ material: SimulatorMaterial, _ arguments: String...) async throws -> CommandRun {
    try await OperationsFixture.runGateway(["app", "add"] + arguments + ["--config", material.configurationFile])
  }

  private static func text(_ material: SimulatorMaterial) throws -> String {
    try String(contentsOfFile: material.configurationFile, encoding: .utf8)
  }

  @Test func `an app is added with its files, and the file keeps its mode and its other lines`() async throws {
    try await Self.with { material in
      let before = try Self.text(material)
      let run = try await Self.add(
        material, "zelador", "--dialect", "intercom", "--ring-seconds", "20", "--fcm-service-account-file",
        material.serviceAccountFile, "--expo-access-token-file", material.expoAccessTokenFile)
      #expect(run.status == 0, "\(run)")
      #expect(run.output.contains("  zelador:\n    dialect: intercom\n    ring_seconds: 20\n"))
      let after = try Self.text(material)
      for line in before.split(separator: "\n") { #expect(after.contains(line)) }
      let configuration = try GatewayConfiguration.load(file: material.configurationFile, environment: [:])
      let app = try #require(configuration.apps.first { $0.name == "zelador" })
      #expect(app.ringSeconds == 20 && app.providers == [.fcm, .expo])
      #expect(app.fcm?.serviceAccountFile == material.serviceAccountFile)
      let attributes = try FileManager.default.attributesOfItem(atPath: material.configurationFile)
      #expect(attributes[.posixPermissions] as? Int == 0o600)
      #expect(!FileManager.default.fileExists(atPath: material.configurationFile + ".draft"))
    }
  }

  @Test func `an app for browsers is added with its VAPID key`() async throws {
    try await Self.with { material in
      let run = try await Self.add(
        material, "zelador", "--webpush-vapid-key-file", material.webPushKeyFile, "--webpush-subject",
        "mailto:ops@example.com")
      #expect(run.status == 0, "\(run)")
      let configuration = try GatewayConfiguration.load(file: material.configurationFile, environment: [:])
      let app = try #require(configuration.apps.first { $0.name == "zelador" })
      #expect(app.providers == [.webpush] && app.webPush?.origins == .browsers)
      let alone = try await Self.add(material, "other", "--webpush-subject", "mailto:ops@example.com")
      #expect(alone.status == 64 && alone.errors.contains("--webpush-vapid-key-file"), "\(alone)")
    }
  }

  @Test func `what cannot be used leaves the file as it was, and says why`() async throws {
    try await Self.with { material in
      let before = try Self.text(material)
      try SecretFixture.write("no key", to: material.directory + "/bad.p8")
      for (arguments, reason) in [
        (["zelador", "--fcm-service-account-file", "missing.json"], "cannot read the file"),
        (
          [
            "zelador", "--apns-team-id", "T", "--apns-key-id", "K", "--apns-topic", "com.example", "--apns-key-file",
            material.directory + "/bad.p8",
          ], "apps.zelador.apns.key_file"
        ),
        (["zelador", "--expo", "--dialect", "unheard-of"], "unknown value unheard-of"),
        (["porteiro", "--expo"], "has an app porteiro already"),
      ] {
        let run = try await OperationsFixture.runGateway(
          ["app", "add"] + arguments + ["--config", material.configurationFile])
        #expect(run.status != 0 && run.errors.contains(reason), "\(arguments): \(run)")
        #expect(!run.errors.contains(".draft"))
        #expect(try Self.text(material) == before)
      }
      for arguments in [["zelador"], ["zelador", "--apns-team-id", "T"], ["-x", "--expo"], ["a/b", "--expo"]] {
        let run = try await OperationsFixture.runGateway(
          ["app", "add"] + arguments + ["--config", material.configurationFile])
        #expect(run.status == 64, "\(arguments): \(run)")
      }
    }
  }

  @Test func `a dry run prints the app and changes nothing`() async throws {
    try await Self.with { material in
      let before = try Self.text(material)
      let run = try await Self.add(material, "zelador", "--expo", "--dry-run")
      #expect(run.status == 0 && run.output.contains("  zelador:\n    expo: {}\n"), "\(run)")
      #expect(try Self.text(material) == before)
    }
  }
}
