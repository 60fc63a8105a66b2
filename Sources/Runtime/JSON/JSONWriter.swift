// Writes JSON as bytes: request bodies and payloads on the hot path, without Foundation and without a tree of objects.

/// Appends JSON to a byte buffer. It adds separators, and escapes strings as RFC 8259 §7 requires.
///
/// ```swift
/// var writer = JSONWriter()
/// writer.beginObject()
/// writer.key("callId")
/// writer.string(callID)
/// writer.endObject()
/// ```
///
/// The writer trusts its caller with the order of calls (a key before each value of an object) and with the encoding
/// of its input, which must be UTF-8.
public struct JSONWriter: Sendable {
  /// The bytes written so far.
  public var bytes: [UInt8]

  /// An empty writer.
  /// - Parameter capacity: how many bytes to reserve.
  public init(reservingCapacity capacity: Int = 512) {
    bytes = []
    bytes.reserveCapacity(capacity)
  }

  // MARK: - Structure

  public mutating func beginObject() {
    separate()
    bytes.append(UInt8(ascii: "{"))
  }

  public mutating func endObject() { bytes.append(UInt8(ascii: "}")) }

  public mutating func beginArray() {
    separate()
    bytes.append(UInt8(ascii: "["))
  }

  public mutating func endArray() { bytes.append(UInt8(ascii: "]")) }

  /// A member's name and its colon.
  /// - Parameter name: text of the program's own that needs no escaping.
  public mutating func key(_ name: StaticString) {
    string(name)
    bytes.append(UInt8(ascii: ":"))
  }

  /// A member's name and its colon.
  /// - Parameter utf8: any UTF-8.
  public mutating func key(_ utf8: [UInt8]) {
    string(utf8)
    bytes.append(UInt8(ascii: ":"))
  }

  /// A member's name and its colon: a part of `source` that is escaped already.
  public mutating func rawKey(_ source: [UInt8], _ range: Range<Int>) {
    beginString()
    append(source, range)
    endString()
    bytes.append(UInt8(ascii: ":"))
  }

  // MARK: - Values

  /// A string, quoted and escaped.
  public mutating func string(_ utf8: [UInt8]) {
    beginString()
    escape(utf8, utf8.indices)
    endString()
  }

  /// A string, quoted and escaped.
  public mutating func string(_ utf8: ArraySlice<UInt8>) {
    beginString()
    escape(utf8)
    endString()
  }

  /// A string, quoted and escaped.
  public mutating func string(_ text: String) {
    beginString()
    var text = text
    text.withUTF8 { unsafe escape($0) }
    endString()
  }

  /// A string, quoted.
  /// - Parameter text: text of the program's own that needs no escaping.
  public mutating func string(_ text: StaticString) {
    beginString()
    append(text)
    endString()
  }

  /// A string that holds a number's decimal text: `"1700000000000"`.
  public mutating func string(_ number: Int64) {
    beginString()
    appendDecimal(number)
    endString()
  }

  public mutating func integer(_ number: Int64) {
    separate()
    appendDecimal(number)
  }

  public mutating func boolean(_ value: Bool) {
    separate()
    append(value ? "true" : "false")
  }

  public mutating func null() {
    separate()
    append("null")
  }

  /// A value that is JSON already; copied unchanged.
  public mutating func raw(_ json: [UInt8]) {
    separate()
    bytes.append(contentsOf: json)
  }

  /// A value that is JSON already; copied unchanged.
  public mutating func raw(_ json: ArraySlice<UInt8>) {
    separate()
    bytes.append(contentsOf: json)
  }

  /// A value that is JSON already: a part of `source`, copied unchanged.
  public mutating func raw(_ source: [UInt8], _ range: Range<Int>) {
    separate()
    append(source, range)
  }

  /// A value that is JSON already; copied unchanged.
  public mutating func raw(_ json: StaticString) {
    separate()
    append(json)
  }

  // MARK: - A string of several parts

  /// The opening quote. Parts follow (`escape`, `appendDecimal`), and then `endString`.
  public mutating func beginString() {
    separate()
    bytes.append(UInt8(ascii: "\""))
  }

  public mutating func endString() { bytes.append(UInt8(ascii: "\"")) }

