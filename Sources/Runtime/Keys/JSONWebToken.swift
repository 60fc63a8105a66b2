// JSON Web Tokens in the compact form (RFC 7515, 7519): signed for the providers, taken apart and verified by the
// simulators.

/// A decoded token. Nothing in it may be trusted before `isSigned(by:)` has returned true.
public struct JSONWebToken: Sendable {
  /// Maximum length of a provider token. A longer text is not read.
  public static let lengthMax = 16 * 1024

  /// The header's JSON text.
  public let header: [UInt8]
  /// The claims' JSON text.
  public let claims: [UInt8]
  /// The signature as JOSE writes it.
  public let signature: [UInt8]
  private let signedText: [UInt8]

  /// Decodes a compact token: three base64url parts with dots between them. Nil for any other text. The JSON of the parts is not
  /// checked.
  public init?(compact text: [UInt8]) {
    guard text.count <= Self.lengthMax else { return nil }
    let dot = UInt8(ascii: ".")
    guard let first = text.firstIndex(of: dot), let last = text.lastIndex(of: dot), first < last,
      let header = Base64URL.decode(text[..<first]), !header.isEmpty,
      let claims = Base64URL.decode(text[(first + 1)..<last]), !claims.isEmpty,  // a third dot is outside the alphabet
      let signature = Base64URL.decode(text[(last + 1)...]), !signature.isEmpty
    else { return nil }
    self.header = header
    self.claims = claims
    self.signature = signature
    signedText = Array(text[..<last])
  }

  /// Whether the header names this key's algorithm and the signature is this key's.
  ///
  /// The algorithm is always the key's, so a header cannot choose another one. A header with `crit` is refused, because a
  /// verifier would have to understand its extensions (RFC 7515 §4.1.11).
  public func isSigned(by key: VerifyingKey) -> Bool {
    guard let json = try? JSONScanner(header), let algorithm = json.member("alg").flatMap(json.text),
      algorithm == key.algorithm.rawValue, json.member("crit") == nil
    else { return false }
    return key.verify(signature, of: signedText)
  }

  /// A signed compact token.
  ///
  /// - Parameters:
  ///   - header: JSON text with the `alg` of the key, and usually `kid`.
  ///   - claims: JSON text.
  public static func sign(
    header: [UInt8], claims: [UInt8], with key: SigningKey
  ) throws(SigningKeyError) -> [UInt8] {
    var token: [UInt8] = []
    token.reserveCapacity((header.count + claims.count + 512) * 4 / 3 + 2)
    Base64URL.encode(header, into: &token)
    token.append(UInt8(ascii: "."))
    Base64URL.encode(claims, into: &token)
    let signature = try key.sign(token)
    token.append(UInt8(ascii: "."))
    Base64URL.encode(signature, into: &token)
    return token
  }
}
