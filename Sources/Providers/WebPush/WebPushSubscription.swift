// A browser's subscription: where to send a push, and the keys with which it is encrypted.
//
// The endpoint is a capability URL (RFC 8030 §8.3): whoever knows it and the VAPID key may send to this browser. The secret `auth`
// protects the content. Neither is ever part of a log line or an error.

internal import Runtime

/// A parsed subscription.
public struct WebPushSubscription: Sendable {
  /// Why a subscription cannot be used. Names the field, never a value.
  public enum Fault: String, Error, CustomStringConvertible, Sendable, CaseIterable {
    case notCanonical
    case tooLong
    case endpoint
    case p256dh
    case auth

    public var description: String {
      switch self {
      case .notCanonical:
        "subscription: must be the endpoint, #auth=, 22 characters, &p256dh=, 87 characters (both in base64url)"
      case .tooLong: "subscription: has more than \(bytesMax) bytes"
      case .endpoint: "subscription, field endpoint: must be an https URL with a host name, a path and no fragment"
      case .p256dh: "subscription, field keys.p256dh: must be an uncompressed point on P-256, 65 bytes in base64url"
      case .auth: "subscription, field keys.auth: must be 16 bytes in base64url"
      }
    }
  }

  /// Maximum number of bytes of a token. The endpoints of today's push services have at most 600.
  public static let bytesMax = 1_000
  /// Number of bytes of the secret `auth` (RFC 8291 §3.2).
  static let authByteCount = 16

  private static let scheme = Array("https://".utf8)
  private static let authMark = Array("#auth=".utf8)
  private static let pointMark = Array("&p256dh=".utf8)
  private static let authTextCount = 22
  private static let pointTextCount = 87
  /// Number of bytes of a token after the endpoint.
  private static let keysCount = authMark.count + authTextCount + pointMark.count + pointTextCount

  public let origin: WebPushOrigin
  /// Path and query of the endpoint: what follows the authority.
  let path: ArraySlice<UInt8>
  /// The authentication secret of the browser: 16 bytes.
  let auth: [UInt8]
  /// The browser's public key.
  let point: KeyAgreementPoint

  /// Reads a device token: `ENDPOINT#auth=AUTH&p256dh=P256DH`, with the keys in base64url without padding. `push.webpush_token`
  /// makes this text of the JSON that a browser gives, so equal subscriptions have equal tokens. It ends with the public key,
  /// because masks show the last four characters of a token.
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

  /// The origin of a device token, without a check of the rest of it; nil if it names none.
  static func origin(ofToken token: ArraySlice<UInt8>) -> WebPushOrigin? {
    guard token.starts(with: scheme) else { return nil }
    return WebPushOrigin(authority: token.dropFirst(scheme.count).prefix { $0 != UInt8(ascii: "/") })
  }

  /// A hash of the endpoint of a device token, without a check of the token.
  static func hash(ofToken token: ArraySlice<UInt8>) -> Int { token.prefix { $0 != UInt8(ascii: "#") }.hashValue }

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
}
