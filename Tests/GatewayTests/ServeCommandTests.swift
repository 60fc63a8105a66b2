// What `serve` refuses before it opens a listener, with the built program.

import HTTPSurfaceTestSupport
import Foundation
import HTTP2TestSupport
import Queue
import Runtime
import TestSupport
import Testing

@testable import Gateway
@testable import Settings
@testable import Simulators

@Suite(.timeLimit(.minutes(10))) struct ServeCommandTests {
  /// Valid files, and an invalid one for each.
  private final class Files {
    let material: SimulatorMaterial
    let pki: ListenerPKI
    let opsKey: String

    init() throws {
      material = try SimulatorMaterial()
      pki = try ListenerPKI()
      opsKey = material.directory + "/ops.key"
      try material.writeServiceAccount(tokenURI: "https://127.0.0.1:1/token")
      try material.writeConfiguration(
        SimulatorEndpoints(
          apnsProduction: "https://127.0.0.1:1", apnsSandbox: "https://127.0.0.1:2", fcm: "https://127.0.0.1:3",
          token: "https://127.0.0.1:3/token", expo: "https://127.0.0.1:4"),
        database: "postgres://127.0.0.1/push")
      try SecretFixture.write(String(repeating: "k", count: 40), to: opsKey)
    }

    deinit { try? FileManager.default.removeItem(atPath: material.directory) }

    func run(_ command: String, _ database: String, listen: String = "127.0.0.1:0", api: String = "127.0.0.1:0")
      async throws -> CommandRun
    {
      try await OperationsFixture.run(
        database, [command, "--config", material.configurationFile],
        environment: [
          "PUSH_GATEWAY_HTTP_LISTEN": listen, "PUSH_GATEWAY_API_ENABLED": "true",
          "PUSH_GATEWAY_API_LISTEN": api, "PUSH_GATEWAY_API_TLS_CERTIFICATE_FILE": pki.certificateFile,
          "PUSH_GATEWAY_API_TLS_KEY_FILE": pki.keyFile, "PUSH_GATEWAY_API_TLS_CLIENT_CA_FILE": pki.ours.caFile,
          "PUSH_GATEWAY_DASHBOARD_OPS_KEY_FILE": opsKey,
        ])
    }
  }

  /// Nothing listens there, so the command ends early only because of what is checked before the database.
  private static let nowhere = "postgres://push@127.0.0.1:1/push?connect_timeout=1"

  @Test(arguments: [
    "api.tls.key_file", "api.tls.certificate_file", "apps.porteiro.apns.key_file",
    "apps.porteiro.fcm.service_account_file", "dashboard.ops_key_file",
  ])
  func `a key file that cannot be used ends it with 78 and the key of the configuration`(key: String) async throws {
    let files = try Files()
    switch key {
    case "api.tls.key_file": try files.pki.install(keyOf: files.pki.others)
    case "api.tls.certificate_file": try SecretFixture.write("nothing", to: files.pki.certificateFile)
    case "apps.porteiro.apns.key_file": try SecretFixture.write("nothing", to: files.material.apnsKeyFile)
    case "dashboard.ops_key_file": try SecretFixture.write("short", to: files.opsKey)
    default: try SecretFixture.write("nothing", to: files.material.serviceAccountFile)
    }
    let served = try await files.run("serve", Self.nowhere)
    #expect(served.status == 78 && served.output.isEmpty, "\(served)")
    let sentences = served.errors.split(separator: "\n")
    #expect(
      sentences.count == 1
        && [
          "\(files.material.configurationFile):",
          "environment variable \(ConfigurationKey.variable(for: key.split(separator: ".").map(String.init)))",
        ]
        .contains { sentences[0].hasPrefix("Error: " + $0) } && sentences[0].contains(": \(key): "),
      "\(served)")
    let checked = try await files.run("check-config", Self.nowhere)
    #expect(checked.status == 78)
    let failed = checked.output.split(separator: "\n").filter { $0.hasPrefix("FAILED") }
    #expect(failed.count == 1, "\(failed)")
    // The messages are the same.
    let words = failed.first?.dropFirst("FAILED  ".count) ?? ""
    #expect(!words.isEmpty && sentences.first?.hasSuffix(words) == true, "\(failed) \(sentences)")
  }

  @Test func `an old schema is refused before anything listens`() async throws {
    let files = try Files()
    // A listener that cannot be opened. A command that tried to open it would end with another message.
    let loop = EventLoop(name: "taken")
    let taken = try TCPListener(on: SocketAddress(numericHost: "127.0.0.1", port: 0)!, loop: loop)
    defer { loop.stop() }
    try await TestDatabase.with(.empty) { database in
      let served = try await files.run("serve", database.url, listen: "127.0.0.1:\(taken.port)")
      #expect(served.status == 1)
      #expect(served.errors.contains("run `push-gateway migrate` first"), "\(served)")
    }
  }

  @Test(arguments: ["http.listen", "api.listen"])
  func `a listener whose port is in use is named, and the database is not queried in a busy loop`(key: String)
    async throws
  {
    let files = try Files()
    let loop = EventLoop(name: "taken")
    let taken = try TCPListener(on: SocketAddress(numericHost: "127.0.0.1", port: 0)!, loop: loop)
    defer { loop.stop() }
    try await TestDatabase.with(.migrated) { database in
      let address = "127.0.0.1:\(taken.port)"
      let served = try await files.run(
        "serve", database.url, listen: key == "http.listen" ? address : "127.0.0.1:0",
        api: key == "api.listen" ? address : "127.0.0.1:0")
      #expect(served.status == 1)
      #expect(
        served.errors.contains("Error: \(key): cannot listen on \(address): another process listens there"), "\(served)"
      )
      // A few times if the database is slow.
      #expect(served.errors.split(separator: "\n").count { $0.contains("trying again") } <= 10, "\(served)")
    }
  }
}
