// A public key that verifies tokens: those of an authenticating proxy, and in simulators and tests those for providers.

/// A public key for one signature algorithm: EC P-256 for ES256, RSA of at least 2048 bits for RS256.
public final class VerifyingKey: Sendable {
  public let algorithm: SignatureAlgorithm
  private let key: OpenSSLKey

  /// Reads a PEM file that holds a public key (`-----BEGIN PUBLIC KEY-----`).
  ///
  /// - Throws: `SigningKeyError`, which names the path and what is wrong with the file.
  public static func load(pemFile path: String, for algorithm: SignatureAlgorithm) throws(SigningKeyError)
    -> VerifyingKey
  {
    try VerifyingKey(pem: SigningKeyError.read(path, privacy: .waived), for: algorithm, source: path)
  }

  /// Takes the first public key of a PEM text.
  ///
  /// - Parameter source: where the text came from, for error messages.
  public init(pem: [UInt8], for algorithm: SignatureAlgorithm, source: String) throws(SigningKeyError) {
    let key = try OpenSSLKey.publicKey(pem: pem, source: source)
    if let reason = key.unfitness(for: algorithm) { throw SigningKeyError(reason, source: source) }
    self.key = key
    self.algorithm = algorithm
  }

  /// Reads a public key in X.509's form. Nil for anything else, and for a key that does not fit the algorithm.
  init?(der: [UInt8], for algorithm: SignatureAlgorithm) {
    guard let key = OpenSSLKey.publicKey(der: der), key.unfitness(for: algorithm) == nil else { return nil }
    self.key = key
    self.algorithm = algorithm
  }

  /// The ES256 key with this uncompressed point on P-256; nil if the point is malformed or not on the curve.
  public init?(point: [UInt8]) {
    guard let key = OpenSSLKey.p256(point: point) else { return nil }
    self.key = key
    algorithm = .es256
  }

  /// Whether `signature`, in JOSE's form, is this key's signature of `message`. The bytes may be untrusted.
  public func verify(_ signature: [UInt8], of message: [UInt8]) -> Bool {
    switch algorithm {
    case .rs256: key.verify(signature, of: message)
    case .es256: ECDSASignature.der(fromRaw: signature).map { key.verify($0, of: message) } ?? false
    }
  }
}
