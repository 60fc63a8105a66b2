// The key with which an application server identifies itself to push services: VAPID (RFC 8292).

public import Runtime

/// A VAPID key with its contact. Browsers bind a subscription to the public key, so the key of an app does not change.
public struct WebPushCredentials: Sendable {
  /// Why a key or a subject cannot be used.
  public enum Fault: Error, CustomStringConvertible, Sendable {
    case key(SigningKeyError)
    case subject(String)

    public var description: String {
      switch self {
      case .key(let error): "VAPID \(error)"
      case .subject(let reason): "VAPID subject: \(reason)"
      }
    }
  }

  /// The time for which a token is valid. RFC 8292 §2 allows at most 24 hours. With half of that, and renewed after a quarter
  /// (`WebPushTokenSource.renewalAge`), a token is accepted even if the clocks differ by hours.
  static let tokenLifetime = Nanoseconds.seconds(12 * 3600)
  private static let subjectBytesMax = 256

  /// The key of the file: EC on P-256.
  public let key: SigningKey
  /// Claim `sub`: whom the push service may contact, `mailto:` or `https:`.
  public let subject: String
  /// The public key in base64url, 87 characters. A web page passes it to `PushManager.subscribe` as `applicationServerKey`.
  public let publicKey: String

  /// Identifies the key and the subject, for comparisons.
  public var identity: String { "\(publicKey)/\(subject)" }

  public init(key: SigningKey, subject: String) throws(Fault) {
    if let reason = Self.flaw(of: subject) { throw .subject(reason) }
    self.key = key
    self.subject = subject
    do throws(SigningKeyError) {
      publicKey = String(decoding: Base64URL.encode(try key.publicKeyPoint()), as: UTF8.self)
    } catch {
      throw .key(error)
    }
  }

  /// Reads the key from a PEM file: PKCS#8 or SEC1.
  public init(keyFile: String, subject: String, privacy: SecretFile.Privacy = .required) throws(Fault) {
    let key: SigningKey
    do { key = try SigningKey.load(pemFile: keyFile, for: .es256, privacy: privacy) } catch { throw .key(error) }
    try self.init(key: key, subject: subject)
  }

  /// The value of a token that authenticates us to one push service: the JWT and our public key (RFC 8292 §3).
  ///
  /// - Parameter origin: claim `aud`.
  func mint(for origin: WebPushOrigin, issuedAtSeconds: Int64) throws(SigningKeyError) -> [UInt8] {
    var header = JSONWriter()
    header.beginObject()
    header.key("typ")
    header.string("JWT" as StaticString)
    header.key("alg")
    header.string("ES256" as StaticString)
    header.endObject()
    var claims = JSONWriter()
    claims.beginObject()
    claims.key("aud")
    claims.string(origin.description)
    claims.key("exp")
    claims.integer(issuedAtSeconds + Self.tokenLifetime.milliseconds / 1000)
    claims.key("sub")
    claims.string(subject)
    claims.endObject()
    return try JSONWebToken.sign(header: header.bytes, claims: claims.bytes, with: key) + Array(", k=\(publicKey)".utf8)
  }

  /// What is wrong with a subject; nil if nothing is. RFC 8292 §2.1 recommends `mailto:` or `https:`. Apple refuses a token with any
  /// other, or with a local host (403 BadJwtToken).
  public static func flaw(of subject: String) -> String? {
    let form = "must be mailto:ADDRESS or an https:// page, by which the operators of a push service can reach you"
    guard subject.utf8.count <= subjectBytesMax, subject.utf8.allSatisfy({ 0x21...0x7E ~= $0 }) else {
      return "must have at most \(subjectBytesMax) printable characters without blanks"
    }
    let domain: Substring
    if subject.hasPrefix("mailto:") {
      let parts = subject.dropFirst("mailto:".count).split(separator: "@", omittingEmptySubsequences: false)
      guard parts.count == 2, !parts[0].isEmpty else { return form }
      domain = parts[1]
    } else if subject.hasPrefix("https://") {
      domain = subject.dropFirst("https://".count).prefix { $0 != "/" && $0 != ":" }
    } else {
      return form
    }
    guard domain.contains("."), !domain.hasPrefix("."), !domain.hasSuffix("."), !domain.hasSuffix(".local"),
      !domain.hasSuffix(".localhost")
    else { return "must name a domain of the Internet, because push services refuse contacts that they cannot reach" }
    return nil
  }
}
