// Reads JSON in place: a value is a kind and a range of the text. A string is decoded only when the caller asks for it.

/// Why a text is not JSON, and where. Has no part of the text.
public struct JSONError: Error, Equatable, CustomStringConvertible, Sendable {
  public enum Reason: String, Sendable {
    case unexpectedEnd = "the text ends too early"
    case unexpectedByte = "unexpected byte"
    case invalidNumber = "malformed number"
    case invalidEscape = "malformed escape in a string"
    case controlCharacter = "control character in a string"
    case invalidUTF8 = "a string is not UTF-8"
    case tooDeep = "nested too deeply"
  }

  public let reason: Reason
  /// The offset of the byte at which it was noticed.
  public let offset: Int

  public var description: String { "not JSON: \(reason.rawValue) at byte \(offset)" }
}

/// A view of one JSON text (RFC 8259). It allocates only the strings that it returns.
///
/// ```swift
/// let json = try JSONScanner(body)
/// if let reason = json.member("reason").flatMap(json.text) { … }
/// for member in json.members(of: json.root) where json.isKey(member, "details") { … }
/// ```
public struct JSONScanner: Sendable {
  public enum Kind: Sendable {
    case object, array, string, number, boolean, null
  }

  /// A value in the text.
  public struct Value: Equatable, Sendable {
    public let kind: Kind
    /// The value's bytes, with the quotes of a string and the brackets of a container.
    public let range: Range<Int>

    /// The bytes between the quotes of a string, escapes as they stand; empty for any other value.
    public var contents: Range<Int> {
      kind == .string && range.count >= 2
        ? range.lowerBound + 1..<range.upperBound - 1 : range.lowerBound..<range.lowerBound
    }
  }

  /// One member of an object.
  public struct Member: Sendable {
    /// The name's bytes between its quotes, escapes as they stand.
    public let key: Range<Int>
    public let value: Value
  }

  /// Maximum depth of nested objects and arrays.
  public static let maxDepth = 64

  /// The bytes that have the text.
  public let bytes: [UInt8]
  /// The outermost value.
  public let root: Value

  /// Checks the whole text.
  /// - Throws: where and why it is not JSON.
  public init(_ bytes: [UInt8]) throws(JSONError) {
    try JSONGrammar.check(bytes)
    self.init(trusting: bytes)
  }

  /// Reads a text that is known to be JSON, such as Postgres' `jsonb`, without checking it again.
  ///
  /// A text that is not JSON gives meaningless values, but never a crash.
  public init(trusting bytes: [UInt8]) { self.init(trusting: bytes, in: bytes.indices) }

  /// Reads a text that is a part of `bytes`, and known to be JSON. Ranges are those of `bytes`.
  public init(trusting bytes: [UInt8], in range: Range<Int>) {
    self.bytes = bytes
    root = Self.root(of: bytes, in: range)
  }

  // MARK: - Containers

  /// The members of an object in order; none if the value is not an object.
  public func members(of value: Value) -> Members {
    Members(bytes: bytes, position: value.range.lowerBound + 1, isFinished: value.kind != .object)
  }

  /// The elements of an array in order; none if the value is not an array.
  public func elements(of value: Value) -> Elements {
    Elements(bytes: bytes, position: value.range.lowerBound + 1, isFinished: value.kind != .array)
  }

  /// The member of an object with this name. If there are several, the last one, as in JavaScript and `jsonb`.
  /// - Parameter object: the outermost value if not given.
  public func member(_ name: StaticString, of object: Value? = nil) -> Value? {
    var found: Value?
    for member in members(of: object ?? root) where isKey(member, name) { found = member.value }
    return found
  }

  /// The member of an object with this name; of several the last.
  public func member(_ name: [UInt8], of object: Value) -> Value? {
    var found: Value?
    for member in members(of: object) where isKey(member, name) { found = member.value }
    return found
  }

  /// Whether the member has this name, however it is escaped.
  public func isKey(_ member: Member, _ name: [UInt8]) -> Bool {
    if member.key.count == name.count { return bytes[member.key].elementsEqual(name) }
    // An escaped name is longer.
    guard member.key.count > name.count, bytes[member.key].contains(UInt8(ascii: "\\")) else { return false }
    return key(member) == name
  }

  /// Whether the member has this name, however it is escaped.
  public func isKey(_ member: Member, _ name: StaticString) -> Bool {
    name.withUTF8Buffer { expected in
      if member.key.count == expected.count {
        var index = 0
        while index < expected.count, unsafe bytes[member.key.lowerBound + index] == expected[index] { index += 1 }
        return index == expected.count
      }
      guard member.key.count > expected.count, bytes[member.key].contains(UInt8(ascii: "\\")) else { return false }
      return unsafe key(member).elementsEqual(expected)
    }
  }

  /// A member's name.
  public func key(_ member: Member) -> [UInt8] { Self.unescape(bytes[member.key]) }

  // MARK: - Scalars

  /// The bytes of a value as they stand in the text.
  public func raw(_ value: Value) -> ArraySlice<UInt8> { bytes[value.range] }

  /// A string's contents as UTF-8, or nil if the value is no string.
  ///
  /// Half of a surrogate pair, which UTF-8 cannot express, becomes U+FFFD.
  public func string(_ value: Value) -> [UInt8]? {
    contents(value).map { Self.unescape($0) }
  }

  /// A string's contents, or nil if the value is no string.
  public func text(_ value: Value) -> String? {
    string(value).map { String(decoding: $0, as: UTF8.self) }
  }

