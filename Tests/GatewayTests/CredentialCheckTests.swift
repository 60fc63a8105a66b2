// What check-config finds in keys that are right, and in every kind that is wrong.

import Foundation
import Runtime
import Testing

@testable import Gateway
@testable import Simulators

@Suite(.timeLimit(.minutes(2))) struct CredentialCheckTests {
  /// A configuration that uses what `simulate` makes; its folder is removed by the caller.
  private func configuration() throws -> (configuration: GatewayConfiguration, material: SimulatorMaterial) {
    let material = try SimulatorMaterial()
    try material.writeServiceAccount(tokenURI: "https://127.0.0.1:1/token")
    try material.writeConfiguration(
      SimulatorEndpoints(
        apnsProduction: "https://127.0.0.1:1", apnsSandbox: "https://127.0.0.1:2", fcm: "https://127.0.0.1:3",
        token: "https://127.0.0.1:3/token", expo: "https://127.0.0.1:4"),
      database: "postgres://127.0.0.1/push")
    return (try GatewayConfiguration.load(file: material.configurationFile, environment: [:]), material)
  }

  private func failures(_ configuration: GatewayConfiguration) -> [String] {
    CredentialCheck.all(of: configuration).compactMap { check in
      if case .failure(let failure) = check.result { "\(check.subject): \(failure)" } else { nil }
    }
  }

  @Test func `what simulate writes is good, key by key`() throws {
    let (configuration, material) = try configuration()
    defer { try? FileManager.default.removeItem(atPath: material.directory) }
    let checks = CredentialCheck.all(of: configuration)
    let app = material.identity.app
    #expect(
      checks.map(\.subject) == [
        "tls.ca_file", "dashboard.ops_key_file", "apps.\(app)", "apps.\(app).apns", "apps.\(app).fcm",
        "apps.\(app).expo",
      ])
    #expect(failures(configuration) == [])
  }

  @Test(arguments: ["not a key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", ""])
  func `every bad file is named, and its content never`(content: String) throws {
    let (configuration, material) = try configuration()
    defer { try? FileManager.default.removeItem(atPath: material.directory) }
    let files = [
      material.authorityFile, material.apnsKeyFile, material.serviceAccountFile, material.expoAccessTokenFile,
    ]
    for file in files { try content.write(toFile: file, atomically: true, encoding: .utf8) }
    let failures = failures(configuration)
    #expect(failures.count >= 3)  // some content is a good access token
    for file in files.prefix(3) { #expect(failures.contains { $0.contains(file) }, "\(failures)") }
    if !content.isEmpty { #expect(!failures.contains { $0.contains(content) }) }
  }

  @Test func `an RSA key is no APNs key`() throws {
    let (configuration, material) = try configuration()
    defer { try? FileManager.default.removeItem(atPath: material.directory) }
    try Data(try material.fcmKey.privateKeyPEM()).write(to: URL(fileURLWithPath: material.apnsKeyFile))
    let failures = failures(configuration)
    #expect(failures.count == 1)
    #expect(failures[0].contains("apns") && failures[0].contains("RSA"))
  }
}
