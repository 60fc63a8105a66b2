// Why a key could not be used. Names the file or the setting it came from, never a byte of its content.

/// A key that cannot be read or does not fit its purpose.
public struct SigningKeyError: Error, Equatable, CustomStringConvertible, Sendable {
  /// What was wrong.
  public enum Reason: Equatable, Sendable {
    /// The key's file cannot be read.
    case file(SecretFile.Failure.Reason)
    /// The bytes hold no private key in PEM form; what they are instead, from `PEMDiagnosis`.
    case notAPrivateKey(String)
    /// The bytes hold no PEM public key.
    case notAPublicKey
    /// The private key is protected by a passphrase, which is not supported.
    case encrypted
    /// An EC key was needed (ES256).
    case notEC(found: String)
    /// An RSA key was needed (RS256).
    case notRSA(found: String)
    /// An EC key, but not on P-256.
    case wrongCurve(found: String)
    /// An RSA key of fewer than 2048 bits.
    case tooShort(bits: Int)
    /// OpenSSL refused an operation with a key that was accepted before.
    case operationFailed
  }

  public var reason: Reason
  /// Where the key came from: a path, or a file and the field in it.
  public var source: String

  public init(_ reason: Reason, source: String) {
    self.reason = reason
    self.source = source
  }

  public var description: String {
    switch reason {
    case .file(let reason):
      "key file \(SecretFile.Failure(reason, path: source))"
    case .notAPrivateKey(let diagnosis): "key \(source): \(diagnosis)"
    case .notAPublicKey:
      "key \(source): holds no public key in PEM form: expected a block that begins with '-----BEGIN PUBLIC KEY-----'"
    case .encrypted:
      "key \(source): is protected by a passphrase: store it without one and protect the file by its permissions"
    case .notEC(let found):
      "key \(source): is of type \(found), but ES256 needs an EC key on the curve P-256 (an APNs .p8 file is one)"
    case .notRSA(let found):
      "key \(source): is of type \(found), but RS256 needs an RSA key (a Google service account's private_key is one)"
    case .wrongCurve(let found):
      "key \(source): is an EC key on the curve \(found), but ES256 needs P-256"
    case .tooShort(let bits):
      "key \(source): is an RSA key of \(bits) bits, but RS256 needs at least 2048"
    case .operationFailed:
      "key \(source): OpenSSL could not use the key"
    }
  }

  /// A key file's content, its failures told as this error.
  static func read(_ path: String, privacy: SecretFile.Privacy) throws(SigningKeyError) -> [UInt8] {
    do {
      return try SecretFile.read(path, privacy: privacy)
    } catch {
      throw SigningKeyError(.file(error.reason), source: path)
    }
  }
}
