// The input of a target, which is read from the front and never ends.

/// Bytes that are read from the front; after the end, zeros are returned.
struct FuzzInput {
  let bytes: [UInt8]
  private(set) var position = 0

  init(_ bytes: [UInt8]) { self.bytes = bytes }

  var isAtEnd: Bool { position >= bytes.count }

  mutating func byte() -> UInt8 {
    guard position < bytes.count else { return 0 }
    position += 1
    return bytes[position - 1]
  }

  /// At most `count` bytes, fewer at the end.
  mutating func take(_ count: Int) -> [UInt8] {
    let end = min(position + count, bytes.count)
    defer { position = end }
    return Array(bytes[position..<end])
  }

  mutating func rest() -> [UInt8] { take(bytes.count) }

  /// A number with the most significant byte first.
  mutating func number(bytes count: Int) -> UInt64 {
    (0..<count).reduce(0) { number, _ in number << 8 | UInt64(byte()) }
  }

  /// The bytes up to the next line feed, which is removed.
  mutating func line() -> [UInt8] {
    let end = bytes[position...].firstIndex(of: 0x0A) ?? bytes.count
    let line = Array(bytes[position..<end])
    position = min(end + 1, bytes.count)
    return line
  }
}
