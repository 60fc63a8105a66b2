// The header fields of an answer that libcurl does not parse for us.

/// Reads header lines as they arrive.
struct AnswerFields {
  /// The unparsed value of `Retry-After`.
  private(set) var retryAfter: [UInt8]?
  /// The unparsed value of `Date`.
  private(set) var date: [UInt8]?

  /// - Parameter line: a status line, or a field with name, colon and value. Includes the line end.
  mutating func read(_ line: UnsafeRawBufferPointer) {
    if unsafe line.starts(with: "HTTP/".utf8) {
      self = AnswerFields()  // fields of an interim answer do not count
    } else if let value = unsafe Self.value(of: "retry-after", in: line) {
      retryAfter = value
    } else if let value = unsafe Self.value(of: "date", in: line) {
      date = value
    }
  }

  private static func value(of name: String, in line: UnsafeRawBufferPointer) -> [UInt8]? {
    let count = name.utf8.count
    guard line.count > count, unsafe line[count] == UInt8(ascii: ":"),
      unsafe zip(line, name.utf8).allSatisfy({ $0 == $1 || 0x41...0x5A ~= $0 && $0 | 0x20 == $1 })
    else { return nil }
    let isSpace: (UInt8) -> Bool = { $0 == 0x20 || $0 == 0x09 || $0 == 0x0D || $0 == 0x0A }
    let value = unsafe line[(count + 1)...].drop(while: isSpace)
    guard let last = unsafe value.lastIndex(where: { !isSpace($0) }) else { return [] }
    return unsafe Array(value[...last])
  }
}
