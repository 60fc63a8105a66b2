// Decodes the bytes between the quotes of a JSON string.

extension JSONScanner {
  /// Resolves the escapes of RFC 8259 §7. Never fails: invalid escapes stay as they are.
  static func unescape(_ contents: ArraySlice<UInt8>) -> [UInt8] {
    guard var backslash = contents.firstIndex(of: UInt8(ascii: "\\")) else { return Array(contents) }
    var text: [UInt8] = []
    text.reserveCapacity(contents.count)
    var rest = contents
    while true {
      text.append(contentsOf: rest[..<backslash])
      rest = rest[(backslash + 1)...]
      appendEscape(&rest, to: &text)
      guard let next = rest.firstIndex(of: UInt8(ascii: "\\")) else { break }
      backslash = next
    }
    text.append(contentsOf: rest)
    return text
  }

  /// Removes one escape, without its backslash, from the front of `rest`.
  private static func appendEscape(_ rest: inout ArraySlice<UInt8>, to text: inout [UInt8]) {
    guard let letter = rest.popFirst() else { return text.append(UInt8(ascii: "\\")) }
    switch letter {
    case UInt8(ascii: "b"): text.append(0x08)
    case UInt8(ascii: "t"): text.append(0x09)
    case UInt8(ascii: "n"): text.append(0x0A)
    case UInt8(ascii: "f"): text.append(0x0C)
    case UInt8(ascii: "r"): text.append(0x0D)
    case UInt8(ascii: "u"): append(readScalar(&rest), to: &text)
    default: text.append(letter)
    }
  }

  /// The scalar of `XXXX` or of the surrogate pair `XXXX\uXXXX`.
  private static func readScalar(_ rest: inout ArraySlice<UInt8>) -> Unicode.Scalar {
    let replacement: Unicode.Scalar = "\u{FFFD}"
    guard let first = readHex(&rest) else { return replacement }
    if let scalar = Unicode.Scalar(first) { return scalar }
    var ahead = rest
    guard first < 0xDC00, ahead.popFirst() == UInt8(ascii: "\\"), ahead.popFirst() == UInt8(ascii: "u"),
      let second = readHex(&ahead), 0xDC00...0xDFFF ~= second
    else { return replacement }
    rest = ahead
    return Unicode.Scalar(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)) ?? replacement
  }

  private static func readHex(_ rest: inout ArraySlice<UInt8>) -> UInt32? {
    var number: UInt32 = 0
    guard rest.count >= 4 else { return nil }
    for digit in rest.prefix(4) {
      guard let value = JSONGrammar.hexValue(digit) else { return nil }
      number = number << 4 | UInt32(value)
    }
    rest.removeFirst(4)
    return number
  }

  private static func append(_ scalar: Unicode.Scalar, to text: inout [UInt8]) {
    text.append(contentsOf: UTF8.encode(scalar) ?? UTF8.encodedReplacementCharacter)
  }
}
