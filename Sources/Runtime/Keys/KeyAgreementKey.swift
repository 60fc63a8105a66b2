// P-256 keys that agree on a secret (ECDH): the keys of web push's message encryption (RFC 8291).

/// A key pair on P-256 for ECDH. Its private half stays inside OpenSSL.
public final class KeyAgreementKey: Sendable {
  /// The public half as an uncompressed point: 65 bytes, the first of them 0x04.
  public let point: [UInt8]
  private let key: OpenSSLKey

  private init(_ key: consuming OpenSSLKey, point: [UInt8]) {
    self.point = point
    self.key = key
  }

  /// Creates a new key pair. Nil only when OpenSSL has no randomness.
  public static func generate() -> KeyAgreementKey? {
    guard let key = OpenSSLKey.generate(for: .es256), let point = key.p256Point() else { return nil }
    return KeyAgreementKey(key, point: point)
  }

  /// Takes the first private key of a PEM text, which must be an EC key on P-256.
  ///
  /// - Parameter source: where the text came from, for error messages.
  public init(pem: [UInt8], source: String) throws(SigningKeyError) {
    let key = try OpenSSLKey.privateKey(pem: pem, source: source)
    if let reason = key.unfitness(for: .es256) { throw SigningKeyError(reason, source: source) }
    guard let point = key.p256Point() else { throw SigningKeyError(.operationFailed, source: source) }
    self.point = point
    self.key = key
  }

  /// The secret shared with the owner of a public key: 32 bytes. Nil only when OpenSSL fails.
  public func sharedSecret(with peer: KeyAgreementPoint) -> [UInt8]? { key.sharedSecret(with: peer.key) }

  /// The key as PKCS#8 PEM, for simulators and tests.
  public func privateKeyPEM() throws(SigningKeyError) -> [UInt8] {
    guard let pem = key.privatePEM() else { throw SigningKeyError(.operationFailed, source: "key for ECDH") }
    return pem
  }
}

/// A public key on P-256 for ECDH.
public final class KeyAgreementPoint: Sendable {
  /// Number of bytes of an uncompressed point.
  public static let byteCount = OpenSSLKey.p256PointBytes

  /// The uncompressed point.
  public let bytes: [UInt8]
  fileprivate let key: OpenSSLKey

  /// - Parameter bytes: an uncompressed point. Nil if it is malformed or not on the curve (an invalid point could reveal the
  ///   private key).
  public init?(_ bytes: [UInt8]) {
    guard let key = OpenSSLKey.p256(point: bytes) else { return nil }
    self.bytes = bytes
    self.key = key
  }
}
