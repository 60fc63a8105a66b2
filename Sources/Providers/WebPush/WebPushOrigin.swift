// The origin of a push service: scheme, host and port of an endpoint. Each origin has connections and a VAPID token of its own.

/// `https://host[:port]`. The scheme is always https.
public struct WebPushOrigin: Hashable, Sendable, CustomStringConvertible {
  /// Maximum length of a host name (RFC 1035 §2.3.4).
  static let hostBytesMax = 253

  /// A host name or an IPv4 address, in lower case.
  public let host: String
  public let port: UInt16

  /// The origin in ASCII (RFC 6454 §6.2): claim `aud` of a VAPID token. RFC 8292 §2 asks for the Unicode form, which differs only for
  /// internationalized names, and no known push service has one. It contains no secret.
  public var description: String { port == 443 ? "https://\(host)" : "https://\(host):\(port)" }

  /// Whether it belongs to WNS (Windows Push Notification Services).
  var isWNS: Bool { host.hasSuffix(".notify.windows.com") }

  /// - Parameter authority: host and optional port of a URL. Nil if it is anything else: a user name, an IPv6 address, an empty
  ///   label, or a byte that no host name contains.
  init?(authority: ArraySlice<UInt8>) {
    let name = authority.prefix { $0 != UInt8(ascii: ":") }
    guard (1...Self.hostBytesMax).contains(name.count) else { return nil }
    var host: [UInt8] = []
    host.reserveCapacity(name.count)
    var isLabelEmpty = true
    for byte in name {
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"):
        host.append(byte)
        isLabelEmpty = false
      case UInt8(ascii: "A")...UInt8(ascii: "Z"):
        host.append(byte | 0x20)
        isLabelEmpty = false
      case UInt8(ascii: ".") where !isLabelEmpty:
        host.append(byte)
        isLabelEmpty = true
      default: return nil
      }
    }
    guard !isLabelEmpty else { return nil }
    var port: UInt16 = 443
    if name.endIndex < authority.endIndex {
      let digits = authority[(name.endIndex + 1)...]
      guard (1...5).contains(digits.count), digits.allSatisfy({ UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 }),
        let number = UInt16(String(decoding: digits, as: UTF8.self)), number > 0
      else { return nil }
      port = number
    }
    self.host = String(decoding: host, as: UTF8.self)
    self.port = port
  }
}
