// Names for what other push servers' clients do not name: the user of a token, and the call of an event.

internal import Runtime

/// Ids that are always the same for the same thing, and do not contain it.
package enum TokenIdentity {
  /// The user id of a phone that is known by its token alone.
  package static func userID(of token: String) -> String {
    "phone-" + String(decoding: Base64URL.encode(SHA256.digest(Array(token.utf8))).prefix(22), as: UTF8.self)
  }

  /// An id made of some texts: a UUID of version 8 (RFC 9562), in lower case, because apps give a call's id to CallKit,
  /// which accepts nothing else.
  static func uuid(of parts: String...) -> String {
    // With their lengths, so that other parts of the same whole have another id.
    let text = parts.reduce(into: "") { $0 += "\($1.utf8.count):\($1)" }
    var bytes = Array(SHA256.digest(Array(text.utf8)).prefix(16))
    bytes[6] = bytes[6] & 0x0F | 0x80
    bytes[8] = bytes[8] & 0x3F | 0x80
    let digits = bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    var rest = digits[...]
    return [8, 4, 4, 4, 12].map { count in
      defer { rest = rest.dropFirst(count) }
      return String(rest.prefix(count))
    }.joined(separator: "-")
  }

  /// The APNs token in a Matrix push key, as 64 to 200 hexadecimal digits; nil if there is none.
  ///
  /// Clients give it in Base64. Some give its digits instead, as they may to Sygnal with `convert_device_token_to_hex:
  /// false`: a text of hexadecimal digits alone is taken as such, because a random token in Base64 practically never looks
  /// so.
  static func apnsToken(ofPushKey pushKey: String) -> String? {
    let text = Array(pushKey.utf8)
    if isAPNsToken(text) { return pushKey.lowercased() }
    let padding = text.reversed().prefix { $0 == UInt8(ascii: "=") }.count
    guard padding <= 2 else { return nil }
    let sextets = text.dropLast(padding).map { byte in
      switch byte {
      case UInt8(ascii: "+"): UInt8(ascii: "-")
      case UInt8(ascii: "/"): UInt8(ascii: "_")
      default: byte
      }
    }
    guard let bytes = Base64URL.decode(sextets) else { return nil }
    let digits = bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    return isAPNsToken(Array(digits.utf8)) ? digits : nil
  }

  /// As `push.is_token`.
  package static func isAPNsToken(_ text: [UInt8]) -> Bool {
    64...200 ~= text.count && text.count.isMultiple(of: 2)
      && text.allSatisfy { Character(Unicode.Scalar($0)).isHexDigit }
  }

  /// As `push.is_token`.
  package static func isFCMToken(_ text: some StringProtocol) -> Bool {
    20...4096 ~= text.utf8.count
      && text.utf8.allSatisfy { byte in
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
          UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: ":"), UInt8(ascii: "%"),
          UInt8(ascii: "."), UInt8(ascii: "-"):
          true
        default: false
        }
      }
  }
}
