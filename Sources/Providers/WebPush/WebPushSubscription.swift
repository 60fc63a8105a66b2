// A browser's subscription: where to send a push, and the keys with which it is encrypted. Its canonical text is the device token.
//
// The endpoint is a capability URL (RFC 8030 §8.3): whoever knows it and the VAPID key may send to this browser. The secret `auth`
// protects the content. Neither is ever part of a log line or an error.

internal import Runtime

/// A parsed subscription.
public struct WebPushSubscription: Sendable {
  /// Why a subscription cannot be used. Names the field, never a value.
  public enum Fault: String, Error, CustomStringConvertible, Sendable, CaseIterable {
    case notCanonical
    case notJSON
    case tooLong
    case endpoint
    case p256dh
    case auth

    public var description: String {
      switch self {
      case .notCanonical:
        "subscription: must be the endpoint, #auth=, 22 characters, &p256dh=, 87 characters (both in base64url)"
      case .notJSON:
        "subscription: must be the JSON object of PushSubscription.toJSON(), with endpoint, keys.p256dh and keys.auth"
      case .tooLong: "subscription: has more than \(bytesMax) bytes"
      case .endpoint: "subscription, field endpoint: must be an https URL with a host name, a path and no fragment"
      case .p256dh: "subscription, field keys.p256dh: must be an uncompressed point on P-256, 65 bytes in base64url"
      case .auth: "subscription, field keys.auth: must be 16 bytes in base64url"
      }
    }
  }

  /// Maximum number of bytes of the canonical text. The endpoints of today's push services have at most 600.
  public static let bytesMax = 1_000
  /// Number of bytes of the secret `auth` (RFC 8291 §3.2).
  static let authByteCount = 16

  private static let scheme = Array("https://".utf8)
  private static let authMark = Array("#auth=".utf8)
  private static let pointMark = Array("&p256dh=".utf8)
  private static let authTextCount = 22
  private static let pointTextCount = 87
  /// Number of bytes of the canonical text after the endpoint.
  private static let keysCount = authMark.count + authTextCount + pointMark.count + pointTextCount

  public let origin: WebPushOrigin
  /// Path and query of the endpoint: what follows the authority.
  let path: ArraySlice<UInt8>
  /// The authentication secret of the browser: 16 bytes.
  let auth: [UInt8]
  /// The browser's public key.
  let point: KeyAgreementPoint

  /// The canonical text: `ENDPOINT#auth=AUTH&p256dh=P256DH`, with the keys in base64url without padding. Equal subscriptions have
  /// equal texts. It ends with the public key, because masks show the last four characters of a token.
  public var text: [UInt8] {
    var text = Array(origin.description.utf8)
    text.append(contentsOf: path)
    text += Self.authMark
    Base64URL.encode(auth, into: &text)
    text += Self.pointMark
    Base64URL.encode(point.bytes, into: &text)
    return text
  }

  /// Reads the canonical text: a device token.
  public init(token: ArraySlice<UInt8>) throws(Fault) {
    guard token.count <= Self.bytesMax else { throw .tooLong }
    let end = token.endIndex - Self.keysCount
    guard token.count > Self.keysCount else { throw .notCanonical }
    let authStart = end + Self.authMark.count
    let markStart = authStart + Self.authTextCount
    let pointStart = markStart + Self.pointMark.count
    guard token[end..<authStart].elementsEqual(Self.authMark),
      token[markStart..<pointStart].elementsEqual(Self.pointMark)
    else { throw .notCanonical }
    guard let auth = Base64URL.decode(token[authStart..<markStart]) else { throw .auth }
    guard let point = Base64URL.decode(token[pointStart...]) else { throw .p256dh }
    try self.init(endpoint: token[..<end], auth: auth, p256dh: point)
  }

  /// Reads the JSON text that a browser's `PushSubscription.toJSON()` returns. Other members are ignored. The keys may also be in
  /// base64 with the other alphabet and with padding, as some libraries write them.
  public init(json text: [UInt8]) throws(Fault) {
    guard let json = try? JSONScanner(text), json.root.kind == .object, let keys = json.member("keys"),
      keys.kind == .object
    else { throw .notJSON }
    guard let endpoint = json.member("endpoint").flatMap(json.string) else { throw .endpoint }
    guard let auth = json.member("auth", of: keys).flatMap(json.string).flatMap(Self.decode) else { throw .auth }
    guard let point = json.member("p256dh", of: keys).flatMap(json.string).flatMap(Self.decode) else { throw .p256dh }
    try self.init(endpoint: endpoint[...], auth: auth, p256dh: point)
    guard self.text.count <= Self.bytesMax else { throw .tooLong }
  }

  private init(endpoint: ArraySlice<UInt8>, auth: [UInt8], p256dh: [UInt8]) throws(Fault) {
    guard endpoint.starts(with: Self.scheme), endpoint.allSatisfy(Self.isURLByte) else { throw .endpoint }
    let rest = endpoint.dropFirst(Self.scheme.count)
    let authority = rest.prefix { $0 != UInt8(ascii: "/") }
    guard authority.endIndex < rest.endIndex, let origin = WebPushOrigin(authority: authority) else { throw .endpoint }
    guard auth.count == Self.authByteCount else { throw .auth }
    guard let point = KeyAgreementPoint(p256dh) else { throw .p256dh }
    self.origin = origin
    path = rest[authority.endIndex...]
    self.auth = auth
    self.point = point
  }

  /// Printable ASCII without blanks, fragments, and characters that programs read in different ways.
  private static func isURLByte(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "#"), UInt8(ascii: "\\"), UInt8(ascii: "\""), UInt8(ascii: "<"), UInt8(ascii: ">"),
      UInt8(ascii: "^"), UInt8(ascii: "`"), UInt8(ascii: "{"), UInt8(ascii: "|"), UInt8(ascii: "}"):
      false
    default: 0x21...0x7E ~= byte
    }
  }

  /// Decodes base64 with either alphabet, with or without padding.
  private static func decode(_ text: [UInt8]) -> [UInt8]? {
    let end = text.lastIndex { $0 != UInt8(ascii: "=") }.map { $0 + 1 } ?? 0
    guard text.count - end <= 2 else { return nil }
    return Base64URL.decode(
      text[..<end].map { byte in
        switch byte {
        case UInt8(ascii: "+"): UInt8(ascii: "-")
        case UInt8(ascii: "/"): UInt8(ascii: "_")
        default: byte
        }
      })
  }
}
