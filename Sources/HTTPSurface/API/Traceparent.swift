// The trace that a call belongs to, from the header `traceparent` (www.w3.org/TR/trace-context, section 3.2).

/// A well-formed `traceparent` of version 00.
struct Traceparent: Equatable, Sendable {
  /// `00-TRACE-SPAN-FLAGS`, the form of `push.outbox.traceparent`.
  let text: String

  /// Reads the header. If it is malformed, returns nil, and the call has no trace: the standard requires that a bad
  /// header causes no error.
  ///
  /// Of a later version, only the fields of version 00 are read. The result is version 00, with the one flag that
  /// version 00 defines.
  init?(header: String) {
    let bytes = Array(header.utf8)
    let digits = [0..<2, 3..<35, 36..<52, 53..<55]
    guard bytes.count >= 55, digits.allSatisfy({ bytes[$0].allSatisfy(Self.isHexDigit) }),
      [2, 35, 52].allSatisfy({ bytes[$0] == UInt8(ascii: "-") }),
      bytes[3..<35].contains(where: { $0 != UInt8(ascii: "0") }),
      bytes[36..<52].contains(where: { $0 != UInt8(ascii: "0") })
    else { return nil }
    switch header.prefix(2) {
    case "00":
      guard bytes.count == 55 else { return nil }
      text = header
    case "ff": return nil
    default:
      guard bytes.count == 55 || bytes[55] == UInt8(ascii: "-") else { return nil }
      let isSampled = UInt8(header.dropFirst(53).prefix(2), radix: 16).map { $0 & 1 } == 1
      text = "00\(header.dropFirst(2).prefix(51))\(isSampled ? "01" : "00")"
    }
  }

  private static func isHexDigit(_ byte: UInt8) -> Bool {
    UInt8(ascii: "0")...UInt8(ascii: "9") ~= byte || UInt8(ascii: "a")...UInt8(ascii: "f") ~= byte
  }
}
