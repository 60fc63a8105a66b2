// Compares `JSONScanner` with a slow and simple parser (RFC 8259).

enum JSONFuzz {
  static func run(_ input: FuzzInput) {
    let text = input.bytes
    walk(JSONScanner(trusting: text))
    let scanner: JSONScanner?
    do { scanner = try JSONScanner(text) } catch {
      require(0...text.count ~= error.offset, "an error behind the end of the text")
      scanner = nil
    }
    var parser = ObviousParser(bytes: text)
    let expected = parser.parse()
    require((scanner != nil) == (expected != nil), "\(scanner != nil ? "accepted what is no" : "refused") JSON")
    guard let scanner, let expected else { return }
    require(Tree(scanner.root, in: scanner) == expected, "another value than there stands")
  }

  /// Reads every value: nothing may trap, even if the text is no JSON.
  private static func walk(_ json: JSONScanner) {
    var values = [json.root]
    var count = 0
    while let value = values.popLast(), count < 2000 {
      count += 1
      _ = (json.raw(value), json.string(value), json.integer(value), json.boolean(value))
      for member in json.members(of: value) {
        _ = (json.key(member), json.isKey(member, "data"))
        values.append(member.value)
      }
      values.append(contentsOf: json.elements(of: value))
    }
    _ = (json.member("error"), json.member(Array("data".utf8), of: json.root))
  }

  indirect enum Tree: Equatable {
    case object([Member])
    case array([Tree])
    case string([UInt8])
    case number([UInt8])
    case boolean(Bool)
    case null

    struct Member: Equatable {
      var name: [UInt8]
      var value: Tree
    }

    init(_ value: JSONScanner.Value, in json: JSONScanner) {
      switch value.kind {
      case .object:
        let members = json.members(of: value)
          .map { Member(name: json.key($0), value: Tree($0.value, in: json)) }
        for (index, member) in members.enumerated() where index == members.lastIndex(where: { $0.name == member.name })
        {
          let found = json.member(member.name, of: value).map { Tree($0, in: json) }
          require(found == member.value, "a member that is not found by its name")
        }
        self = .object(members)
      case .array: self = .array(json.elements(of: value).map { Tree($0, in: json) })
      case .string: self = .string(json.string(value) ?? [])
      case .number:
        let digits = Array(json.raw(value))
        require(
          json.integer(value) == Int64(String(decoding: digits, as: UTF8.self)), "another integer than there stands")
        self = .number(digits)
      case .boolean: self = .boolean(json.boolean(value) ?? false)
      case .null: self = .null
      }
    }
  }

  /// Recursive descent, with one function for each rule of the grammar.
  private struct ObviousParser {
    let bytes: [UInt8]
    var at = 0
    var depth = 0

    init(bytes: [UInt8]) { self.bytes = bytes }

    mutating func parse() -> Tree? {
      guard let value = value() else { return nil }
      skipSpace()
      return at == bytes.count ? value : nil
    }

    private mutating func skipSpace() {
      while at < bytes.count, [0x20, 0x09, 0x0A, 0x0D].contains(bytes[at]) { at += 1 }
    }

    private mutating func take(_ text: String) -> Bool {
      guard bytes[at...].starts(with: text.utf8) else { return false }
      at += text.utf8.count
      return true
    }

    private mutating func value() -> Tree? {
      skipSpace()
      if take("{") { return nested { $0.object() } }
      if take("[") { return nested { $0.array() } }
      if take("true") { return .boolean(true) }
      if take("false") { return .boolean(false) }
      if take("null") { return .null }
      if take("\"") { return string().map(Tree.string) }
      return number()
    }

    private mutating func nested(_ body: (inout Self) -> Tree?) -> Tree? {
      depth += 1
      defer { depth -= 1 }
      return depth <= JSONScanner.maxDepth ? body(&self) : nil
    }

    private mutating func object() -> Tree? {
      var members: [Tree.Member] = []
      skipSpace()
      if take("}") { return .object([]) }
      while true {
        skipSpace()
        guard take("\""), let name = string() else { return nil }
        skipSpace()
        guard take(":"), let value = value() else { return nil }
        members.append(Tree.Member(name: name, value: value))
        skipSpace()
        if take("}") { return .object(members) }
        guard take(",") else { return nil }
      }
    }

    private mutating func array() -> Tree? {
      var elements: [Tree] = []
      skipSpace()
      if take("]") { return .array([]) }
      while true {
        guard let value = value() else { return nil }
        elements.append(value)
        skipSpace()
        if take("]") { return .array(elements) }
        guard take(",") else { return nil }
      }
    }

    private mutating func number() -> Tree? {
      let start = at
      _ = take("-")
      if !take("0") {
        guard digits() > 0 else { return nil }
      }
      if take(".") {
        guard digits() > 0 else { return nil }
      }
      if take("e") || take("E") {
        if !take("+") { _ = take("-") }
        guard digits() > 0 else { return nil }
      }
      return .number(Array(bytes[start..<at]))
    }

    private mutating func digits() -> Int {
      let start = at
      while at < bytes.count, 0x30...0x39 ~= bytes[at] { at += 1 }
      return at - start
    }

    /// The text after an opening quote, in UTF-16 like the escapes, then in UTF-8.
    private mutating func string() -> [UInt8]? {
      var units: [UInt16] = []
      var plain: [UInt8] = []
      func flush(_ plain: inout [UInt8], _ units: inout [UInt16]) -> Bool {
        guard let text = String(validating: plain, as: UTF8.self) else { return false }
        units.append(contentsOf: text.utf16)
        plain = []
        return true
      }
      while at < bytes.count {
        let byte = bytes[at]
        at += 1
        switch byte {
        case UInt8(ascii: "\""):
          return flush(&plain, &units) ? Array(String(decoding: units, as: UTF16.self).utf8) : nil
        case UInt8(ascii: "\\"):
          guard flush(&plain, &units), at < bytes.count else { return nil }
          let letter = bytes[at]
          at += 1
          if letter == UInt8(ascii: "u") {
            guard at + 4 <= bytes.count else { return nil }
            let digits = bytes[at..<at + 4]
            guard digits.allSatisfy({ 0x30...0x39 ~= $0 || 0x61...0x66 ~= $0 | 0x20 }),
              let unit = UInt16(String(decoding: digits, as: UTF8.self), radix: 16)
            else { return nil }
            units.append(unit)
            at += 4
          } else {
            guard let place = "\"\\/bfnrt".utf8.firstIndex(of: letter) else { return nil }
            let meanings: [UInt8] = [0x22, 0x5C, 0x2F, 0x08, 0x0C, 0x0A, 0x0D, 0x09]
            units.append(UInt16(meanings["\"\\/bfnrt".utf8.distance(from: "\"\\/bfnrt".utf8.startIndex, to: place)]))
          }
        case ..<0x20: return nil
        default: plain.append(byte)
        }
      }
      return nil
    }
  }
}