  /// The bytes between a string's quotes, escapes as they stand, or nil if the value is no string.
  public func contents(_ value: Value) -> ArraySlice<UInt8>? {
    value.kind == .string ? bytes[value.contents] : nil
  }

  /// A number that is written without fraction and exponent and fits, else nil.
  public func integer(_ value: Value) -> Int64? {
    guard value.kind == .number else { return nil }
    var digits = bytes[value.range]
    let isNegative = digits.first == UInt8(ascii: "-")
    if isNegative { digits.removeFirst() }
    guard !digits.isEmpty else { return nil }
    var number: Int64 = 0
    for digit in digits {
      guard digit >= UInt8(ascii: "0"), digit <= UInt8(ascii: "9") else { return nil }
      let shifted = number.multipliedReportingOverflow(by: 10)
      let step = Int64(digit - UInt8(ascii: "0"))
      let next = shifted.partialValue.addingReportingOverflow(isNegative ? -step : step)
      if shifted.overflow || next.overflow { return nil }
      number = next.partialValue
    }
    return number
  }

  public func boolean(_ value: Value) -> Bool? {
    value.kind == .boolean ? bytes[value.range].first == UInt8(ascii: "t") : nil
  }

  // MARK: - Iteration

  /// The members of an object.
  public struct Members: Sequence, IteratorProtocol {
    fileprivate let bytes: [UInt8]
    fileprivate var position: Int
    fileprivate var isFinished: Bool

    public mutating func next() -> Member? {
      guard !isFinished, let name = JSONScanner.value(in: bytes, at: &position), name.kind == .string,
        name.range.count >= 2, let value = JSONScanner.value(in: bytes, at: &position)
      else {
        isFinished = true
        return nil
      }
      return Member(key: name.range.lowerBound + 1..<name.range.upperBound - 1, value: value)
    }
  }

  /// The elements of an array.
  public struct Elements: Sequence, IteratorProtocol {
    fileprivate let bytes: [UInt8]
    fileprivate var position: Int
    fileprivate var isFinished: Bool

    public mutating func next() -> Value? {
      guard !isFinished, let value = JSONScanner.value(in: bytes, at: &position) else {
        isFinished = true
        return nil
      }
      return value
    }
  }

  // MARK: - Finding values in a text that has been checked

  /// The value that is the whole text apart from surrounding space. The end of a container need not be searched.
  private static func root(of bytes: [UInt8], in range: Range<Int>) -> Value {
    let text = bytes[range]
    guard let start = text.firstIndex(where: { !isSpace($0) }), let last = text.lastIndex(where: { !isSpace($0) })
    else { return Value(kind: .null, range: 0..<0) }
    switch text[start] {
    case UInt8(ascii: "{"): return Value(kind: .object, range: start..<last + 1)
    case UInt8(ascii: "["): return Value(kind: .array, range: start..<last + 1)
    default:
      var position = start
      return value(in: bytes, at: &position) ?? Value(kind: .null, range: 0..<0)
    }
  }

  private static func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 || byte == 0x0A || byte == 0x0D }

  /// The next value at or after `position`, which ends up behind it; nil at the end of a container or of the text.
  private static func value(in bytes: [UInt8], at position: inout Int) -> Value? {
    while position < bytes.count {
      let start = position
      switch bytes[start] {
      case 0x20, 0x09, 0x0A, 0x0D, UInt8(ascii: ","), UInt8(ascii: ":"):
        position += 1
        continue
      case UInt8(ascii: "\""):
        position = endOfString(in: bytes, from: start + 1)
        return Value(kind: .string, range: start..<position)
      case UInt8(ascii: "{"):
        position = endOfContainer(in: bytes, from: start)
        return Value(kind: .object, range: start..<position)
      case UInt8(ascii: "["):
        position = endOfContainer(in: bytes, from: start)
        return Value(kind: .array, range: start..<position)
      case UInt8(ascii: "}"), UInt8(ascii: "]"):
        return nil
      case let first:
        position = endOfScalar(in: bytes, from: start + 1)
        let kind: Kind =
          switch first {
          case UInt8(ascii: "t"), UInt8(ascii: "f"): .boolean
          case UInt8(ascii: "n"): .null
          default: .number
          }
        return Value(kind: kind, range: start..<position)
      }
    }
    return nil
  }

  /// The position behind the closing quote.
  private static func endOfString(in bytes: [UInt8], from start: Int) -> Int {
    var position = start
    while position < bytes.count {
      switch bytes[position] {
      case UInt8(ascii: "\""): return position + 1
      case UInt8(ascii: "\\"): position += 2
      default: position += 1
      }
    }
    return bytes.count
  }

  private static func endOfContainer(in bytes: [UInt8], from start: Int) -> Int {
    var position = start
    var depth = 0
    while position < bytes.count {
      switch bytes[position] {
      case UInt8(ascii: "\""):
        position = endOfString(in: bytes, from: position + 1)
        continue
      case UInt8(ascii: "{"), UInt8(ascii: "["): depth += 1
      case UInt8(ascii: "}"), UInt8(ascii: "]"):
        depth -= 1
        if depth == 0 { return position + 1 }
      default: break
      }
      position += 1
    }
    return bytes.count
  }

  private static func endOfScalar(in bytes: [UInt8], from start: Int) -> Int {
    var position = start
    while position < bytes.count {
      switch bytes[position] {
      case 0x20, 0x09, 0x0A, 0x0D, UInt8(ascii: ","), UInt8(ascii: ":"), UInt8(ascii: "]"), UInt8(ascii: "}"),
        UInt8(ascii: "\""), UInt8(ascii: "{"), UInt8(ascii: "["):
        return position
      default: position += 1
      }
    }
    return position
  }
}
