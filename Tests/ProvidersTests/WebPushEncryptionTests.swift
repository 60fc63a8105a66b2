// Tests of message encryption: against the example of RFC 8291, against messages that Python's cryptography has encrypted
// (Tests/webpush/fixture.py), and against the simulated browser, whose decryption shares no code with it.

import Foundation
import Runtime
import Simulators
import Testing

@testable import Providers

/// The example of RFC 8291 §5 and Appendix A.
private enum RFC8291 {
  static let plaintext = "When I grow up, I want to be a watermelon"
  static let auth = "BTBZMqHH6r4Tts7J_aSIgg"
  static let salt = "DGv6ra1nlYgDCS1FRnbzlw"
  static let senderPrivate = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
  static let senderPublic = "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8"
  static let browserPrivate = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"
  static let browserPublic = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
  static let header =
    "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A"
  static let body = header + "_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"

  static func bytes(_ text: String) -> [UInt8] { Base64URL.decode(Array(text.utf8))! }

  /// A key of a private scalar and its public point: PKCS#8 of RFC 5915's ECPrivateKey.
  static func key(_ scalar: String, _ point: String) throws -> KeyAgreementKey {
    let der =
      [
        0x30, 0x81, 0x87, 0x02, 0x01, 0x00, 0x30, 0x13, 0x06, 0x07, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x02, 0x01, 0x06,
        0x08,
        0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x03, 0x01, 0x07, 0x04, 0x6D, 0x30, 0x6B, 0x02, 0x01, 0x01, 0x04, 0x20,
      ] + bytes(scalar) + [0xA1, 0x44, 0x03, 0x42, 0x00] + bytes(point)
    let pem = """
      -----BEGIN PRIVATE KEY-----
      \(Data(der).base64EncodedString(options: .lineLength64Characters))
      -----END PRIVATE KEY-----

      """
    return try KeyAgreementKey(pem: Array(pem.utf8), source: "RFC 8291")
  }

  static func browser() throws -> WebPushBrowser {
    WebPushBrowser(key: try key(browserPrivate, browserPublic), auth: bytes(auth))
  }

  static func encrypt(_ plaintext: [UInt8]) throws -> [UInt8] {
    let token = "https://push.example.net/push/JzLQ3raZJfFBR0aqvOMsLrt54w4rJUsV#auth=\(auth)&p256dh=\(browserPublic)"
    let subscription = try WebPushSubscription(token: Array(token.utf8)[...])
    return try #require(
      WebPushEncryption.encrypt(
        plaintext, for: subscription, with: key(senderPrivate, senderPublic), salt: bytes(salt)))
  }
}

