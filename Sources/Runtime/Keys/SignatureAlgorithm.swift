// The two signature algorithms the providers ask for, and the one thing in which JOSE and OpenSSL differ about them.

internal import COpenSSL

/// A JWS signature algorithm (RFC 7518 §3.1).
public enum SignatureAlgorithm: String, Sendable, Equatable {
  /// ECDSA on P-256 with SHA-256: APNs provider tokens.
  case es256 = "ES256"
  /// RSASSA-PKCS1-v1_5 with SHA-256: Google service accounts.
  case rs256 = "RS256"
}

/// ECDSA signatures: OpenSSL speaks DER, JOSE the two numbers r‖s as 32 bytes each (RFC 7518 §3.4).
enum ECDSASignature {
  static let coordinateLength = 32

  /// r‖s of a DER signature, or nil when it is not one.
  static func raw(fromDER der: [UInt8]) -> [UInt8]? {
    let signature: OpaquePointer? = unsafe der.withUnsafeBufferPointer { buffer in
      var next = buffer.baseAddress
      return unsafe d2i_ECDSA_SIG(nil, &next, buffer.count)
    }
    guard let signature = unsafe signature else {
      ERR_clear_error()
      return nil
    }
    defer { unsafe ECDSA_SIG_free(signature) }
    let length = coordinateLength
    return unsafe [UInt8](unsafeUninitializedCapacity: 2 * length) { buffer, count in
      guard let start = buffer.baseAddress,
        unsafe BN_bn2binpad(ECDSA_SIG_get0_r(signature), start, Int32(length)) == Int32(length),
        unsafe BN_bn2binpad(ECDSA_SIG_get0_s(signature), start + length, Int32(length)) == Int32(length)
      else { return }
      count = 2 * length
    }
  }

  /// The DER form of r‖s, or nil when it is not 64 bytes.
  static func der(fromRaw raw: [UInt8]) -> [UInt8]? {
    guard raw.count == 2 * coordinateLength, let signature = unsafe ECDSA_SIG_new() else { return nil }
    defer { unsafe ECDSA_SIG_free(signature) }
    let r = unsafe raw.withUnsafeBufferPointer { unsafe BN_bin2bn($0.baseAddress, Int32(coordinateLength), nil) }
    let s = unsafe raw[coordinateLength...].withUnsafeBufferPointer {
      unsafe BN_bin2bn($0.baseAddress, Int32(coordinateLength), nil)
    }
    // On success the signature owns both numbers.
    guard unsafe ECDSA_SIG_set0(signature, r, s) == 1 else {
      unsafe BN_free(r)
      unsafe BN_free(s)
      return nil
    }
    let length = unsafe i2d_ECDSA_SIG(signature, nil)
    guard length > 0 else { return nil }
    return unsafe [UInt8](unsafeUninitializedCapacity: Int(length)) { buffer, count in
      var next = buffer.baseAddress
      count = Int(max(0, unsafe i2d_ECDSA_SIG(signature, &next)))
    }
  }
}
