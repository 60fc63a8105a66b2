// JSON Web Tokens in the compact form (RFC 7515, 7519): signed for the providers, taken apart and verified by the
// simulators.

/// A token taken apart. Nothing in it is to be believed before `isSigned(by:)` said yes.
public struct JSONWebToken: Sendable {
  /// No provider token is longer; a longer text is not looked at.
  public static let lengthMax = 16 * 1024

  /// The header's JSON text.
  public let header: [UInt8]
  /// The claims' JSON text.
  public let claims: [UInt8]
  /// The signature as JOSE writes it.
  public let signature: [UInt8]
  private let signedText: [UInt8]

  /// Takes a compact token apart: three base64url parts with dots between. Nil when it is anything else.
  /// The parts' JSON is not looked at.
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
  /// The algorithm is always the key's, so no header can talk a verifier into another one; a header with `crit`, whose
  /// extensions a verifier would have to understand (RFC 7515 §4.1.11), is refused.
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
