// The public keys that an issuer of tokens publishes: a JWK Set (RFC 7517), with the parameters of RFC 7518 §6.

/// Public keys by their ids: EC keys on P-256 for ES256, RSA keys of at least 2048 bits for RS256.
public struct JSONWebKeySet: Sendable {
  /// The text is not a JWK Set with a usable key. Gives the reason, without the text.
  public struct Fault: Error, Equatable, CustomStringConvertible, Sendable {
    public let description: String
  }

  /// Maximum number of keys of a set that are read. Real sets have two to four.
  public static let keysMax = 64

  private let keys: [String: [VerifyingKey]]

  public var count: Int { keys.values.reduce(0) { $0 + $1.count } }

  /// Reads the set. Keys of other kinds, for other uses or without an id are passed over.
  ///
  /// - Throws: if the text is not JSON, has no `keys`, or none of them can be used.
  public init(_ text: [UInt8]) throws(Fault) {
    let json: JSONScanner
    do {
      json = try JSONScanner(text)
    } catch {
      throw Fault(description: "is \(error.description)")
    }
    guard let list = json.member("keys"), list.kind == .array else {
      throw Fault(description: "has no list \"keys\", as a JWK Set has")
    }
    var keys: [String: [VerifyingKey]] = [:]
    for element in json.elements(of: list).prefix(Self.keysMax) {
      guard let id = json.member("kid", of: element).flatMap(json.text), let key = Self.key(element, json) else {
        continue
      }
      keys[id, default: []].append(key)
    }
    guard !keys.isEmpty else {
      throw Fault(
        description: "has no key with a \"kid\" that is EC on P-256 (ES256) or RSA of 2048 bits or more (RS256)")
    }
    self.keys = keys
  }

  /// Whether the key that the token's `kid` names signed the token. False for a token without `kid`.
  public func signed(_ token: JSONWebToken) -> Bool {
    guard let id = token.keyID else { return false }
    return keys[id]?.contains { token.isSigned(by: $0) } ?? false
  }

  /// Whether the set has the key that a token names.
  public func knows(_ token: JSONWebToken) -> Bool { token.keyID.map { keys[$0] != nil } ?? false }

  // MARK: - One key

  private static func key(_ element: JSONScanner.Value, _ json: JSONScanner) -> VerifyingKey? {
    func text(_ name: StaticString) -> String? { json.member(name, of: element).flatMap(json.text) }
    func number(_ name: StaticString) -> [UInt8]? {
      text(name).flatMap { Base64URL.decode(Array($0.utf8)) }.flatMap { $0.isEmpty ? nil : $0 }
    }
    guard text("use") ?? "sig" == "sig" else { return nil }
    switch text("kty") {
    case "EC":
      guard text("alg") ?? "ES256" == "ES256", text("crv") == "P-256", let x = number("x"), let y = number("y"),
        x.count == 32, y.count == 32
      else { return nil }
      return VerifyingKey(der: DER.publicKey(x: x, y: y), for: .es256)
    case "RSA":
      guard text("alg") ?? "RS256" == "RS256", let modulus = number("n"), let exponent = number("e"),
        modulus.count <= 1_024, exponent.count <= 8
      else { return nil }
      return VerifyingKey(der: DER.publicKey(modulus: modulus, exponent: exponent), for: .rs256)
    default: return nil
    }
  }

  /// SubjectPublicKeyInfo of the two kinds.
  private enum DER {
    /// SEQUENCE { id-ecPublicKey, prime256v1 }
    private static let ecAlgorithm: [UInt8] = [
      0x30, 0x13, 0x06, 0x07, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x02, 0x01, 0x06, 0x08, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x03,
      0x01, 0x07,
    ]
    /// SEQUENCE { rsaEncryption, NULL }
    private static let rsaAlgorithm: [UInt8] = [
      0x30, 0x0D, 0x06, 0x09, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x01, 0x05, 0x00,
    ]

    static func publicKey(x: [UInt8], y: [UInt8]) -> [UInt8] {
      sequence(ecAlgorithm + bitString([0x04] + x + y))
    }

    static func publicKey(modulus: [UInt8], exponent: [UInt8]) -> [UInt8] {
      sequence(rsaAlgorithm + bitString(sequence(integer(modulus) + integer(exponent))))
    }

    private static func sequence(_ content: [UInt8]) -> [UInt8] { item(0x30, content) }
    private static func bitString(_ content: [UInt8]) -> [UInt8] { item(0x03, [0] + content) }

    /// A positive integer of big-endian bytes.
    private static func integer(_ bytes: [UInt8]) -> [UInt8] {
      let digits = Array(bytes.drop { $0 == 0 })
      return item(0x02, digits.first.map { $0 < 0x80 } ?? false ? digits : [0] + digits)
    }

    private static func item(_ tag: UInt8, _ content: [UInt8]) -> [UInt8] {
      let count = content.count
      guard count >= 0x80 else { return [tag, UInt8(count)] + content }
      guard count >= 0x100 else { return [tag, 0x81, UInt8(count)] + content }
      return [tag, 0x82, UInt8(count >> 8), UInt8(count & 0xFF)] + content
    }
  }
}

extension JSONWebToken {
  /// The id of the key that the header names. It is not verified.
  var keyID: String? {
    guard let json = try? JSONScanner(header) else { return nil }
    return json.member("kid").flatMap(json.text)
  }
}
