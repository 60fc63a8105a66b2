// Who is at the other end of a connection, as far as its address tells; and networks of addresses.

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// An IP address. IPv4 and the same address mapped into IPv6 are one.
struct PeerAddress: Hashable, Sendable, CustomStringConvertible {
  fileprivate let high: UInt64
  fileprivate let low: UInt64
  private static let mapped: UInt64 = 0xFFFF_0000_0000

  private init(high: UInt64, low: UInt64) {
    self.high = high
    self.low = low
  }

  /// An address written in digits, with or without a zone or brackets; nil for anything else.
  init?(_ text: some StringProtocol) {
    let digits = String(text.drop { $0 == "[" }.prefix { $0 != "%" && $0 != "]" })
    var bytes = [UInt8](repeating: 0, count: 16)
    if unsafe inet_pton(AF_INET, digits, &bytes) == 1 {
      self.init(high: 0, low: bytes[..<4].reduce(0) { $0 << 8 | UInt64($1) } | Self.mapped)
    } else if unsafe inet_pton(AF_INET6, digits, &bytes) == 1 {
      self.init(
        high: bytes[..<8].reduce(0) { $0 << 8 | UInt64($1) }, low: bytes[8...].reduce(0) { $0 << 8 | UInt64($1) })
    } else {
      return nil
    }
  }

  var isIPv4: Bool { high == 0 && low >> 32 == 0xFFFF }

  /// Who is counted as one: the address, of IPv6 the network of 64 bits, for whoever has one has all of that.
  var neighbourhood: PeerAddress { isIPv4 ? self : PeerAddress(high: high, low: 0) }

  var description: String {
    guard !isIPv4 else {
      return (0..<4).reversed().map { String(low >> (UInt64($0) * 8) & 0xFF) }.joined(separator: ".")
    }
    var digits = [CChar](repeating: 0, count: 64)
    let bytes = [high, low].flatMap { half in (0..<8).reversed().map { UInt8(truncatingIfNeeded: half >> ($0 * 8)) } }
    guard unsafe inet_ntop(AF_INET6, bytes, &digits, socklen_t(digits.count)) != nil else { return "?" }
    return String(decoding: digits.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }
}

/// The addresses that begin with the same bits: `10.0.0.0/8`, `fd00::/8`, or one address.
struct PeerNetwork: Equatable, Sendable {
  private let high: UInt64
  private let low: UInt64
  private let maskHigh: UInt64
  private let maskLow: UInt64

  /// - Returns: nil for what is no address with at most as many bits as it has.
  init?(_ text: some StringProtocol) {
    let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
    guard let first = parts.first, let address = PeerAddress(first) else { return nil }
    let width = address.isIPv4 ? 32 : 128
    guard parts.count == 1 || parts[1].utf8.allSatisfy({ 0x30...0x39 ~= $0 }),
      let given = parts.count == 1 ? width : Int(parts[1]), 0...width ~= given
    else { return nil }
    let bits = given + 128 - width
    maskHigh = UInt64.max << max(0, 64 - bits)
    maskLow = bits <= 64 ? 0 : UInt64.max << (128 - bits)
    high = address.high & maskHigh
    low = address.low & maskLow
  }

  func contains(_ address: PeerAddress) -> Bool {
    address.high & maskHigh == high && address.low & maskLow == low
  }
}
