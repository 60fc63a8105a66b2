// Message encryption for web push: RFC 8291, with the content coding aes128gcm of RFC 8188. Only the browser can read the content.
//
//   header (86 bytes): salt 16 ‖ record size 4 ‖ key id length 1 ‖ our public key 65
//   one record: AES-128-GCM of plaintext ‖ 0x02, followed by the tag of 16 bytes
//
// Every message has a key pair and a salt of its own (RFC 8291 §3.1, RFC 8188 §2.1). If two texts were encrypted with one key and
// nonce, both could be read.

internal import Runtime

enum WebPushEncryption {
  static let saltBytes = 16
  private static let headerBytes = saltBytes + 4 + 1 + KeyAgreementPoint.byteCount
  /// Maximum size of a body that every push service accepts (RFC 8030 §7.2). The header names it as the record size, too: a record
  /// may be shorter.
  static let bodyBytesMax = 4_096
  /// Maximum size of a plaintext: the rest of the body after header, delimiter and tag.
  static let plaintextBytesMax = bodyBytesMax - headerBytes - 1 - AES128GCM.tagBytes

  private static let keyInfo = Array("WebPush: info".utf8) + [0]
  private static let contentKeyInfo = Array("Content-Encoding: aes128gcm".utf8) + [0]
  private static let nonceInfo = Array("Content-Encoding: nonce".utf8) + [0]

  /// The body of a push message. Nil only when OpenSSL has no randomness.
  static func encrypt(_ plaintext: [UInt8], for subscription: WebPushSubscription) -> [UInt8]? {
    guard let key = KeyAgreementKey.generate(), let salt = SecureRandom.bytes(saltBytes) else { return nil }
    return encrypt(plaintext, for: subscription, with: key, salt: salt)
  }

  /// - Parameters:
  ///   - plaintext: at most `plaintextBytesMax`.
  ///   - key: a key pair that is used for no other message.
  ///   - salt: 16 random bytes.
  static func encrypt(
    _ plaintext: [UInt8], for subscription: WebPushSubscription, with key: KeyAgreementKey, salt: [UInt8]
  ) -> [UInt8]? {
    precondition(plaintext.count <= plaintextBytesMax && salt.count == saltBytes, "a plaintext or salt of another size")
    guard let secret = key.sharedSecret(with: subscription.point) else { return nil }
    // RFC 8291 §3.4
    let input = HKDFSHA256.expand(
      HKDFSHA256.extract(secret, salt: subscription.auth), info: keyInfo + subscription.point.bytes + key.point,
      count: 32)
    // RFC 8188 §2.2 and §2.3; the record has the number 0, so the nonce is used as it is
    let pseudorandom = HKDFSHA256.extract(input, salt: salt)
    let contentKey = HKDFSHA256.expand(pseudorandom, info: contentKeyInfo, count: AES128GCM.keyBytes)
    let nonce = HKDFSHA256.expand(pseudorandom, info: nonceInfo, count: AES128GCM.nonceBytes)
    var body: [UInt8] = []
    body.reserveCapacity(headerBytes + plaintext.count + 1 + AES128GCM.tagBytes)
    body += salt
    body += [0, 0, UInt8(bodyBytesMax >> 8), UInt8(bodyBytesMax & 0xFF), UInt8(KeyAgreementPoint.byteCount)]
    body += key.point
    body += AES128GCM.seal(plaintext + [0x02], key: contentKey, nonce: nonce)  // 0x02: the last record
    return body
  }
}
