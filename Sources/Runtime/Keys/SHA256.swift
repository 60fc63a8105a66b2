// SHA-256 by OpenSSL: checksums of migrations, names that must fit a header, fingerprints of tokens in logs.

internal import COpenSSL

public enum SHA256 {
  /// The 32 bytes of the digest.
  public static func digest(_ bytes: [UInt8]) -> [UInt8] {
    var digest = [UInt8](repeating: 0, count: 32)
    let status = unsafe EVP_Digest(bytes, bytes.count, &digest, nil, EVP_sha256(), nil)
    precondition(status == 1, "OpenSSL has no SHA-256")
    return digest
  }

  /// The digest as 64 lower-case hex digits.
  public static func hexDigest(_ bytes: [UInt8]) -> [UInt8] {
    var hex: [UInt8] = []
    hex.reserveCapacity(64)
    for byte in digest(bytes) {
      for nibble in [byte >> 4, byte & 0x0F] {
        hex.append(nibble < 10 ? UInt8(ascii: "0") + nibble : UInt8(ascii: "a") + nibble - 10)
      }
    }
    return hex
  }
}
