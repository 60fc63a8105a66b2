// The settings of `CurlClient`: connections, proxy, timeouts, limits.

public import Logging
public import Runtime

/// The settings of a `CurlClient`.
public struct CurlConfiguration: Sendable {
  /// A PEM file of CA certificates trusted in addition to the system's.
  public var caFile: String?
  /// The proxy of all connections; nil: none. Proxies of the environment are ignored.
  public var proxy: HTTPProxy?
  /// Logs failed connections through the proxy. Nil if the caller logs failures itself.
  public var logger: Logger?
  public var connectionsPerHostMax = 6
  public var connectTimeout = Nanoseconds.seconds(5)
  /// The resolver of host names, and the results of earlier connections to their addresses.
  public var resolver = NameResolver.system
  public var addresses = AddressBook.shared
  /// Maximum time from the start of a request to the end of its answer.
  public var totalTimeout = Nanoseconds.seconds(15)
  public var responseSizeMax = 1 << 20
  /// Maximum idle time after which a connection is used again. Whole seconds; 0: no limit.
  public var idleConnectionTimeMax = Nanoseconds.seconds(10)
  /// Maximum processor time that libcurl spends without receiving a part of an answer. Above it, the connections are closed.
  public var wasteMax = Nanoseconds.milliseconds(250)
  /// The keepalive of the sockets. If the peer acknowledges no data for `unacknowledgedMax`, the connection is lost, even if the
  /// answer may take longer.
  public var keepalive: TCPKeepalive = {
    var keepalive = TCPKeepalive()
    keepalive.unacknowledgedMax = .seconds(5)
    return keepalive
  }()
  /// Number of requests after which new connections are used. libcurl 7.88 resets every HTTP/2 stream when its answer is complete.
  /// Servers that protect themselves against rapid resets (CVE-2023-44487) close the connection after a thousand resets, even with
  /// requests in flight.
  public var requestsBeforeRenewal = 500

  public init(caFile: String? = nil) {
    self.caFile = caFile
  }
}
