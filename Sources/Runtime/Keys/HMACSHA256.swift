// HMAC with SHA-256 (RFC 2104), and the key derivation that is built from it: HKDF (RFC 5869).

internal import COpenSSL

public enum HMACSHA256 {
  /// Number of bytes of a code.
  public static let byteCount = 32

  /// The 32 bytes of the code of `message`.
  public static func code(of message: [UInt8], key: [UInt8]) -> [UInt8] {
    var code = [UInt8](repeating: 0, count: byteCount)
    var length: UInt32 = 0
    let result = unsafe HMAC(EVP_sha256(), key, Int32(key.count), message, message.count, &code, &length)
    precondition(unsafe result != nil && length == byteCount, "OpenSSL has no HMAC with SHA-256")
    return code
  }
}

public enum HKDFSHA256 {
  /// Step 1 (RFC 5869 §2.2): a pseudorandom key of 32 bytes from `secret`.
  public static func extract(_ secret: [UInt8], salt: [UInt8]) -> [UInt8] {
    HMACSHA256.code(of: secret, key: salt)
  }

  /// Step 2 (RFC 5869 §2.3): `count` bytes, at most 32, from a pseudorandom key. One block is enough for every key of web push.
  public static func expand(_ key: [UInt8], info: [UInt8], count: Int) -> [UInt8] {
    precondition((1...HMACSHA256.byteCount).contains(count), "one block of HKDF has 1 to 32 bytes")
    return Array(HMACSHA256.code(of: info + [0x01], key: key).prefix(count))
  }
}
