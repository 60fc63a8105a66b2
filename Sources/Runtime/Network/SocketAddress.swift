// An address and port to connect to or listen on, and how a host name becomes a list of them.

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// An IPv4 or IPv6 address with a port.
public struct SocketAddress: Sendable, CustomStringConvertible {
  private var storage: sockaddr_storage
  private let length: socklen_t

  fileprivate init(_ address: UnsafePointer<sockaddr>, length: socklen_t) {
    storage = sockaddr_storage()
    self.length = length
    unsafe withUnsafeMutableBytes(of: &storage) {
      unsafe $0.copyMemory(from: UnsafeRawBufferPointer(start: address, count: Int(length)))
    }
  }

  /// An address written in digits ("127.0.0.1", "::1"); nil for anything else.
  public init?(numericHost host: String, port: UInt16) {
    guard case .success(let addresses) = Self.lookUp(host, port, flags: AI_NUMERICHOST), let first = addresses.first
    else { return nil }
    self = first
  }

  /// The same host at another port.
  func with(port: UInt16) -> SocketAddress {
    var address = self
    // At the same place in sockaddr_in and sockaddr_in6: after the two bytes of the family.
    unsafe withUnsafeMutableBytes(of: &address.storage) { bytes in
      unsafe bytes[2] = UInt8(truncatingIfNeeded: port >> 8)
      unsafe bytes[3] = UInt8(truncatingIfNeeded: port)
    }
    return address
  }

  public var isIPv6: Bool { storage.ss_family == sa_family_t(AF_INET6) }
  var family: Int32 { Int32(storage.ss_family) }

  /// "127.0.0.1:443" or "[::1]:443".
  public var description: String {
    guard let (host, port) = digits else { return "?" }
    return isIPv6 ? "[\(host)]:\(port)" : "\(host):\(port)"
  }

  /// The address without its port: "127.0.0.1" or "::1".
  public var numericHost: String { digits?.host ?? "?" }

  private var digits: (host: String, port: String)? {
    var host = [CChar](repeating: 0, count: Int(NI_MAXHOST))
    var port = [CChar](repeating: 0, count: Int(NI_MAXSERV))
    let status = unsafe withSockaddr { address, length in
      unsafe getnameinfo(
        address, length, &host, socklen_t(host.count), &port, socklen_t(port.count), NI_NUMERICHOST | NI_NUMERICSERV)
    }
    guard status == 0 else { return nil }
    return (
      String(decoding: host.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self),
      String(decoding: port.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    )
  }

  func withSockaddr<Result>(_ body: (UnsafePointer<sockaddr>, socklen_t) -> Result) -> Result {
    unsafe withUnsafePointer(to: storage) { pointer in
      unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { unsafe body($0, length) }
    }
  }

  /// The port a bound socket was given.
  static func boundPort(of descriptor: Int32) -> UInt16 {
    var storage = sockaddr_storage()
    var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
    let status = unsafe withUnsafeMutablePointer(to: &storage) { pointer in
      unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { unsafe getsockname(descriptor, $0, &length) }
    }
    guard status == 0 else { return 0 }
    // The port is at the same place in sockaddr_in and sockaddr_in6: after the two bytes of the family.
    return unsafe withUnsafeBytes(of: storage) { unsafe UInt16($0[2]) << 8 | UInt16($0[3]) }
  }

  // MARK: - Host names

  /// A host name that could not be resolved.
  public struct ResolutionError: Error, CustomStringConvertible, Sendable {
    public let description: String
  }

  /// Asks the system for all addresses of a host, in its order of preference. Their port is 0. May block for many seconds;
  /// `NameResolver` calls it on a thread of its own.
  static func lookUp(_ host: String) -> Result<[SocketAddress], ResolutionError> {
    lookUp(host, 0, flags: AI_ADDRCONFIG)
  }

  private static func lookUp(
    _ host: String, _ port: UInt16, flags: Int32
  ) -> Result<[SocketAddress], ResolutionError> {
    var hints = unsafe addrinfo()
    unsafe hints.ai_flags = flags | AI_NUMERICSERV
    unsafe hints.ai_family = AF_UNSPEC
    #if os(Linux)
    unsafe hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
    #else
    unsafe hints.ai_socktype = SOCK_STREAM
    #endif
    var list: UnsafeMutablePointer<addrinfo>?
    let status = unsafe getaddrinfo(host, String(port), &hints, &list)
    guard status == 0 else {
      let reason = unsafe String(cString: gai_strerror(status))
      return .failure(ResolutionError(description: "\(host) cannot be resolved: \(reason)"))
    }
    defer { unsafe freeaddrinfo(list) }
    var addresses: [SocketAddress] = []
    var entry = unsafe list
    while let current = unsafe entry {
      if let address = unsafe current.pointee.ai_addr {
        unsafe addresses.append(SocketAddress(address, length: current.pointee.ai_addrlen))
      }
      unsafe entry = unsafe current.pointee.ai_next
    }
    return .success(addresses)
  }
}
