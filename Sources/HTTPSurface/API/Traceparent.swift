// Which trace a call belongs to, as the one who enqueues it says (www.w3.org/TR/trace-context, section 3.2).

/// A `traceparent` of version 00 that is well-formed.
struct Traceparent: Equatable, Sendable {
  /// `00-TRACE-SPAN-FLAGS`, as `push.outbox.traceparent` takes it.
  let text: String

  /// Reads the header. The rule is that a bad one breaks nothing: nil for it, and the call has no trace.
  ///
  /// A version that is not known yet is read as far as it is known, and becomes version 00 with the one flag that has.
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
