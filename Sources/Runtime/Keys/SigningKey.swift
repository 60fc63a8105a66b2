// A private key that signs provider tokens. Its bytes stay inside OpenSSL.

/// A private key for one signature algorithm: EC P-256 for ES256, RSA of at least 2048 bits for RS256.
public final class SigningKey: Sendable {
  public let algorithm: SignatureAlgorithm
  /// Where the key came from, as error messages name it.
  public let source: String
  private let key: OpenSSLKey

  /// Reads a PEM file: PKCS#8 (Apple's .p8), SEC1 or PKCS#1.
  ///
  /// - Throws: `SigningKeyError`, which names the path and what is wrong with the file.
  public static func load(
    pemFile path: String, for algorithm: SignatureAlgorithm, privacy: SecretFile.Privacy = .required
  ) throws(SigningKeyError) -> SigningKey {
    try SigningKey(pem: SigningKeyError.read(path, privacy: privacy), for: algorithm, source: path)
  }

  /// Takes the first private key of a PEM text: PKCS#8, SEC1 or PKCS#1.
  ///
  /// - Parameter source: where the text came from, for error messages.
  public init(pem: [UInt8], for algorithm: SignatureAlgorithm, source: String) throws(SigningKeyError) {
    let key = try OpenSSLKey.privateKey(pem: pem, source: source)
    if let reason = key.unfitness(for: algorithm) { throw SigningKeyError(reason, source: source) }
    self.key = key
    self.algorithm = algorithm
    self.source = source
  }

  /// Creates a new key, for simulators and tests. In production all keys are issued by providers.
  public static func generate(for algorithm: SignatureAlgorithm) throws(SigningKeyError) -> SigningKey {
    let source = "generated \(algorithm.rawValue) key"
    guard let key = OpenSSLKey.generate(for: algorithm), let pem = key.privatePEM() else {
      throw SigningKeyError(.operationFailed, source: source)
    }
    return try SigningKey(pem: pem, for: algorithm, source: source)
  }

  /// The signature of `message` as JOSE writes it: 64 bytes r‖s for ES256, as long as the key's modulus for RS256.
  public func sign(_ message: [UInt8]) throws(SigningKeyError) -> [UInt8] {
    let signature: [UInt8]? =
      switch algorithm {
      case .rs256: key.sign(message)
      case .es256: key.sign(message).flatMap { ECDSASignature.raw(fromDER: $0) }
      }
    guard let signature else { throw SigningKeyError(.operationFailed, source: source) }
    return signature
  }

  /// The public half, as a PEM text (`-----BEGIN PUBLIC KEY-----`), for verifiers.
  public func publicKeyPEM() throws(SigningKeyError) -> [UInt8] {
    guard let pem = key.publicPEM() else { throw SigningKeyError(.operationFailed, source: source) }
    return pem
  }

  /// ES256: the public half as an uncompressed point of 65 bytes, as a VAPID header contains it (RFC 8292 §3.2).
  public func publicKeyPoint() throws(SigningKeyError) -> [UInt8] {
    guard let point = key.p256Point() else { throw SigningKeyError(.operationFailed, source: source) }
    return point
  }

  /// Distinguishes the key from others: the first 16 hex digits of the SHA-256 digest of its public half.
  public var fingerprint: String {
    String(decoding: SHA256.hexDigest((try? publicKeyPEM()) ?? []).prefix(16), as: UTF8.self)
  }

  /// The key itself as PKCS#8 PEM, to be written where a generated key is needed as a file.
  public func privateKeyPEM() throws(SigningKeyError) -> [UInt8] {
    guard let pem = key.privatePEM() else { throw SigningKeyError(.operationFailed, source: source) }
    return pem
  }

  /// The public half as a key that verifies what this one signs.
  public func verifyingKey() throws(SigningKeyError) -> VerifyingKey {
    try VerifyingKey(pem: publicKeyPEM(), for: algorithm, source: source)
  }
}
