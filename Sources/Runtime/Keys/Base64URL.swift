// Base64 with the URL alphabet and without padding, as JSON Web Tokens use it (RFC 7515 §2).

/// Encoding and strict decoding of base64url.
public enum Base64URL {
  private static let alphabet = [UInt8]("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)
  private static let invalid: UInt8 = 0xFF
  /// The value of each byte, `invalid` for those outside the alphabet.
  private static let values: [UInt8] = {
    var values = [UInt8](repeating: invalid, count: 256)
    for (value, character) in alphabet.enumerated() { values[Int(character)] = UInt8(value) }
    return values
  }()

  /// Appends the encoding of `bytes`, without padding, to `output`.
  public static func encode(_ bytes: [UInt8], into output: inout [UInt8]) {
    output.reserveCapacity(output.count + (bytes.count * 4 + 2) / 3)
    var index = 0
    while index + 2 < bytes.count {
      let group = UInt32(bytes[index]) << 16 | UInt32(bytes[index + 1]) << 8 | UInt32(bytes[index + 2])
      append(group, characters: 4, to: &output)
      index += 3
    }
    switch bytes.count - index {
    case 1: append(UInt32(bytes[index]) << 16, characters: 2, to: &output)
    case 2: append(UInt32(bytes[index]) << 16 | UInt32(bytes[index + 1]) << 8, characters: 3, to: &output)
    default: break
    }
  }

  /// The encoding of `bytes`, without padding.
  public static func encode(_ bytes: [UInt8]) -> [UInt8] {
    var output: [UInt8] = []
    encode(bytes, into: &output)
    return output
  }

  /// The decoded bytes of `text`; nil for a text that an encoder would not write: with padding, a byte outside the alphabet, an
  /// impossible length, or left-over bits that are not zero.
  public static func decode(_ text: ArraySlice<UInt8>) -> [UInt8]? {
    guard text.count % 4 != 1 else { return nil }
    var output: [UInt8] = []
    output.reserveCapacity(text.count * 3 / 4)
    var bits: UInt32 = 0
    var bitCount: UInt32 = 0
    for character in text {
      let value = values[Int(character)]
      guard value != invalid else { return nil }
      bits = bits << 6 | UInt32(value)
      bitCount += 6
      if bitCount >= 8 {
        bitCount -= 8
        output.append(UInt8(truncatingIfNeeded: bits >> bitCount))
        bits &= (1 << bitCount) - 1
      }
    }
    return bits == 0 ? output : nil
  }

  /// As `decode(_:)` for a slice.
  public static func decode(_ text: [UInt8]) -> [UInt8]? { decode(text[...]) }

  /// Appends the leading `characters` sextets of a 24-bit group.
  private static func append(_ group: UInt32, characters: UInt32, to output: inout [UInt8]) {
    for position in 0..<characters {
      output.append(alphabet[Int(group >> (18 - 6 * position) & 63)])
    }
  }
}
