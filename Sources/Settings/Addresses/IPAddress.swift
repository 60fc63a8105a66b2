// IP addresses as numbers, which can be compared with networks.

package import NIOCore

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// An IPv4 or IPv6 address. An IPv4-mapped IPv6 address (`::ffff:192.0.2.1`) becomes the IPv4 address.
package struct IPAddress: Hashable, Sendable, CustomStringConvertible {
  /// The upper 64 bits of an IPv6 address. An IPv4 address is in the lower 32 bits of `low`.
  package let high: UInt64
  package let low: UInt64
  package let isIPv6: Bool

  /// `::`, used if an address is not known.
  package static let unknown = IPAddress(high: 0, low: 0, isIPv6: true)

  package init(high: UInt64, low: UInt64, isIPv6: Bool) {
    self.high = high
    self.low = low
    self.isIPv6 = isIPv6
  }

  /// - Parameter text: a numeric address: `192.0.2.1`, `2001:db8::1`. The initializer returns nil for anything else.
  package init?(_ text: some StringProtocol) {
    // The C function would stop at a NUL.
    guard !text.utf8.contains(0) else { return nil }
    let text = String(text)
    var bytes = [UInt8](repeating: 0, count: 16)
    func number(_ range: Range<Int>) -> UInt64 { bytes[range].reduce(0) { $0 << 8 | UInt64($1) } }
    if unsafe inet_pton(AF_INET, text, &bytes) == 1 {
      self.init(high: 0, low: number(0..<4), isIPv6: false)
    } else if unsafe inet_pton(AF_INET6, text, &bytes) == 1 {
      let (high, low) = (number(0..<8), number(8..<16))
      let isMapped = high == 0 && low >> 32 == 0xFFFF
      self.init(high: high, low: isMapped ? low & 0xFFFF_FFFF : low, isIPv6: !isMapped)
    } else {
      return nil
    }
  }

  /// - Parameter address: nil and local sockets become `unknown`.
  package init(_ address: NIOCore.SocketAddress?) {
    self = address?.ipAddress.flatMap { IPAddress($0) } ?? .unknown
  }

  /// The network that one customer of an internet provider usually has: a single IPv4 address, or a /64 of IPv6.
  package var network: IPRange { IPRange(self, length: isIPv6 ? 64 : 32) }

  /// The usual notation: `192.0.2.1`, `2001:db8::1`.
  package var description: String {
    guard isIPv6 else {
      return [24, 16, 8, 0].map { String((low >> $0) & 0xFF) }.joined(separator: ".")
    }
    let bytes = (0..<16).map { UInt8(truncatingIfNeeded: ($0 < 8 ? high : low) >> UInt64(56 - 8 * ($0 % 8))) }
    var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
    guard unsafe inet_ntop(AF_INET6, bytes, &text, socklen_t(text.count)) != nil else { return "?" }
    return String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }
}
