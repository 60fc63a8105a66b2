// Tests and conversions of ASCII bytes that all verifiers use.

extension ArraySlice<UInt8> {
  /// Whether these are the bytes of `text`.
  func equals(_ text: StaticString) -> Bool {
    guard count == text.utf8CodeUnitCount else { return false }
    return hasPrefix(text)
  }

  /// Whether these bytes begin with those of `text`.
  func hasPrefix(_ text: StaticString) -> Bool {
    let length = text.utf8CodeUnitCount
    guard count >= length else { return false }
    return text.withUTF8Buffer { expected in
      unsafe withUnsafeBufferPointer { own in
        for index in 0..<length where unsafe own[index] != expected[index] { return false }
        return true
      }
    }
  }

  func hasPrefix(_ prefix: [UInt8]) -> Bool { starts(with: prefix) }

  /// Whether these bytes begin with `text` (lower case), in upper, lower or mixed case.
  func hasPrefixIgnoringCase(_ text: StaticString) -> Bool {
    guard count >= text.utf8CodeUnitCount else { return false }
    return text.withUTF8Buffer { expected in
      for index in expected.indices where unsafe lowercased(self[startIndex + index]) != expected[index] {
        return false
      }
      return true
    }
  }

  /// The number that these bytes represent in decimal digits, or nil if there is any other byte.
  var decimal: Int64? {
    guard !isEmpty, count <= 18 else { return nil }
    var number: Int64 = 0
    for digit in self {
      guard digit >= UInt8(ascii: "0"), digit <= UInt8(ascii: "9") else { return nil }
      number = number * 10 + Int64(digit - UInt8(ascii: "0"))
    }
    return number
  }

  var text: String { String(decoding: self, as: UTF8.self) }

  /// Whether this is a UUID in its canonical form, 8-4-4-4-12 hexadecimal digits.
  var isUUID: Bool {
    guard count == 36 else { return false }
    for (position, byte) in enumerated() {
      let isDash = position == 8 || position == 13 || position == 18 || position == 23
      guard isDash ? byte == UInt8(ascii: "-") : byte.isHexDigit else { return false }
    }
    return true
  }
}

extension UInt8 {
  var isHexDigit: Bool {
    switch self {
    case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "f"),
      UInt8(ascii: "A")...UInt8(ascii: "F"):
      true
    default: false
    }
  }
}

private func lowercased(_ byte: UInt8) -> UInt8 {
  byte >= UInt8(ascii: "A") && byte <= UInt8(ascii: "Z") ? byte | 0x20 : byte
}

extension [UInt8] {
  /// Whether `text` occurs somewhere in these bytes.
  func holds(_ text: StaticString) -> Bool {
    text.withUTF8Buffer { wanted in
      unsafe withUnsafeBufferPointer { own in
        guard let first = unsafe wanted.first, own.count >= wanted.count else { return false }
        for start in 0...(own.count - wanted.count) where unsafe own[start] == first {
          if unsafe own[start..<(start + wanted.count)].elementsEqual(wanted) { return true }
        }
        return false
      }
    }
  }

  /// The bytes of `text`.
  init(_ text: StaticString) {
    self = text.withUTF8Buffer { unsafe Array($0) }
  }

  /// Appends `value` as `digits` lower-case hexadecimal digits.
  mutating func appendHex(_ value: UInt64, digits: Int) {
    for position in stride(from: digits - 1, through: 0, by: -1) {
      let nibble = UInt8(truncatingIfNeeded: value >> (4 * UInt64(position))) & 0x0F
      append(nibble < 10 ? UInt8(ascii: "0") + nibble : UInt8(ascii: "a") + nibble - 10)
    }
  }

  /// Appends 128 bits in a UUID's canonical form.
  mutating func appendUUID(high: UInt64, low: UInt64) {
    appendHex(high >> 32, digits: 8)
    append(UInt8(ascii: "-"))
    appendHex(high >> 16 & 0xFFFF, digits: 4)
    append(UInt8(ascii: "-"))
    appendHex(high & 0xFFFF, digits: 4)
    append(UInt8(ascii: "-"))
    appendHex(low >> 48, digits: 4)
    append(UInt8(ascii: "-"))
    appendHex(low & 0xFFFF_FFFF_FFFF, digits: 12)
  }
}
