// Google's token endpoint for service accounts: it exchanges a signed assertion for an access token.

public import Runtime

/// A strict stand-in for `https://oauth2.googleapis.com/token`.
///
/// Source: Google Identity, “Using OAuth 2.0 for Server to Server Applications”.
public struct OAuthSimulator: Sendable {
  public static let scope = "https://www.googleapis.com/auth/firebase.messaging"
  public static let grantType = "urn:ietf:params:oauth:grant-type:jwt-bearer"
  /// Maximum number of stored access tokens.
  private static let tokensMax = 1_024

  public struct Configuration: Sendable {
    /// The service account's public key (RS256).
    public var key: VerifyingKey
    /// The service account's `client_email`.
    public var issuer: String
    /// The account's `token_uri`.
    public var audience: String
    /// Lifetime of access tokens in seconds.
    public var lifetime: Int64

    public init(key: VerifyingKey, issuer: String, audience: String, lifetime: Int64 = 3_599) {
      self.key = key
      self.issuer = issuer
      self.audience = audience
      self.lifetime = lifetime
    }
  }

  private let configuration: Configuration
  private var expiries: [[UInt8]: Int64] = [:]
  private var latest: (token: [UInt8], expiry: Int64)?

  public init(_ configuration: Configuration) {
    self.configuration = configuration
  }

  /// Whether this endpoint issued the access token and it has not expired.
  /// - Parameter now: seconds since 1970.
  mutating func isValid(_ token: ArraySlice<UInt8>, at now: Int64) -> Bool {
    if let latest, latest.token[...] == token { return now < latest.expiry }
    guard let expiry = expiries[Array(token)] else { return false }
    latest = (Array(token), expiry)
    return now < expiry
  }

  /// An error of a token request.
  struct Refusal: Error {
    let error: String
    let description: String

    var answer: SimulatedAnswer {
      var writer = JSONWriter(reservingCapacity: 128)
      writer.beginObject()
      writer.key("error")
      writer.string(error)
      writer.key("error_description")
      writer.string(description)
      writer.endObject()
      return SimulatedAnswer(status: error == "invalid_client" ? 401 : 400, contentType: .json, body: writer.bytes)
    }
  }

  /// Answers `POST /token`.
  /// - Parameter now: seconds since 1970.
  mutating func issue(_ request: SimulatedRequest, at now: Int64) throws(Refusal) -> SimulatedAnswer {
    guard request.hasContentType("application/x-www-form-urlencoded") else {
      throw Refusal(error: "invalid_request", description: "The body must be application/x-www-form-urlencoded")
    }
    guard let form = FormBody(request.body) else {
      throw Refusal(error: "invalid_request", description: "The body is no form")
    }
    guard form["grant_type"] == Self.grantType else {
      throw Refusal(error: "unsupported_grant_type", description: "Invalid grant_type: \(form["grant_type"] ?? "")")
    }
    guard let assertion = form["assertion"], let token = JSONWebToken(compact: Array(assertion.utf8)) else {
      throw Refusal(error: "invalid_grant", description: "Bad Request")
    }
    try verify(token, at: now)
    return grant(at: now)
  }

  private func verify(_ token: JSONWebToken, at now: Int64) throws(Refusal) {
    func invalid(_ description: String) -> Refusal { Refusal(error: "invalid_grant", description: description) }
    guard let header = try? JSONScanner(token.header), let claims = try? JSONScanner(token.claims) else {
      throw invalid("Invalid JWT: Failed to parse JWT")
    }
    guard header.member("alg").flatMap(header.text) == "RS256" else { throw invalid("Invalid JWT: unknown algorithm") }
    guard claims.member("iss").flatMap(claims.text) == configuration.issuer else {
      throw invalid("Invalid grant: account not found")
    }
    guard token.isSigned(by: configuration.key) else { throw invalid("Invalid JWT Signature.") }
    guard claims.member("aud").flatMap(claims.text) == configuration.audience else {
      throw invalid("Invalid JWT: Failed audience check. The right audience is \(configuration.audience)")
    }
    guard let issuedAt = claims.member("iat").flatMap(claims.integer),
      let expiresAt = claims.member("exp").flatMap(claims.integer),
      expiresAt > issuedAt, expiresAt - issuedAt <= 3_600, issuedAt <= now + 60, expiresAt > now
    else {
      throw invalid(
        "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. "
          + "Check your iat and exp values in the JWT claim.")
    }
    guard let scope = claims.member("scope").flatMap(claims.text),
      scope.split(separator: " ").contains(Substring(Self.scope))
    else {
      throw Refusal(error: "invalid_scope", description: "Invalid OAuth scope or ID token audience provided.")
    }
  }

  private mutating func grant(at now: Int64) -> SimulatedAnswer {
    var token = [UInt8]("ya29.")
    for _ in 0..<4 { token.appendHex(.random(in: .min ... .max), digits: 16) }
    if expiries.count >= Self.tokensMax { expiries = expiries.filter { $0.value > now } }
    if expiries.count >= Self.tokensMax { expiries.removeAll() }
    expiries[token] = now + configuration.lifetime
    var writer = JSONWriter(reservingCapacity: 160)
    writer.beginObject()
    writer.key("access_token")
    writer.string(token)
    writer.key("expires_in")
    writer.integer(configuration.lifetime)
    writer.key("token_type")
    writer.string("Bearer" as StaticString)
    writer.endObject()
    return SimulatedAnswer(status: 200, contentType: .json, body: writer.bytes)
  }
}

/// A form as browsers and OAuth clients send it (application/x-www-form-urlencoded).
struct FormBody {
  private var fields: [String: String] = [:]

  /// Nil if an escape is malformed or a name occurs twice.
  init?(_ body: [UInt8]) {
    for pair in body.split(separator: UInt8(ascii: "&")) {
      let parts = pair.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
      guard parts.count == 2, let name = Self.decode(parts[0]), let value = Self.decode(parts[1]),
        fields.updateValue(value, forKey: name) == nil
      else { return nil }
    }
  }

  subscript(name: String) -> String? { fields[name] }

  private static func decode(_ text: ArraySlice<UInt8>) -> String? {
    var bytes: [UInt8] = []
    var rest = text
    while let byte = rest.popFirst() {
      switch byte {
      case UInt8(ascii: "+"): bytes.append(UInt8(ascii: " "))
      case UInt8(ascii: "%"):
        guard rest.count >= 2, rest.prefix(2).allSatisfy(\.isHexDigit),
          let value = UInt8(rest.prefix(2).text, radix: 16)
        else { return nil }
        bytes.append(value)
        rest.removeFirst(2)
      default: bytes.append(byte)
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }
}