  /// A part of a string, escaped.
  public mutating func escape(_ utf8: ArraySlice<UInt8>) {
    unsafe utf8.withUnsafeBufferPointer { unsafe escape($0) }
  }

  /// A part of a string: a part of `source`, escaped.
  public mutating func escape(_ source: [UInt8], _ range: Range<Int>) {
    unsafe source.withUnsafeBufferPointer { unsafe escape(UnsafeBufferPointer(rebasing: $0[range])) }
  }

  /// A part of a string that is escaped already.
  public mutating func append(_ source: [UInt8], _ range: Range<Int>) {
    unsafe source.withUnsafeBufferPointer { unsafe bytes.append(contentsOf: UnsafeBufferPointer(rebasing: $0[range])) }
  }

  /// Counts first. Most texts need no escape and are copied in one piece; for the others memory is reserved once.
  private mutating func escape(_ utf8: UnsafeBufferPointer<UInt8>) {
    var added = 0
    for index in 0..<utf8.count { added += unsafe Self.escapeLength(utf8[index]) }
    guard added > 0 else { return unsafe bytes.append(contentsOf: utf8) }
    var end = bytes.count
    bytes.append(contentsOf: repeatElement(0, count: utf8.count + added))
    unsafe bytes.withUnsafeMutableBufferPointer { bytes in
      for index in 0..<utf8.count {
        let byte = unsafe utf8[index]
        if Self.escapeLength(byte) > 0 {
          unsafe Self.writeEscape(of: byte, into: bytes, at: &end)
        } else {
          unsafe bytes[end] = byte
          end += 1
        }
      }
    }
  }

  /// The decimal digits of a number, as a part of a string.
  public mutating func appendDecimal(_ number: Int64) {
    if number < 0 { bytes.append(UInt8(ascii: "-")) }
    let start = bytes.count
    var rest = number.magnitude
    repeat {
      bytes.append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: rest % 10))
      rest /= 10
    } while rest > 0
    var (low, high) = (start, bytes.count - 1)
    while low < high {
      bytes.swapAt(low, high)
      low += 1
      high -= 1
    }
  }

  private mutating func append(_ text: StaticString) {
    text.withUTF8Buffer { unsafe bytes.append(contentsOf: $0) }
  }

  /// Writes a comma, unless this is the first element of its container or a member's value. The last byte decides: a string ends
  /// with a quote, so no value ends with one of these four bytes.
  private mutating func separate() {
    guard let last = bytes.last else { return }
    switch last {
    case UInt8(ascii: "{"), UInt8(ascii: "["), UInt8(ascii: ":"), UInt8(ascii: ","): return
    default: bytes.append(UInt8(ascii: ","))
    }
  }

  /// How many bytes longer the byte gets: `\"` and `\n` by one, `\u0001` by five.
  private static func escapeLength(_ byte: UInt8) -> Int {
    if byte >= 0x20 { return byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") ? 1 : 0 }
    return shortEscape(byte) == nil ? 5 : 1
  }

  private static func shortEscape(_ byte: UInt8) -> UInt8? {
    switch byte {
    case UInt8(ascii: "\""), UInt8(ascii: "\\"): byte
    case 0x08: UInt8(ascii: "b")
    case 0x09: UInt8(ascii: "t")
    case 0x0A: UInt8(ascii: "n")
    case 0x0C: UInt8(ascii: "f")
    case 0x0D: UInt8(ascii: "r")
    default: nil
    }
  }

  private static func writeEscape(of byte: UInt8, into bytes: UnsafeMutableBufferPointer<UInt8>, at end: inout Int) {
    unsafe bytes[end] = UInt8(ascii: "\\")
    if let letter = shortEscape(byte) {
      unsafe bytes[end + 1] = letter
      end += 2
      return
    }
    unsafe bytes[end + 1] = UInt8(ascii: "u")
    unsafe bytes[end + 2] = UInt8(ascii: "0")
    unsafe bytes[end + 3] = UInt8(ascii: "0")
    unsafe bytes[end + 4] = hexDigit(byte >> 4)
    unsafe bytes[end + 5] = hexDigit(byte & 0x0F)
    end += 6
  }

  private static func hexDigit(_ nibble: UInt8) -> UInt8 {
    nibble < 10 ? UInt8(ascii: "0") + nibble : UInt8(ascii: "a") + nibble - 10
  }
}
