// Who is at the other end of a connection, as far as an address says.

internal import NIOCore

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// An IPv4 address, or the network (/64) of an IPv6 address: one host has as many addresses within it as it likes. An IPv4
/// address that is written as an IPv6 address is the same peer.
struct HTTPPeer: Hashable, Sendable {
  private let network: UInt64
  private let isIPv6: Bool

  /// - Parameter address: nil, and what is no IP address: all such connections are one peer.
  init(_ address: NIOCore.SocketAddress?) {
    // As the system writes them: family and port, then the address; IPv6 has four bytes more between (ip(7), ipv6(7)).
    let bytes = unsafe address?.withSockAddr { address, size in
      unsafe Array(UnsafeRawBufferPointer(start: address, count: size))
    }
    switch address {
    case .v4: self.init(bytes?[4..<8] ?? [])
    case .v6: self.init(bytes?[8..<24] ?? [])
    case .unixDomainSocket, nil: self.init([])
    }
  }

  /// - Parameter bytes: of the address in the order of the network, 4 or 16.
  init(_ bytes: ArraySlice<UInt8>) {
    let bytes = Array(bytes)
    let isMapped = bytes.count == 16 && bytes.starts(with: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF])
    network = (isMapped ? bytes[12...] : bytes.prefix(8)).reduce(0) { $0 << 8 | UInt64($1) }
    isIPv6 = bytes.count == 16 && !isMapped
  }
}
