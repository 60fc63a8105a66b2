// The owner of an OpenSSL key: the one file where private and public keys touch OpenSSL.

internal import COpenSSL

/// A private or public key inside OpenSSL, freed with its owner.
// @unchecked: OpenSSL allows one EVP_PKEY to be used by several threads as long as none changes it, and nothing here
// does.
@safe
struct OpenSSLKey: ~Copyable, @unchecked Sendable {
  private let key: OpaquePointer

  private init(owning key: OpaquePointer) {
    unsafe self.key = key
  }

  deinit {
    unsafe EVP_PKEY_free(key)
  }

  /// A new key pair, or nil when OpenSSL has no randomness: P-256 for ES256, RSA of 2048 bits for RS256.
  static func generate(for algorithm: SignatureAlgorithm) -> OpenSSLKey? {
    let name = algorithm == .es256 ? "EC" : "RSA"
    guard let context = unsafe EVP_PKEY_CTX_new_from_name(nil, name, nil) else { return nil }
    defer {
      unsafe EVP_PKEY_CTX_free(context)
      ERR_clear_error()
    }
    guard unsafe EVP_PKEY_keygen_init(context) == 1 else { return nil }
    let isSetUp =
      switch algorithm {
      case .es256: unsafe EVP_PKEY_CTX_set_group_name(context, "prime256v1") == 1
      case .rs256: unsafe EVP_PKEY_CTX_set_rsa_keygen_bits(context, 2048) == 1
      }
    var key: OpaquePointer?
    guard isSetUp, unsafe EVP_PKEY_generate(context, &key) == 1, let key = unsafe key else { return nil }
    return unsafe OpenSSLKey(owning: key)
  }

  // MARK: - PEM

  /// The first private key of a PEM text: PKCS#8, SEC1 or PKCS#1.
  static func privateKey(pem: [UInt8], source: String) throws(SigningKeyError) -> OpenSSLKey {
    // Without a callback of our own OpenSSL would ask for a passphrase on the terminal.
    var wasAskedForPassphrase = false
    let key = unsafe withUnsafeMutablePointer(to: &wasAskedForPassphrase) { asked in
      unsafe read(pem) { bio in
        unsafe PEM_read_bio_PrivateKey(
          bio, nil,
          { _, _, _, asked in
            unsafe asked?.assumingMemoryBound(to: Bool.self).pointee = true
            return -1
          }, asked)
      }
    }
    guard let key = unsafe key else {
      throw SigningKeyError(
        wasAskedForPassphrase ? .encrypted : .notAPrivateKey(PEMDiagnosis.text(of: pem, expected: .privateKey)),
        source: source)
    }
    return unsafe OpenSSLKey(owning: key)
  }

  /// The first public key of a PEM text.
  static func publicKey(pem: [UInt8], source: String) throws(SigningKeyError) -> OpenSSLKey {
    let key = unsafe read(pem) { bio in unsafe PEM_read_bio_PUBKEY(bio, nil, { _, _, _, _ in -1 }, nil) }
    guard let key = unsafe key else { throw SigningKeyError(.notAPublicKey, source: source) }
    return unsafe OpenSSLKey(owning: key)
  }

  /// A public key in X.509's form (SubjectPublicKeyInfo, RFC 5280 §4.1.2.7); nil if it is not one, or if its point is not on its
  /// curve.
  static func publicKey(der: [UInt8]) -> OpenSSLKey? {
    defer { ERR_clear_error() }
    let key = unsafe der.withUnsafeBufferPointer { buffer in
      var next = buffer.baseAddress
      return unsafe d2i_PUBKEY(nil, &next, buffer.count)
    }
    guard let key = unsafe key else { return nil }
    return unsafe OpenSSLKey(owning: key)
  }

  /// Makes this the private key of a TLS context. Returns false if it is not the key of the context's certificate.
  func use(in context: OpaquePointer) -> Bool {
    defer { ERR_clear_error() }
    return unsafe SSL_CTX_use_PrivateKey(context, key) == 1 && SSL_CTX_check_private_key(context) == 1
  }

  /// Runs `parse` over the text; the BIO only borrows it.
  private static func read(_ pem: [UInt8], _ parse: (OpaquePointer) -> OpaquePointer?) -> OpaquePointer? {
    unsafe pem.withUnsafeBytes { bytes in
      guard let bio = unsafe BIO_new_mem_buf(bytes.baseAddress, Int32(clamping: bytes.count)) else { return nil }
      defer {
        unsafe BIO_free(bio)
        ERR_clear_error()
      }
      return unsafe parse(bio)
    }
  }

  /// The public half, or nil when OpenSSL cannot write it.
  func publicPEM() -> [UInt8]? {
    unsafe write { bio in unsafe PEM_write_bio_PUBKEY(bio, key) }
  }

  /// The private key as PKCS#8, or nil when OpenSSL cannot write it.
  func privatePEM() -> [UInt8]? {
    unsafe write { bio in unsafe PEM_write_bio_PKCS8PrivateKey(bio, key, nil, nil, 0, nil, nil) }
  }

