// Verifies the identity that a proxy sends: a signed JSON Web Token (RFC 7519) in a header, checked as RFC 8725
// requires.
//
// Everything depends on the signature: a client that bypasses the proxy can send any header, but cannot sign one. The
// algorithm is always that of the key, so `alg: none` and HMAC with the public key are refused.

package import Runtime

/// The rules that a token must meet.
package struct IdentityRules: Equatable, Sendable {
  package enum Refusal: String, Error {
    case malformed = "the value is not a JSON Web Token"
    case unknownKey = "the token names a key that the JWK Set does not contain"
    case wrongSignature = "the signature does not match the key"
    case wrongIssuer = "iss is not dashboard.identity.issuer"
    case wrongAudience = "aud does not contain dashboard.identity.audience"
    case expired = "the token has expired"
    case notYetValid = "the token is not valid yet"
    case nameless = "the claim with the name is missing or not verified"
    case notAllowed = "the name is not in dashboard.identity.allowed"
  }

  /// Maximum difference between the proxy's clock and this machine's.
  package static let leewaySeconds = 30.0
  package static let nameLengthMax = 128

  package var issuer: String
  package var audience: String
  /// The claim that contains the name.
  package var nameClaim: String
  /// Names, or `@example.com` for all names with this ending.
  package var allowed: [String]

  /// Returns the name in a valid token.
  ///
  /// - Parameter nowSeconds: the current time, in seconds since 1970.
  package func name(
    in text: String, keys: JSONWebKeySet, nowSeconds: Double
  ) throws(Refusal) -> String {
    guard let token = JSONWebToken(compact: Array(text.utf8)) else { throw .malformed }
    guard keys.knows(token) else { throw .unknownKey }
    guard keys.signed(token) else { throw .wrongSignature }
    guard let claims = try? JSONScanner(token.claims), claims.root.kind == .object else { throw .malformed }
    guard claims.member("iss").flatMap(claims.text) == issuer else { throw .wrongIssuer }
    guard isForUs(claims) else { throw .wrongAudience }
    guard let expiry = seconds("exp", claims), nowSeconds < expiry + Self.leewaySeconds else { throw .expired }
    for name in ["nbf", "iat"] as [StaticString] where claims.member(name) != nil {
      guard let begin = seconds(name, claims), begin - Self.leewaySeconds <= nowSeconds else { throw .notYetValid }
    }
    let name = try name(in: claims)
    guard isAllowed(name) else { throw .notAllowed }
    return name
  }

  private func isForUs(_ claims: JSONScanner) -> Bool {
    guard let value = claims.member("aud") else { return false }
    guard value.kind == .array else { return claims.text(value) == audience }
    return claims.elements(of: value).contains { claims.text($0) == audience }
  }

  private func seconds(_ name: StaticString, _ claims: JSONScanner) -> Double? {
    claims.member(name).flatMap { $0.kind == .number ? Double(String(decoding: claims.raw($0), as: UTF8.self)) : nil }
  }

  private func name(in claims: JSONScanner) throws(Refusal) -> String {
    guard let value = claims.member(Array(nameClaim.utf8), of: claims.root), let name = claims.text(value),
      1...Self.nameLengthMax ~= name.unicodeScalars.count
    else { throw .nameless }
    // Some issuers accept unverified addresses, and say so in this claim.
    if nameClaim == "email", let isVerified = claims.member("email_verified"),
      claims.boolean(isVerified) != true, claims.text(isVerified) != "true"
    {
      throw .nameless
    }
    return name
  }

  private func isAllowed(_ name: String) -> Bool {
    allowed.contains { rule in
      guard rule.hasPrefix("@") else { return rule == name }
      return name.utf8.allSatisfy { 0x21...0x7E ~= $0 } && name.count(where: { $0 == "@" }) == 1
        && name.lowercased().hasSuffix(rule.lowercased()) && name.utf8.count > rule.utf8.count
    }
  }
}
