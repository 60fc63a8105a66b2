// Constants and number encoding of HPACK (RFC 7541), shared by the encoder, the decoder and heads that are encoded in advance.

enum HPACK {
  /// The entries of the static table for requests (RFC 7541 appendix A): name, value, index.
  private static let table: [(name: [UInt8], value: [UInt8], index: Int)] = [
    (":authority", "", 1), (":method", "GET", 2), (":method", "POST", 3), (":path", "/", 4), (":scheme", "https", 7),
    ("authorization", "", 23), ("content-type", "", 31), ("user-agent", "", 58),
  ].map { (Array($0.0.utf8), Array($0.1.utf8), $0.2) }

  /// Number of entries of the static table. The indices of the dynamic table follow.
  static let staticCount = 61
  /// The size of an entry in the dynamic table in addition to its bytes (RFC 7541 §4.1).
  static let entryOverhead = 32
  /// The default size of the table in bytes.
  static let tableBytes = 4096

  static func staticIndex(ofName name: [UInt8]) -> Int? {
    table.first { $0.name == name }?.index
  }

  static func staticIndex(of name: [UInt8], _ value: [UInt8]) -> Int? {
    table.first { $0.name == name && $0.value == value && !value.isEmpty }?.index
  }
}

extension [UInt8] {
  /// Appends a number behind the high bits of its first byte (RFC 7541 §5.1).
  mutating func appendHPACK(_ value: Int, prefixBits: Int, _ high: UInt8 = 0) {
    let most = 1 << prefixBits - 1
    if value < most { return append(high | UInt8(value)) }
    append(high | UInt8(most))
    var rest = value - most
    while rest >= 128 {
      append(UInt8(rest & 127) | 128)
      rest >>= 7
    }
    append(UInt8(rest))
  }
}
