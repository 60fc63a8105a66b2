// Tests of the VAPID key, its subject, and when tokens are signed.

import Foundation
import Runtime
import Testing

@testable import Providers

@Suite(.timeLimit(.minutes(10))) struct WebPushCredentialsTests {
  private let clock = SettableClock()
  private let key: SigningKey
  private let credentials: WebPushCredentials
  private let source: WebPushTokenSource

  init() throws {
    key = try SigningKey.generate(for: .es256)
    credentials = try WebPushCredentials(key: key, subject: "mailto:ops@example.com")
    let origin = try #require(WebPushOrigin(authority: Array("push.example.com:8443".utf8)[...]))
    source = WebPushTokenSource(credentials, for: origin, clock: clock)
  }

  /// The JWT and the parameter `k` of a token.
  private func parts(_ token: ProviderToken) throws -> (jwt: JSONWebToken, key: String) {
    let text = String(decoding: token.value, as: UTF8.self)
    let parts = text.components(separatedBy: ", k=")
    try #require(parts.count == 2)
    return (try #require(JSONWebToken(compact: Array(parts[0].utf8))), parts[1])
  }

  @Test func `a token has the origin, the contact and an expiry within a day, and is signed by the key it names`()
    async throws
  {
    let (jwt, publicKey) = try parts(try await source.token(replacing: nil))
    #expect(String(decoding: jwt.header, as: UTF8.self) == #"{"typ":"JWT","alg":"ES256"}"#)
    let expiry = 1_700_000_000 + 12 * 3_600
    #expect(
      String(decoding: jwt.claims, as: UTF8.self)
        == #"{"aud":"https://push.example.com:8443","exp":\#(expiry),"sub":"mailto:ops@example.com"}"#)
    let point = try #require(Base64URL.decode(Array(publicKey.utf8)))
    #expect(point.count == 65 && point[0] == 4)
    #expect(jwt.isSigned(by: try #require(VerifyingKey(point: point))))
    #expect(jwt.isSigned(by: try key.verifyingKey()))
    #expect(credentials.publicKey == publicKey)
  }

  @Test func `one token is used for six hours`() async throws {
    let first = try await source.token(replacing: nil)
    clock.advance(minutes: 359)
    #expect(try await source.token(replacing: nil) == first)
    clock.advance(minutes: 1)
    #expect(try await source.token(replacing: nil) != first)
  }

  @Test func `a refused token is replaced at once, and so is one from the future`() async throws {
    let first = try await source.token(replacing: nil)
    #expect(try await source.token(replacing: first).value != first.value)  // ECDSA signatures differ
    let second = try await source.token(replacing: nil)
    clock.advance(minutes: -60)
    let third = try await source.token(replacing: nil)
    #expect(third.issuedAtMilliseconds < second.issuedAtMilliseconds)
  }

  @Test(
    arguments: [
      "", "ops@example.com", "mailto:", "mailto:ops", "mailto:@example.com", "mailto:a@b@example.com",
      "mailto:ops@localhost", "mailto:ops@printer.local", "https://localhost", "https://", "http://example.com",
      "mailto:ops @example.com", "mailto:öps@example.com", "mailto:ops@example.", "https://127.localhost",
    ])
  func `a contact that push services refuse is refused, with the reason`(subject: String) throws {
    #expect(throws: WebPushCredentials.Fault.self) { try WebPushCredentials(key: key, subject: subject) }
    do { _ = try WebPushCredentials(key: key, subject: subject) } catch {
      #expect("\(error)".hasPrefix("VAPID subject: must "))
    }
  }

  @Test(arguments: ["mailto:ops@example.com", "https://example.com", "https://example.com:8443/contact"])
  func `a mail address and a URL are accepted`(subject: String) throws {
    #expect(try WebPushCredentials(key: key, subject: subject).subject == subject)
  }

  @Test func `a key that is not EC on P-256 is refused, and the error names the file`() throws {
    let path = FileManager.default.temporaryDirectory.appending(path: "vapid-\(UUID()).pem").path()
    defer { try? FileManager.default.removeItem(atPath: path) }
    let rsa = try SigningKey.generate(for: .rs256)
    _ = FileManager.default.createFile(
      atPath: path, contents: Data(try rsa.privateKeyPEM()), attributes: [.posixPermissions: 0o600])
    do {
      _ = try WebPushCredentials(keyFile: path, subject: "mailto:ops@example.com")
      Issue.record("accepted")
    } catch {
      #expect("\(error)".hasPrefix("VAPID key \(path): "))
    }
    _ = FileManager.default.createFile(
      atPath: path, contents: Data(try key.privateKeyPEM()), attributes: [.posixPermissions: 0o600])
    #expect(
      try WebPushCredentials(keyFile: path, subject: "mailto:ops@example.com").publicKey == credentials.publicKey)
  }
}