@Suite(.timeLimit(.minutes(10))) struct WebPushEncryptionTests {
  @Test func `the example of RFC 8291 is encrypted to the bytes of the RFC`() throws {
    let body = try RFC8291.encrypt(Array(RFC8291.plaintext.utf8))
    #expect(body == RFC8291.bytes(RFC8291.body))
  }

  @Test func `both sides of the RFC's example share its secret`() throws {
    let sender = try RFC8291.key(RFC8291.senderPrivate, RFC8291.senderPublic)
    let browser = try RFC8291.key(RFC8291.browserPrivate, RFC8291.browserPublic)
    #expect(sender.point == RFC8291.bytes(RFC8291.senderPublic))
    let secret = RFC8291.bytes("kyrL1jIIOHEzg3sM2ZWRHDRB62YACZhhSlknJ672kSs")
    #expect(sender.sharedSecret(with: try #require(KeyAgreementPoint(browser.point))) == secret)
    #expect(browser.sharedSecret(with: try #require(KeyAgreementPoint(sender.point))) == secret)
  }

  @Test(
    arguments: [
      ("", "-nWA9JFLVeQ32ERULH8YEUcA"),
      (#"{"callId":"c1","from":"ä"}"#, "_e3dhUDr7TcgOG8e1I-Akd-3fruPkPSGpBsWV-rY02EQR44ZRoN0ASjSPkvQ"),
    ])
  func `a message is encrypted to the same bytes as by Python's cryptography`(text: String, record: String) throws {
    #expect(try RFC8291.encrypt(Array(text.utf8)) == RFC8291.bytes(RFC8291.header + record))
  }

  @Test func `the largest message has 4096 bytes, the same as by Python's cryptography`() throws {
    #expect(WebPushEncryption.plaintextBytesMax == 3_993)
    let body = try RFC8291.encrypt((0..<3_993).map { UInt8($0 % 251) })
    #expect(body.count == 4_096)
    #expect(
      String(decoding: SHA256.hexDigest(body), as: UTF8.self)
        == "6e99bb1302b503e187e2a161058b159c16f96fcd0b4ec052c18eff1d634237e1")
  }

  @Test func `the simulated browser decrypts the RFC's example and messages of Python's cryptography`() throws {
    let browser = try RFC8291.browser()
    #expect(browser.decrypt(RFC8291.bytes(RFC8291.body)) == Array(RFC8291.plaintext.utf8))
    let padded =
      RFC8291.header
      + "_e3dhUDr7TcgOG8e1I-Fg9nQWE1ds1aqnlkxh84dqQK5S_PlhDYA66NmGSrn-vYxvmbRlXhZXvEXTAYK6TMg"
    #expect(browser.decrypt(RFC8291.bytes(padded)) == Array(#"{"callId":"c1"}"#.utf8))
  }

  @Test func `the simulated browser refuses a message in which any byte was changed`() throws {
    let browser = try RFC8291.browser()
    let body = RFC8291.bytes(RFC8291.body)
    for place in body.indices where !(16..<20).contains(place) {  // the record size is not authenticated
      var changed = body
      changed[place] ^= 1
      #expect(browser.decrypt(changed) == nil, "byte \(place)")
    }
    #expect(browser.decrypt(body.dropLast()) == nil)
    #expect(browser.decrypt([]) == nil)
  }

  @Test(arguments: [0, 1, 15, 16, 17, 500, 3_993])
  func `what the gateway encrypts, the browser decrypts, and every message has a key and a salt of its own`(count: Int)
    throws
  {
    let browser = try #require(WebPushBrowser.generate())
    let subscription = try WebPushSubscription(
      token: Array(browser.token(endpoint: "https://push.example.net/push/a").utf8)[...])
    let plaintext = (0..<count).map { UInt8($0 % 256) }
    var salts: Set<[UInt8]> = []
    var keys: Set<[UInt8]> = []
    for _ in 0..<20 {
      let body = try #require(WebPushEncryption.encrypt(plaintext, for: subscription))
      #expect(body.count == count + 103)
      #expect(browser.decrypt(body) == plaintext)
      salts.insert(Array(body[..<16]))
      keys.insert(Array(body[21..<86]))
    }
    #expect(salts.count == 20 && keys.count == 20)
    // Another browser, or the same with another secret, reads nothing.
    let body = try #require(WebPushEncryption.encrypt(plaintext, for: subscription))
    #expect(try #require(WebPushBrowser.generate()).decrypt(body) == nil)
    #expect(WebPushBrowser(key: browser.key, auth: [UInt8](repeating: 7, count: 16)).decrypt(body) == nil)
  }

  @Test func `a point that is not on the curve is no key`() throws {
    let key = try #require(KeyAgreementKey.generate())
    #expect(KeyAgreementPoint(key.point) != nil)
    var point = key.point
    point[64] ^= 1
    #expect(KeyAgreementPoint(point) == nil)
    #expect(VerifyingKey(point: point) == nil)
    #expect(KeyAgreementPoint([]) == nil)
    #expect(KeyAgreementPoint([UInt8](repeating: 0, count: 65)) == nil)
    #expect(KeyAgreementPoint([0x02] + key.point[1..<33]) == nil)  // compressed
  }

  @Test func `HKDF and AES-128-GCM give the values of their standards`() {
    // RFC 5869, Appendix A.1, the first 32 bytes
    let pseudorandom = HKDFSHA256.extract([UInt8](repeating: 0x0B, count: 22), salt: Array(0x00...0x0C))
    #expect(hex(pseudorandom) == "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5")
    #expect(
      hex(HKDFSHA256.expand(pseudorandom, info: Array(0xF0...0xF9), count: 32))
        == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf")
    // The Galois/Counter Mode of Operation (McGrew, Viega), test case 2
    let sealed = AES128GCM.seal(
      [UInt8](repeating: 0, count: 16), key: [UInt8](repeating: 0, count: 16), nonce: [UInt8](repeating: 0, count: 12))
    #expect(hex(sealed) == "0388dace60b6a392f328c2b971b2fe78ab6e47d42cec13bdf53a67b21257bddf")
  }

  private func hex(_ bytes: [UInt8]) -> String {
    bytes.map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
  }
}
