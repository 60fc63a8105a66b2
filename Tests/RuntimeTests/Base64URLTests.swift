// Tests of base64url with RFC 4648's vectors and with invalid texts.

import Runtime
import Testing

@Suite(.timeLimit(.minutes(10))) struct Base64URLTests {
  @Test(arguments: [
    ("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg"), ("fooba", "Zm9vYmE"),
    ("foobar", "Zm9vYmFy"),
  ])
  func `the vectors of RFC 4648 are encoded without padding`(plain: String, encoded: String) {
    #expect(Base64URL.encode(Array(plain.utf8)) == Array(encoded.utf8))
    #expect(Base64URL.decode(Array(encoded.utf8)) == Array(plain.utf8))
  }

  @Test func `the URL alphabet is used`() {
    #expect(Base64URL.encode([0xFB, 0xFF, 0xBF]) == Array("-_-_".utf8))
  }

  @Test func `every byte and length survives the round trip`() {
    for length in 0...260 {
      let bytes = (0..<length).map { UInt8(truncatingIfNeeded: $0 * 7 + length) }
      #expect(Base64URL.decode(Base64URL.encode(bytes)) == bytes)
    }
  }

  @Test(arguments: ["Z", "Zg==", "Zm9v\n", "+/+/", "Zm9vY", "Zh", "Zm9", "Zm 9v", "Zm9vé", "."])
  func `a text that no encoder writes is refused`(text: String) {
    #expect(Base64URL.decode(Array(text.utf8)) == nil)
  }
}
