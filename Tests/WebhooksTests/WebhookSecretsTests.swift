// Secrets and signatures. The expected signatures were computed with Python's hmac.

import Foundation
import Testing

@testable import Webhooks

@Suite struct WebhookSecretsTests {
  /// The bytes 0 to 31, and 100 to 131.
  private static let first = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
  private static let second = "whsec_ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoM="

  private func load(_ text: String) throws -> WebhookSecrets {
    let file = FileManager.default.temporaryDirectory.appending(path: "webhook-\(UUID()).secret")
    defer { try? FileManager.default.removeItem(at: file) }
    try Data(text.utf8).write(to: file)
    try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file.path)
    return try WebhookSecrets.load(file: file.path)
  }

  private func signature(_ text: String) throws -> String {
    try load(text).signature(id: "evt_1", timestamp: "1764086400", body: Array(#"{"type":"call.ended"}"#.utf8))
  }

  @Test func `a request is signed as Standard Webhooks says`() throws {
    #expect(try signature(Self.first + "\n") == "v1,g8ooSvgG5G0dicOvwlLAIwiokKMB5rUPJWr+VndF5uo=")
  }

  @Test func `with two secrets there are two signatures, in the order of the lines`() throws {
    #expect(
      try signature("\(Self.first)\n\(Self.second)\n")
        == "v1,g8ooSvgG5G0dicOvwlLAIwiokKMB5rUPJWr+VndF5uo= v1,sTNZlPEPYpARkVNuxcs+CbOhyFdaGXXi8/u6DGiaoe4=")
  }

  @Test(arguments: [
    "", "\n", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "whsec_", "whsec_AAEC", "whsec_!!!!",
    "whsec_" + String(repeating: "AAAA", count: 22), "\(Self.first)\nx",
  ])
  func `anything else is refused, without being quoted`(text: String) {
    do {
      _ = try load(text)
      Issue.record("it was taken")
    } catch {
      #expect("\(error)".contains("expected a line whsec_"))
      #expect(!"\(error)".contains("AAEC"))
    }
  }

  @Test func `three secrets are refused`() {
    #expect(throws: WebhookSecrets.Failure.self) { try load("\(Self.first)\n\(Self.second)\n\(Self.first)") }
  }

  @Test func `a file that everybody may read is refused`() throws {
    let file = FileManager.default.temporaryDirectory.appending(path: "webhook-\(UUID()).secret")
    defer { try? FileManager.default.removeItem(at: file) }
    try Data(Self.first.utf8).write(to: file)
    try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: file.path)
    #expect(throws: WebhookSecrets.Failure.self) { try WebhookSecrets.load(file: file.path) }
  }
}