  private func write(_ format: (OpaquePointer) -> Int32) -> [UInt8]? {
    guard let bio = unsafe BIO_new(BIO_s_mem()) else { return nil }
    defer {
      unsafe BIO_free(bio)
      ERR_clear_error()
    }
    guard unsafe format(bio) == 1 else { return nil }
    var pem = [UInt8](repeating: 0, count: unsafe BIO_ctrl_pending(bio))
    let count = unsafe pem.withUnsafeMutableBytes { unsafe BIO_read(bio, $0.baseAddress, Int32(clamping: $0.count)) }
    return Int(count) == pem.count ? pem : nil
  }

  // MARK: - P-256

  /// SubjectPublicKeyInfo of a P-256 key up to its point: SEQUENCE { SEQUENCE { id-ecPublicKey, prime256v1 }, BIT STRING }.
  private static let p256Prefix: [UInt8] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x02, 0x01, 0x06, 0x08, 0x2A, 0x86, 0x48, 0xCE,
    0x3D,
    0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
  ]

  /// Number of bytes of an uncompressed point: 0x04, x and y.
  static let p256PointBytes = 65

  /// The public key with this uncompressed point; nil if the point is malformed or not on the curve.
  static func p256(point: [UInt8]) -> OpenSSLKey? {
    guard point.count == p256PointBytes, point[0] == 0x04 else { return nil }
    return publicKey(der: p256Prefix + point)
  }

  /// The uncompressed point of a P-256 key; nil when OpenSSL cannot write it.
  func p256Point() -> [UInt8]? {
    defer { ERR_clear_error() }
    var point = [UInt8](repeating: 0, count: Self.p256PointBytes)
    var length = 0
    guard
      unsafe EVP_PKEY_get_octet_string_param(key, OSSL_PKEY_PARAM_PUB_KEY, &point, point.count, &length) == 1,
      length == Self.p256PointBytes, point[0] == 0x04
    else { return nil }
    return point
  }

  /// The secret that both key pairs share: ECDH (NIST SP 800-56A), the x coordinate in 32 bytes. Nil if OpenSSL cannot compute it.
  func sharedSecret(with peer: borrowing OpenSSLKey) -> [UInt8]? {
    defer { ERR_clear_error() }
    guard let context = unsafe EVP_PKEY_CTX_new_from_pkey(nil, key, nil) else { return nil }
    defer { unsafe EVP_PKEY_CTX_free(context) }
    guard unsafe EVP_PKEY_derive_init(context) == 1, unsafe EVP_PKEY_derive_set_peer(context, peer.key) == 1 else {
      return nil
    }
    var secret = [UInt8](repeating: 0, count: 32)
    var length = secret.count
    guard unsafe EVP_PKEY_derive(context, &secret, &length) == 1, length == secret.count else { return nil }
    return secret
  }

  // MARK: - Fitness

  /// Why the key does not fit the algorithm, or nil when it does.
  func unfitness(for algorithm: SignatureAlgorithm) -> SigningKeyError.Reason? {
    switch algorithm {
    case .es256:
      guard unsafe EVP_PKEY_is_a(key, "EC") == 1 else { return .notEC(found: typeName) }
      let curve = curveName
      return curve == "prime256v1" ? nil : .wrongCurve(found: curve)
    case .rs256:
      guard unsafe EVP_PKEY_is_a(key, "RSA") == 1 else { return .notRSA(found: typeName) }
      let bits = unsafe Int(EVP_PKEY_get_bits(key))
      return bits >= 2048 ? nil : .tooShort(bits: bits)
    }
  }

  private var typeName: String {
    guard let name = unsafe EVP_PKEY_get0_type_name(key) else { return "unknown" }
    return unsafe String(cString: name)
  }

  private var curveName: String {
    var name = [CChar](repeating: 0, count: 64)
    var length = 0
    guard unsafe EVP_PKEY_get_group_name(key, &name, name.count, &length) == 1 else {
      ERR_clear_error()
      return "unknown"
    }
    return String(decoding: name[..<min(length, name.count)].map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  // MARK: - Signatures over SHA-256, as OpenSSL encodes them

  func sign(_ message: [UInt8]) -> [UInt8]? {
    guard let context = unsafe EVP_MD_CTX_new() else { return nil }
    defer {
      unsafe EVP_MD_CTX_free(context)
      ERR_clear_error()
    }
    guard unsafe EVP_DigestSignInit(context, nil, EVP_sha256(), nil, key) == 1 else { return nil }
    var length = 0
    guard unsafe EVP_DigestSign(context, nil, &length, message, message.count) == 1 else { return nil }
    var signature = [UInt8](repeating: 0, count: length)
    guard unsafe EVP_DigestSign(context, &signature, &length, message, message.count) == 1 else { return nil }
    signature.removeLast(signature.count - length)
    return signature
  }

  func verify(_ signature: [UInt8], of message: [UInt8]) -> Bool {
    guard let context = unsafe EVP_MD_CTX_new() else { return false }
    defer {
      unsafe EVP_MD_CTX_free(context)
      ERR_clear_error()
    }
    guard unsafe EVP_DigestVerifyInit(context, nil, EVP_sha256(), nil, key) == 1 else { return false }
    return unsafe EVP_DigestVerify(context, signature, signature.count, message, message.count) == 1
  }
}
