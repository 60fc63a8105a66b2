// IP networks, like Postgres's type cidr.

/// All addresses that begin with the same bits.
package struct IPRange: Hashable, Sendable, CustomStringConvertible {
  /// The first address.
  package let base: IPAddress
  /// Number of common bits: 0 to 32 for IPv4, 0 to 128 for IPv6.
  package let length: Int

  /// - Parameter length: 0 to 32 for IPv4, 0 to 128 for IPv6.
  package init(_ address: IPAddress, length: Int) {
    precondition(0...Self.lengthMax(address) ~= length, "the length is larger than the address")
    base = address.masked(length)
    self.length = length
  }

  /// - Parameter text: `192.0.2.0/24`, `2001:db8::/32`, or one address. The initializer returns nil for anything else.
  package init?(_ text: some StringProtocol) {
    let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
    guard let address = IPAddress(parts[0]) else { return nil }
    guard parts.count == 2 else {
      self.init(address, length: Self.lengthMax(address))
      return
    }
    guard 1...3 ~= parts[1].utf8.count, parts[1].utf8.allSatisfy({ 0x30...0x39 ~= $0 }), var length = Int(parts[1])
    else { return nil }
    // ::ffff:192.0.2.0/120 is 192.0.2.0/24.
    if !address.isIPv6, parts[0].contains(":") { length -= 96 }
    guard 0...Self.lengthMax(address) ~= length else { return nil }
    self.init(address, length: length)
  }

  package func contains(_ address: IPAddress) -> Bool {
    address.isIPv6 == base.isIPv6 && address.masked(length) == base
  }

  /// Whether one organization may own it: private networks are at most a /8, or fc00::/7 for IPv6 (RFC 1918, RFC 4193).
  package var mayBeOneNetwork: Bool {
    guard base.isIPv6 else { return length >= 8 }
    return length >= 16 || length >= 7 && IPRange("fc00::/7")?.contains(base) == true
  }

  /// `192.0.2.0/24`; a single address has no length.
  package var description: String {
    length == Self.lengthMax(base) ? base.description : "\(base)/\(length)"
  }

  private static func lengthMax(_ address: IPAddress) -> Int { address.isIPv6 ? 128 : 32 }
}

extension IPAddress {
  /// The address with all bits after the prefix set to zero.
  fileprivate func masked(_ length: Int) -> IPAddress {
    // Swift's >> returns 0 if all bits are shifted out.
    func mask(_ bits: Int) -> UInt64 { bits <= 0 ? 0 : ~(UInt64.max >> UInt64(bits)) }
    guard isIPv6 else {
      return IPAddress(high: 0, low: low & (mask(length) >> 32), isIPv6: false)
    }
    return IPAddress(high: high & mask(length), low: low & mask(length - 64), isIPv6: true)
  }
}
