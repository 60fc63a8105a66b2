// The JWT that authenticates us to APNs. There is one for each key, shared by all its connections and signed every 45 minutes.
//
// Apple, "Establishing a token-based connection to APNs": a token may be replaced at most every 20 minutes (otherwise 429
// TooManyProviderTokenUpdates) and must be replaced at least every 60 minutes (otherwise 403 ExpiredProviderToken).

public import Runtime
internal import Synchronization

/// An APNs authentication key with its IDs.
public struct APNsCredentials: Sendable {
  /// The ten-character team ID: claim `iss`.
  public let teamID: String
  /// The ten-character key ID: header `kid`.
  public let keyID: String
  /// The key of the .p8 file.
  public let key: SigningKey

  /// Identifies the key: team ID, key ID and a fingerprint. The fingerprint distinguishes another key with the same ID.
  public var identity: String { "\(teamID)/\(keyID)/\(key.fingerprint)" }

  public init(teamID: String, keyID: String, key: SigningKey) {
    self.teamID = teamID
    self.keyID = keyID
    self.key = key
  }

  /// Reads the key from a .p8 file.
  public init(
    teamID: String, keyID: String, keyFile: String, privacy: SecretFile.Privacy = .required
  ) throws(SigningKeyError) {
    self.init(
      teamID: teamID, keyID: keyID, key: try SigningKey.load(pemFile: keyFile, for: .es256, privacy: privacy))
  }

  /// Signs a token issued at this time (seconds since 1970): ES256, header `alg` and `kid`, claims `iss` and `iat` (a number).
  public func mint(issuedAtSeconds: Int64) throws(SigningKeyError) -> [UInt8] {
    var header = JSONWriter()
    header.beginObject()
    header.key("alg")
    header.string("ES256" as StaticString)
    header.key("kid")
    header.string(keyID)
    header.endObject()
    var claims = JSONWriter()
    claims.beginObject()
    claims.key("iss")
    claims.string(teamID)
    claims.key("iat")
    claims.integer(issuedAtSeconds)
    claims.endObject()
    return try JSONWebToken.sign(header: header.bytes, claims: claims.bytes, with: key)
  }
}

/// Signs tokens in this process. Each replica that does so signs tokens of its own, so only a few replicas stay within Apple's
/// limit.
public final class APNsTokenSource: ProviderTokenSource {
  /// Age at which a token is renewed, before it expires at 60 minutes.
  public static let renewalAge = Nanoseconds.seconds(45 * 60)
  /// Minimum age of a token before Apple allows another.
  public static let replacementAgeMin = Nanoseconds.seconds(20 * 60)

  private let credentials: APNsCredentials
  private let clock: any GatewayClock
  private let current = Mutex<ProviderToken?>(nil)

  public init(_ credentials: APNsCredentials, clock: any GatewayClock = SystemClock()) {
    self.credentials = credentials
    self.clock = clock
  }

  public func token(replacing refused: ProviderToken?) async throws(ProviderTokenError) -> ProviderToken {
    let now = clock.wallMilliseconds()
    let result: Result<ProviderToken, ProviderTokenError> = current.withLock { current in
      if let token = current, !Self.isReplaced(token, refused: refused, now: now) { return .success(token) }
      do throws(ProviderTokenError) {
        let token = try Self.mint(credentials, wallMilliseconds: now)
        current = token
        return .success(token)
      } catch {
        return .failure(error)
      }
    }
    return try result.get()
  }

  /// Signs a new token that is due for renewal after `renewalAge`.
  public static func mint(
    _ credentials: APNsCredentials, wallMilliseconds now: Int64
  ) throws(ProviderTokenError) -> ProviderToken {
    do {
      return ProviderToken(
        value: try credentials.mint(issuedAtSeconds: now / 1000), issuedAtMilliseconds: now,
        renewAtMilliseconds: now + renewalAge.milliseconds)
    } catch {
      throw ProviderTokenError("no APNs token for key \(credentials.keyID): \(error)")
    }
  }

  /// Whether a token is replaced by a new one. If the clock was set back, the age is negative. For Apple, too, such a token was
  /// issued in the future, so it is replaced.
  static func isReplaced(_ token: ProviderToken, refused: ProviderToken?, now: Int64) -> Bool {
    let age = now - token.issuedAtMilliseconds
    if age < 0 || now >= token.renewAtMilliseconds { return true }
    return token == refused && age >= replacementAgeMin.milliseconds
  }
}
