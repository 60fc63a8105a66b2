// Tests of keys from files: every accepted form, and a clear error for every other one.

import Foundation
import HTTP2TestSupport
import Testing

@testable import Runtime

@Suite(.timeLimit(.minutes(10))) struct SigningKeyTests {
  /// A key text that test reports show by its name.
  struct Fixture: CustomTestStringConvertible, Sendable {
    let name: String
    let pem: String
    var testDescription: String { name }
  }

  static let message = Array("header.claims".utf8)

  @Test(arguments: [
    Fixture(name: "PKCS#8", pem: KeyFixtures.pkcs8), Fixture(name: "SEC1", pem: KeyFixtures.sec1),
    Fixture(name: "SEC1 after parameters", pem: KeyFixtures.sec1WithParameters),
  ])
  func `every PEM form of a P-256 key creates signatures that its public half verifies`(fixture: Fixture) throws {
    let key = try SigningKey(pem: Array(fixture.pem.utf8), for: .es256, source: "test")
    let signature = try key.sign(Self.message)
    #expect(signature.count == 64)
    let verifier = try VerifyingKey(pem: Array(KeyFixtures.ecPublic.utf8), for: .es256, source: "test")
    #expect(verifier.verify(signature, of: Self.message))
    #expect(try key.publicKeyPEM() == Array((KeyFixtures.ecPublic + "\n").utf8))
  }

  @Test(arguments: [
    Fixture(name: "PKCS#1", pem: KeyFixtures.pkcs1), Fixture(name: "PKCS#8", pem: KeyFixtures.rsaPKCS8),
  ])
  func `both PEM forms of an RSA key create the same signature`(fixture: Fixture) throws {
    let key = try SigningKey(pem: Array(fixture.pem.utf8), for: .rs256, source: "test")
    let signature = try key.sign(Self.message)
    #expect(signature.count == 256)
    #expect(try key.verifyingKey().verify(signature, of: Self.message))
    let other = try SigningKey(pem: Array(KeyFixtures.rsaPKCS8.utf8), for: .rs256, source: "test")
    #expect(try other.sign(Self.message) == signature)
  }

  @Test func `an ES256 signature always has the same length`() throws {
    // One signature in 128 has an r or s with a leading zero byte, which DER leaves out and JOSE does not.
    let key = try SigningKey.generate(for: .es256)
    let verifier = try key.verifyingKey()
    var shortNumbers = 0
    var number = 0
    while number < 1_000 || shortNumbers == 0 {
      number += 1
      let message = Array("\(number)".utf8)
      let signature = try key.sign(message)
      #expect(signature.count == 64)
      #expect(verifier.verify(signature, of: message))
      if signature[0] == 0 || signature[32] == 0 { shortNumbers += 1 }
    }
  }

  @Test(arguments: [SignatureAlgorithm.es256, .rs256])
  func `a changed message or signature is not verified`(algorithm: SignatureAlgorithm) throws {
    let key = try SigningKey.generate(for: algorithm)
    let verifier = try key.verifyingKey()
    let signature = try key.sign(Self.message)
    #expect(!verifier.verify(signature, of: Self.message + [0]))
    #expect(!verifier.verify(signature, of: []))
    for index in [0, signature.count / 2, signature.count - 1] {
      var changed = signature
      changed[index] ^= 1
      #expect(!verifier.verify(changed, of: Self.message))
    }
    for hostile in [
      [], [0], [UInt8](repeating: 0, count: 64), [UInt8](repeating: 0xFF, count: 64), Array(signature.dropLast()),
    ] {
      #expect(!verifier.verify(hostile, of: Self.message))
    }
    #expect(try !SigningKey.generate(for: algorithm).verifyingKey().verify(signature, of: Self.message))
  }

  struct Unfit: CustomTestStringConvertible, Sendable {
    let name: String
    let pem: String
    let algorithm: SignatureAlgorithm
    let reason: SigningKeyError.Reason
    var testDescription: String { name }
  }

  static let unfit = [
    Unfit(name: "P-384", pem: KeyFixtures.p384, algorithm: .es256, reason: .wrongCurve(found: "secp384r1")),
    Unfit(name: "RSA for ES256", pem: KeyFixtures.rsaPKCS8, algorithm: .es256, reason: .notEC(found: "RSA")),
    Unfit(name: "EC for RS256", pem: KeyFixtures.pkcs8, algorithm: .rs256, reason: .notRSA(found: "EC")),
    Unfit(name: "Ed25519", pem: KeyFixtures.ed25519, algorithm: .es256, reason: .notEC(found: "ED25519")),
    Unfit(name: "RSA 1024", pem: KeyFixtures.rsa1024, algorithm: .rs256, reason: .tooShort(bits: 1024)),
    Unfit(name: "PKCS#8 with a passphrase", pem: KeyFixtures.pkcs8Encrypted, algorithm: .es256, reason: .encrypted),
    Unfit(name: "SEC1 with a passphrase", pem: KeyFixtures.sec1Encrypted, algorithm: .es256, reason: .encrypted),
  ]

  @Test(arguments: unfit)
  func `a key that cannot be used is refused with reason and source, and is not quoted`(unfit: Unfit) throws {
    let error = try #require(throws: SigningKeyError.self) {
      _ = try SigningKey(pem: Array(unfit.pem.utf8), for: unfit.algorithm, source: "fcm.json (private_key)")
    }
    #expect(error.reason == unfit.reason)
    #expect(error.description.contains("fcm.json (private_key)"))
    for line in unfit.pem.split(separator: "\n") where !line.hasPrefix("-----") && line.count > 8 {
      #expect(!error.description.contains(line))
    }
  }

  /// What is in place of the key, and what the error calls it.
  private static let mistaken: [(name: String, bytes: [UInt8], says: String)] = {
    let key = KeyFixtures.pkcs8
    let body = key.split(separator: "\n").dropFirst().dropLast().joined(separator: "\n")
    let certificate = "-----BEGIN CERTIFICATE-----\n\(body)\n-----END CERTIFICATE-----\n"
    let texts: [(String, String, String)] = [
      ("a public key", KeyFixtures.ecPublic, "is a public key: expected a private key in PEM form, which begins with"),
      ("a certificate", certificate, "is a certificate: expected a private key"),
      (
        "a request", certificate.replacing("CERTIFICATE", with: "CERTIFICATE REQUEST"),
        "is a certificate request: expected"
      ),
      ("SSH", key.replacing("PRIVATE", with: "OPENSSH PRIVATE"), "is a private key for SSH: expected"),
      ("SSH, public", "ssh-ed25519 AAAAC3 me@host", "is a public key for SSH: expected"),
      ("JSON", #"{"type": "service_account"}"#, "is JSON (a service account's belongs to fcm.service_account_file)"),
      (
        "a service account", #"{"private_key": ""# + key.replacing("\n", with: #"\n"#) + #""}"#,
        "is JSON (a service account's belongs to fcm.service_account_file)"
      ),
      ("a web page", "<html>", "is XML or HTML"),
      ("nothing", "", "is empty: expected a private key"), ("blanks", " \n", "is empty: expected a private key"),
      ("a word", "hello", "holds no private key in PEM form: expected"),
      ("without its frame", body + body, "lacks its first and last line"),
      ("cut off", String(key.prefix(120)), "is cut off"),
      ("written-out line ends", key.replacing("\n", with: #"\n"#), #"has \n written out where its lines should end"#),
      ("blanks for line ends", key.replacing("\n", with: " "), "has lost its line ends"),
      ("in one line", key.replacing("\n", with: ""), "has lost its line ends"),
      ("indented", "  " + key.replacing("\n", with: "\n  "), "has indented lines"),
      ("CR", key.replacing("\n", with: "\r"), "has lines that end with CR only"),
      ("broken inside", key.replacing("MIGH", with: "AAAA"), "holds a private key in PEM form that is damaged"),
    ]
    let wide: [UInt8] = [0xFF, 0xFE] + key.utf16.flatMap { [UInt8($0 & 0xFF), UInt8($0 >> 8)] as [UInt8] }
    let others: [(String, [UInt8], String)] = [
      ("UTF-16", wide, "is UTF-16 text"),
      ("PKCS#12", [0x30, 0x82, 0x01, 0x00, 0x02, 0x01, 0x03, 0x30, 0x82, 0x00], "is a PKCS#12 file (.p12, .pfx)"),
      ("DER", [0x30, 0x81, 0x87, 0x02, 0x01, 0x00, 0x30, 0x13, 0x06, 0x07], "is a private key in DER form"),
      ("a certificate in DER", [0x30, 0x82, 0x01, 0x00, 0x30, 0x82, 0x00, 0xA0, 0x02, 0x01], "is in DER form"),
    ]
    return (texts.map { ($0.0, Array($0.1.utf8), $0.2) } + others).map { (name: $0.0, bytes: $0.1, says: $0.2) }
  }()

  @Test func `what is given instead of a private key is named, and not quoted`() {
    for (name, bytes, says) in Self.mistaken {
      let error = #expect(throws: SigningKeyError.self, "\(name)") {
        _ = try SigningKey(pem: bytes, for: .es256, source: "key.p8")
      }
      let text = error?.description ?? ""
      #expect(text.hasPrefix("key key.p8: " + says), "\(name): \(text)")
      #expect(!text.contains("MIGH") && !text.contains("\n"), "\(name): \(text)")
    }
  }

  @Test func `a certificate is expected where a key is given`() {
    let text = PEMDiagnosis.text(of: Array(KeyFixtures.pkcs8.utf8), expected: .certificate)
    #expect(
      text == "is a private key: expected a certificate in PEM form, which begins with '-----BEGIN CERTIFICATE-----'")
  }

  @Test func `a byte order mark before a key is passed over`() throws {
    let path = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString).path()
    defer { try? FileManager.default.removeItem(atPath: path) }
    try SecretFixture.write("\u{FEFF}" + KeyFixtures.pkcs8, to: path)
    #expect(try SecretFile.read(path) == Array(KeyFixtures.pkcs8.utf8))
    _ = try SigningKey.load(pemFile: path, for: .es256)
  }

  @Test func `a private key is not accepted as a public key`() {
    #expect(throws: SigningKeyError(.notAPublicKey, source: "x")) {
      _ = try VerifyingKey(pem: Array(KeyFixtures.pkcs8.utf8), for: .es256, source: "x")
    }
  }

  @Test func `key files are read, and the error for a faulty one names its fault`() throws {
    let folder = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString).path()
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: folder) }

    let good = folder + "/AuthKey.p8"
    try SecretFixture.write(KeyFixtures.pkcs8, to: good)
    #expect(try SigningKey.load(pemFile: good, for: .es256).source == good)

    let missing = folder + "/missing.p8"
    #expect(throws: SigningKeyError(.file(.missing), source: missing)) {
      _ = try SigningKey.load(pemFile: missing, for: .es256)
    }
    let large = folder + "/large.p8"
    try SecretFixture.write(String(repeating: "x", count: SecretFile.sizeMax + 1), to: large)
    #expect(throws: SigningKeyError(.file(.tooLarge), source: large)) {
      _ = try SigningKey.load(pemFile: large, for: .es256)
    }
    let error = #expect(throws: SigningKeyError.self) { _ = try SigningKey.load(pemFile: folder, for: .es256) }
    #expect(error?.description.contains(folder) == true)
    #expect(error?.description.contains("directory") == true)
  }
}
