// The results of check-config for good keys and for every kind of bad one.

import HTTPSurfaceTestSupport
import Foundation
import HTTP2TestSupport
import Providers
import Runtime
import Testing

@testable import Gateway
@testable import HTTPSurface
@testable import Settings
@testable import Simulators

@Suite(.timeLimit(.minutes(10))) struct CredentialCheckTests {
  /// A configuration with the files that `simulate` makes. The caller removes its directory.
  private func configuration() throws -> (configuration: GatewayConfiguration, material: SimulatorMaterial) {
    let material = try SimulatorMaterial()
    try material.writeServiceAccount(tokenURI: "https://127.0.0.1:1/token")
    try material.writeConfiguration(
      SimulatorEndpoints(
        apnsProduction: "https://127.0.0.1:1", apnsSandbox: "https://127.0.0.1:2", fcm: "https://127.0.0.1:3",
        token: "https://127.0.0.1:3/token", expo: "https://127.0.0.1:4", webPush: "https://127.0.0.1:5"),
      database: "postgres://127.0.0.1/push")
    return (try GatewayConfiguration.load(file: material.configurationFile, environment: [:]), material)
  }

  private func failures(_ configuration: GatewayConfiguration) -> [String] {
    CredentialCheck.all(of: configuration).compactMap { check in
      if case .failure(let failure) = check.result { "\(check.subject): \(failure)" } else { nil }
    }
  }

  @Test func `every key of the configuration that simulate writes is good`() throws {
    let (configuration, material) = try configuration()
    defer { try? FileManager.default.removeItem(atPath: material.directory) }
    let checks = CredentialCheck.all(of: configuration)
    let app = material.identity.app
    #expect(
      checks.map(\.subject) == [
        "tls.ca_file", "dashboard.ops_key_file", "apps.\(app)", "apps.\(app).apns", "apps.\(app).fcm",
        "apps.\(app).expo", "apps.\(app).webpush",
      ])
    #expect(failures(configuration) == [])
    guard case .success(let found)? = checks.last?.result else { return }
    #expect(
      found.hasSuffix(try WebPushCredentials(key: material.webPushKey, subject: "mailto:ops@example.com").publicKey))
  }

  @Test func `a VAPID key and its subject are checked, each under its own key`() throws {
    let (good, material) = try configuration()
    defer { try? FileManager.default.removeItem(atPath: material.directory) }
    var configuration = good
    configuration.apps[0].webPush?.subject = "mailto:nobody"
    #expect(failures(configuration).count == 1)
    #expect(failures(configuration)[0].hasPrefix("apps.porteiro.webpush.subject: VAPID subject: must"))
    configuration = good
    try SecretFixture.write(material.fcmKey.privateKeyPEM(), to: material.webPushKeyFile)
    #expect(failures(configuration).count == 1)
    #expect(failures(configuration)[0].hasPrefix("apps.porteiro.webpush.vapid_key_file: VAPID "))
  }

  @Test(arguments: ["not a key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", ""])
  func `every bad file is named, and its content never`(content: String) throws {
    let (configuration, material) = try configuration()
    defer { try? FileManager.default.removeItem(atPath: material.directory) }
    let files = [
      material.authorityFile, material.apnsKeyFile, material.serviceAccountFile, material.expoAccessTokenFile,
    ]
    for file in files { try SecretFixture.write(content, to: file) }
    let failures = failures(configuration)
    #expect(failures.count >= 3)  // some content is a good access token
    for file in files.prefix(3) { #expect(failures.contains { $0.contains(file) }, "\(failures)") }
    if !content.isEmpty { #expect(!failures.contains { $0.contains(content) }) }
  }

  @Test func `an RSA key is refused as APNs key`() throws {
    let (configuration, material) = try configuration()
    defer { try? FileManager.default.removeItem(atPath: material.directory) }
    try SecretFixture.write(material.fcmKey.privateKeyPEM(), to: material.apnsKeyFile)
    let failures = failures(configuration)
    #expect(failures.count == 1)
    #expect(failures[0].contains("apns") && failures[0].contains("RSA"))
  }

  @Test func `each key that others may read is refused, unless that is allowed`() throws {
    let (configuration, material) = try configuration()
    defer { try? FileManager.default.removeItem(atPath: material.directory) }
    let opsKey = material.directory + "/ops-key"
    try SecretFixture.write(String(repeating: "k", count: 40), to: opsKey)
    let secrets = [material.apnsKeyFile, material.serviceAccountFile, material.expoAccessTokenFile, opsKey]
    var withOpsKey = configuration
    withOpsKey.opsAccess.opsKeys = [OpsKey(name: "ops", file: opsKey)]
    withOpsKey.httpTLS = .init(certificateFile: material.certificateFile, keyFile: material.certificateKeyFile)
    #expect(failures(withOpsKey) == [])
    for file in secrets + [material.certificateKeyFile] {
      try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: file)
      let failures = failures(withOpsKey)
      #expect(failures.count == 1, "\(failures)")
      #expect(failures.first?.contains("\(file): its mode 0644 lets every user of this machine read") == true)
      var waived = withOpsKey
      waived.secretPrivacy = .waived
      waived.opsAccess.opsKeys = [OpsKey(name: "ops", file: opsKey, privacy: .waived)]
      #expect(self.failures(waived) == [])
      try FileManager.default.setAttributes([.posixPermissions: 0o640], ofItemAtPath: file)
    }
    #expect(failures(withOpsKey) == [])
  }

  @Test func `a listener's certificate must match its key, and must not have expired`() throws {
    let (configuration, material) = try configuration()
    defer { try? FileManager.default.removeItem(atPath: material.directory) }
    let pki = try ListenerPKI()
    var api = GatewayConfiguration.API(
      listener: .init(host: "0.0.0.0", port: 1), bodyMaxBytes: 1, requestTimeoutSeconds: 1, busyAfterSeconds: 1,
      ratePerSecond: 1, connectionsMax: 1, database: .init(url: ""))
    api.tls = pki.settings(clients: .optional)
    var with = configuration
    with.api = api
    with.httpTLS = pki.settings()
    with.http.host = "0.0.0.0"
    #expect(failures(with) == [])
    let details = CredentialCheck.all(of: with).filter { $0.subject.hasSuffix(".tls") }.map { try? $0.result.get() }
    #expect(details.count == 2 && details.allSatisfy { $0?.contains("good until 2") == true })
    #expect(details.last??.contains("clients' certificates (optional) by \(pki.ours.caFile)") == true)

    // With TLS nothing is sent in clear text. A certificate that expires soon is named.
    let end = try ListenerCertificate(pki.settings(), privacy: .required).expiresAtSeconds
    func remarks(_ seconds: Int64) -> [String] { SecurityRemarks.all(of: with, wallMilliseconds: seconds * 1000) }
    #expect(remarks(end - 15 * 86_400) == [])
    #expect(
      remarks(end - 13 * 86_400).map { $0.prefix { $0 != ":" } } == [
        "http.tls.certificate_file", "api.tls.certificate_file",
      ])
    #expect(remarks(end + 1) == [])
    #expect(
      CredentialCheck.all(of: with, wallMilliseconds: (end + 1) * 1000).filter {
        if case .failure(let failure) = $0.result { "\(failure)".contains("expired on 2") } else { false }
      }.map(\.subject) == ["http.tls.certificate_file", "api.tls.certificate_file"])
    // A gateway still starts with it.
    #expect(throws: Never.self) {
      try CredentialCheck.require(with, from: ConfigurationFile(path: nil, environment: [:]))
    }

    try pki.install(keyOf: pki.others)
    #expect(failures(with).count == 2)
    #expect(
      failures(with)[0].hasPrefix(
        "http.tls.key_file: \(pki.keyFile) is not the key of the first certificate in \(pki.certificateFile): name"))
    for (file, what) in [(pki.keyFile, "private key"), (pki.certificateFile, "certificate")] {
      try SecretFixture.write("-----BEGIN NOTHING-----", to: file)
      #expect(
        failures(with).allSatisfy {
          $0.contains("\(file): holds a PEM block of another kind: expected a \(what) in PEM form")
        }, "\(failures(with))")
    }
  }
}
