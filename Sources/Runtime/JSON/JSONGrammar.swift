// Checks an untrusted text against the grammar of RFC 8259.

/// Checks a text in one pass without recursion. The kinds of the open containers are bits of one word.
enum JSONGrammar {
  /// - Throws: the first byte at which the text stops being JSON.
  static func check(_ bytes: [UInt8]) throws(JSONError) {
    var reader = Reader(bytes: bytes)
    try reader.checkText()
  }

  static func hexValue(_ digit: UInt8) -> UInt8? {
    switch digit {
    case UInt8(ascii: "0")...UInt8(ascii: "9"): digit - UInt8(ascii: "0")
    case UInt8(ascii: "a")...UInt8(ascii: "f"): digit - UInt8(ascii: "a") + 10
    case UInt8(ascii: "A")...UInt8(ascii: "F"): digit - UInt8(ascii: "A") + 10
    default: nil
    }
  }

  private struct Reader {
    let bytes: [UInt8]
    var position = 0
    var depth = 0
    /// One bit for each open container, the innermost lowest. 1 means object.
    var containers: UInt64 = 0

    init(bytes: [UInt8]) {
      self.bytes = bytes
    }

    var isInObject: Bool { containers & 1 == 1 }

    mutating func checkText() throws(JSONError) {
      repeat {
        try checkValue()
        try closeContainers()
      } while depth > 0
      skipSpace()
      guard position == bytes.count else { throw fail(.unexpectedByte) }
    }

    /// One scalar, an empty container, or everything up to the first value of a container that has one.
    mutating func checkValue() throws(JSONError) {
      while true {
        skipSpace()
        switch try current() {
        case UInt8(ascii: "{"):
          try open(isObject: true)
          if peek() == UInt8(ascii: "}") { return }
          try checkName()
        case UInt8(ascii: "["):
          try open(isObject: false)
          if peek() == UInt8(ascii: "]") { return }
        case UInt8(ascii: "\""): return try checkString()
        case UInt8(ascii: "t"): return try checkWord("true")
        case UInt8(ascii: "f"): return try checkWord("false")
        case UInt8(ascii: "n"): return try checkWord("null")
        default: return try checkNumber()
        }
      }
    }

    /// Called after a value: closes the containers that end here. If any is left, the position is where the next value begins.
    mutating func closeContainers() throws(JSONError) {
      while depth > 0 {
        skipSpace()
        let byte = try current()
        if byte == (isInObject ? UInt8(ascii: "}") : UInt8(ascii: "]")) {
          position += 1
          depth -= 1
          containers >>= 1
        } else if byte == UInt8(ascii: ",") {
          position += 1
          if isInObject { try checkName() }
          return
        } else {
          throw fail(.unexpectedByte)
        }
      }
    }

    mutating func open(isObject: Bool) throws(JSONError) {
      guard depth < JSONScanner.maxDepth else { throw fail(.tooDeep) }
      position += 1
      depth += 1
      containers = containers << 1 | (isObject ? 1 : 0)
      skipSpace()
    }

    mutating func checkName() throws(JSONError) {
      skipSpace()
      guard try current() == UInt8(ascii: "\"") else { throw fail(.unexpectedByte) }
      try checkString()
      skipSpace()
      guard try current() == UInt8(ascii: ":") else { throw fail(.unexpectedByte) }
      position += 1
    }

    // MARK: Scalars

    mutating func checkWord(_ word: StaticString) throws(JSONError) {
      let end = position + word.utf8CodeUnitCount
      guard end <= bytes.count else { throw fail(.unexpectedEnd) }
      let isWord = word.withUTF8Buffer { unsafe bytes[position..<end].elementsEqual($0) }
      guard isWord else { throw fail(.unexpectedByte) }
      position = end
    }

    mutating func checkNumber() throws(JSONError) {
      let start = position
      if peek() == UInt8(ascii: "-") { position += 1 }
      if peek() == UInt8(ascii: "0") {
        position += 1
      } else {
        guard skipDigits() else { throw fail(position == start ? .unexpectedByte : .invalidNumber) }
      }
      if peek() == UInt8(ascii: ".") {
        position += 1
        guard skipDigits() else { throw fail(.invalidNumber) }
      }
      if peek() == UInt8(ascii: "e") || peek() == UInt8(ascii: "E") {
        position += 1
        if peek() == UInt8(ascii: "+") || peek() == UInt8(ascii: "-") { position += 1 }
        guard skipDigits() else { throw fail(.invalidNumber) }
      }
    }

    mutating func checkString() throws(JSONError) {
      position += 1
      while true {
        let byte = try current()
        switch byte {
        case UInt8(ascii: "\""):
          position += 1
          return
        case UInt8(ascii: "\\"): try checkEscape()
        case ..<0x20: throw fail(.controlCharacter)
        case ..<0x80: position += 1
        default: try checkMultibyte(byte)
        }
      }
    }

    mutating func checkEscape() throws(JSONError) {
      position += 1
      switch try current() {
      case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"), UInt8(ascii: "b"), UInt8(ascii: "f"),
        UInt8(ascii: "n"), UInt8(ascii: "r"), UInt8(ascii: "t"):
        position += 1
      case UInt8(ascii: "u"):
        position += 1
        for _ in 0..<4 {
          guard JSONGrammar.hexValue(try current()) != nil else { throw fail(.invalidEscape) }
          position += 1
        }
      default: throw fail(.invalidEscape)
      }
    }

    /// The well-formed sequences of the Unicode Standard, table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF.
    mutating func checkMultibyte(_ lead: UInt8) throws(JSONError) {
      let second: ClosedRange<UInt8>
      let tail: Int
      switch lead {
      case 0xC2...0xDF: (second, tail) = (0x80...0xBF, 0)
      case 0xE0: (second, tail) = (0xA0...0xBF, 1)
      case 0xED: (second, tail) = (0x80...0x9F, 1)
      case 0xE1...0xEF: (second, tail) = (0x80...0xBF, 1)
      case 0xF0: (second, tail) = (0x90...0xBF, 2)
      case 0xF1...0xF3: (second, tail) = (0x80...0xBF, 2)
      case 0xF4: (second, tail) = (0x80...0x8F, 2)
      default: throw fail(.invalidUTF8)
      }
      position += 1
      guard second ~= (try current()) else { throw fail(.invalidUTF8) }
      position += 1
      for _ in 0..<tail {
        guard 0x80...0xBF ~= (try current()) else { throw fail(.invalidUTF8) }
        position += 1
      }
    }

    // MARK: Steps

    func peek() -> UInt8? { position < bytes.count ? bytes[position] : nil }

    func current() throws(JSONError) -> UInt8 {
      guard position < bytes.count else { throw fail(.unexpectedEnd) }
      return bytes[position]
    }

    mutating func skipDigits() -> Bool {
      let start = position
      while let byte = peek(), UInt8(ascii: "0")...UInt8(ascii: "9") ~= byte { position += 1 }
      return position > start
    }

    mutating func skipSpace() {
      while let byte = peek(), Self.isSpace(byte) { position += 1 }
    }

    static func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 }

    func fail(_ reason: JSONError.Reason) -> JSONError { JSONError(reason: reason, offset: position) }
  }
}
