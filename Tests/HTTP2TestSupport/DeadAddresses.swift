// Addresses of this machine that answer no SYN, like hosts that are switched off, and unlike ports that refuse.

#if canImport(Glibc)
import Glibc
#endif

/// Listeners on 127.0.0.2 and the following addresses whose queues are full, so that the system drops every further SYN.
public final class DeadAddresses {
  /// "127.0.0.2" and so on.
  public let hosts: [String]
  private var sockets: [Int32] = []

  /// - Parameter port: the port that does not answer at all of these addresses.
  /// - Returns: nil if the system does not drop SYNs for full queues, or has no such addresses.
  public init?(_ count: Int, port: UInt16) {
    hosts = (0..<count).map { "127.0.0.\(2 + $0)" }
    #if !canImport(Glibc)
    return nil
    #else
    for host in hosts {
      let listener = Self.make()
      sockets.append(listener)
      guard Self.with(host, port, { bind(listener, $0, $1) }) == 0, listen(listener, 0) == 0 else { return nil }
      for _ in 0..<3 { sockets.append(Self.dial(host, port)) }
    }
    // The last connection must not succeed.
    usleep(100_000)
    for host in hosts {
      let probe = Self.dial(host, port)
      sockets.append(probe)
      var entry = pollfd(fd: probe, events: Int16(POLLOUT), revents: 0)
      guard poll(&entry, 1, 50) == 0 else { return nil }
    }
    #endif
  }

  #if canImport(Glibc)

  private static func make() -> Int32 {
    socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue), 0)
  }

  private static func dial(_ host: String, _ port: UInt16) -> Int32 {
    let socket = make()
    _ = with(host, port) { connect(socket, $0, $1) }
    return socket
  }

  private static func with(_ host: String, _ port: UInt16, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32)
    -> Int32
  {
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    inet_pton(AF_INET, host, &address.sin_addr)
    return withUnsafePointer(to: address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, socklen_t(MemoryLayout<sockaddr_in>.size)) }
    }
  }

  deinit {
    for socket in sockets { close(socket) }
  }
  #endif
}
