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
    Unfit(name: "public key", pem: KeyFixtures.ecPublic, algorithm: .es256, reason: .notAPrivateKey),
    Unfit(name: "empty", pem: "", algorithm: .es256, reason: .notAPrivateKey),
    Unfit(name: "no PEM", pem: "hello", algorithm: .rs256, reason: .notAPrivateKey),
    Unfit(name: "cut off", pem: String(KeyFixtures.pkcs8.prefix(120)), algorithm: .es256, reason: .notAPrivateKey),
    Unfit(
      name: "broken inside", pem: KeyFixtures.pkcs8.replacing("MIGH", with: "AAAA"), algorithm: .es256,
      reason: .notAPrivateKey),
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
