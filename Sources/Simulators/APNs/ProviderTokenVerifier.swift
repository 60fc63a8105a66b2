// Checks the JSON Web Token of an APNs request. The result for each token is cached.

internal import Runtime

/// What APNs checks of a provider token (Apple, “Establishing a token-based connection to APNs”).
struct ProviderTokenVerifier: Sendable {
  /// Maximum age of a token in seconds.
  static let ageMax: Int64 = 3_600
  /// Maximum number of seconds by which the sender's clock may be fast.
  static let clockSkewMax: Int64 = 60
  /// Maximum number of cached tokens.
  private static let rememberedMax = 256

  /// A token with a valid signature and form.
  private struct Verified: Sendable {
    var text: [UInt8]
    var keyID: [UInt8]
    var issuedAt: Int64
  }

  enum Check: Sendable {
    case valid(keyID: [UInt8])
    case refused(APNsReason, String)
  }

  private let keys: [[UInt8]: VerifyingKey]
  private let teamIDs: [[UInt8]]
  private let updateInterval: Int64?
  private var latest: Verified?
  private var remembered: [[UInt8]: Verified] = [:]
  private var newestSeen: [[UInt8]: Int64] = [:]

  /// - Parameters:
  ///   - keys: public keys by key id.
  ///   - teamIDs: the teams that may issue tokens.
  ///   - updateInterval: minimum number of seconds between two new tokens of one key; nil for no limit.
  init(keys: [String: VerifyingKey], teamIDs: [String], updateInterval: Int64?) {
    self.keys = Dictionary(uniqueKeysWithValues: keys.map { (Array($0.key.utf8), $0.value) })
    self.teamIDs = teamIDs.map { Array($0.utf8) }
    self.updateInterval = updateInterval
  }

  /// - Parameters:
  ///   - authorization: the header's value.
  ///   - now: seconds since 1970.
  mutating func verify(_ authorization: ArraySlice<UInt8>, at now: Int64) -> Check {
    guard authorization.hasPrefixIgnoringCase("bearer ") else {
      return .refused(.missingProviderToken, "authorization is not “bearer <token>”")
    }
    let text = authorization.dropFirst(7)
    if let latest, latest.text[...] == text { return checkAge(latest, at: now) }
    let key = Array(text)
    if let known = remembered[key] {
      latest = known
      return checkAge(known, at: now)
    }
    switch parse(key) {
    case .failure(let why): return .refused(.invalidProviderToken, why.text)
    case .success(let verified):
      if let updateInterval {
        if let newest = newestSeen[verified.keyID], now - newest < updateInterval {
          return .refused(.tooManyProviderTokenUpdates, "a second new token within \(updateInterval) s")
        }
        newestSeen[verified.keyID] = now
      }
      if remembered.count >= Self.rememberedMax { remembered.removeAll() }
      remembered[key] = verified
      latest = verified
      return checkAge(verified, at: now)
    }
  }

  private func checkAge(_ token: Verified, at now: Int64) -> Check {
    if token.issuedAt > now + Self.clockSkewMax { return .refused(.invalidProviderToken, "iat is in the future") }
    if now - token.issuedAt > Self.ageMax { return .refused(.expiredProviderToken, "iat is over an hour old") }
    return .valid(keyID: token.keyID)
  }

  private struct Flaw: Error {
    let text: String
  }

  private func parse(_ text: [UInt8]) -> Result<Verified, Flaw> {
    func flaw(_ text: String) -> Result<Verified, Flaw> { .failure(Flaw(text: text)) }
    guard let token = JSONWebToken(compact: text) else { return flaw("not three base64url parts") }
    guard let header = try? JSONScanner(token.header), let claims = try? JSONScanner(token.claims) else {
      return flaw("header or claims are not JSON")
    }
    guard header.member("alg").flatMap(header.text) == "ES256" else { return flaw("alg is not ES256") }
    guard let keyID = header.member("kid").flatMap(header.string), let key = keys[keyID] else {
      return flaw("kid is missing or unknown")
    }
    guard let issuer = claims.member("iss").flatMap(claims.string), teamIDs.contains(issuer) else {
      return flaw("iss is missing or not the team")
    }
    guard let issuedAt = claims.member("iat").flatMap(claims.integer) else { return flaw("iat is not a whole number") }
    guard token.signature.count == 64 else { return flaw("the signature is not r and s in 64 bytes") }
    guard token.isSigned(by: key) else { return flaw("the signature is not the key's") }
    return .success(Verified(text: text, keyID: keyID, issuedAt: issuedAt))
  }
}
