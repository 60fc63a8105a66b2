// Checks the VAPID token of a request (RFC 8292). The result for each token is cached.

internal import Runtime

/// What push services check of a token: Mozilla and Apple are the strictest.
struct VAPIDVerifier: Sendable {
  /// RFC 8292 §2: at most 24 hours into the future.
  static let lifetimeMax: Int64 = 86_400
  /// Maximum number of cached tokens.
  private static let rememberedMax = 256

  /// Why a token is refused.
  struct Flaw: Error {
    let text: String
    init(_ text: String) { self.text = text }
  }

  private let audience: String
  /// The key with which all subscriptions of the simulator were made (`applicationServerKey`).
  private let publicKey: [UInt8]
  private var expiries: [[UInt8]: Int64] = [:]

  init(audience: String, publicKey: [UInt8]) {
    self.audience = audience
    self.publicKey = publicKey
  }

  /// - Parameters:
  ///   - authorization: the header's value.
  ///   - now: seconds since 1970.
  mutating func verify(_ authorization: ArraySlice<UInt8>, at now: Int64) throws(Flaw) {
    let text = Array(authorization)
    let expiry: Int64
    if let known = expiries[text] {
      expiry = known
    } else {
      expiry = try parse(authorization)
      if expiries.count >= Self.rememberedMax { expiries.removeAll() }
      expiries[text] = expiry
    }
    guard expiry > now else { throw Flaw("exp is in the past") }
    guard expiry <= now + Self.lifetimeMax else { throw Flaw("exp is more than a day in the future") }
  }

  /// The claim `exp` of a token that is valid otherwise.
  private func parse(_ authorization: ArraySlice<UInt8>) throws(Flaw) -> Int64 {
    guard authorization.hasPrefixIgnoringCase("vapid ") else { throw Flaw("authorization is not “vapid t=…, k=…”") }
    var parameters: [String: ArraySlice<UInt8>] = [:]
    for part in authorization.dropFirst(6).split(separator: UInt8(ascii: ",")) {
      let part = part.drop { $0 == 0x20 }
      guard let equals = part.firstIndex(of: UInt8(ascii: "=")) else { throw Flaw("a parameter has no value") }
      guard parameters.updateValue(part[(equals + 1)...], forKey: part[..<equals].text) == nil else {
        throw Flaw("a parameter occurs twice")
      }
    }
    guard let tokenText = parameters["t"], let token = JSONWebToken(compact: Array(tokenText)) else {
      throw Flaw("t is missing or no JWT")
    }
    guard let point = parameters["k"].flatMap({ Base64URL.decode($0) }), let key = VerifyingKey(point: point) else {
      throw Flaw("k is missing or no point on P-256")
    }
    guard token.isSigned(by: key) else { throw Flaw("the signature is not that of k") }
    guard point == publicKey else { throw Flaw("the subscription was made with another key") }
    guard let claims = try? JSONScanner(token.claims) else { throw Flaw("the claims are not JSON") }
    guard claims.member("aud").flatMap(claims.text) == audience else { throw Flaw("aud is not the origin") }
    guard let subject = claims.member("sub").flatMap(claims.text),
      subject.hasPrefix("mailto:") || subject.hasPrefix("https://")
    else { throw Flaw("sub is missing or neither mailto: nor https:") }
    guard let expiry = claims.member("exp").flatMap(claims.integer) else { throw Flaw("exp is not a whole number") }
    return expiry
  }
}
