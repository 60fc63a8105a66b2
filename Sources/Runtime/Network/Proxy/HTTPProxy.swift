// An HTTP proxy, for networks where machines may not connect to providers directly.
//
// The gateway asks it for a tunnel (CONNECT, RFC 9110 §9.3.6). The proxy sees only the provider's name and port: TLS goes to the
// provider through the tunnel, and the provider's certificate is verified. The proxy resolves the provider's name; the gateway
// resolves the proxy's.

internal import Synchronization

/// A proxy that accepts CONNECT, and its credentials. All connections through it share one object.
public final class HTTPProxy: Sendable, CustomStringConvertible {
  /// A host name, or an IP address without brackets.
  public let host: String
  public let port: UInt16
  private let credentials: Mutex<ProxyCredentials?>

  /// - Parameter credentials: nil if the proxy requires none.
  public init(host: String, port: UInt16, credentials: ProxyCredentials? = nil) {
    self.host = host
    self.port = port
    self.credentials = Mutex(credentials)
  }

  /// Uses these credentials for new connections. Open connections stay. Returns whether the credentials have changed.
  public func use(_ new: ProxyCredentials?) -> Bool {
    credentials.withLock { credentials in
      defer { credentials = new }
      return credentials != new
    }
  }

  /// The value of `Proxy-Authorization`, a secret; nil if there is none.
  public var authorization: String? { credentials.withLock { $0?.authorization } }

  /// "proxy.example:3128"
  public var description: String { Self.authority(host, port) }

  /// A host and port as CONNECT names them: "api.push.apple.com:443", "[::1]:443".
  public static func authority(_ host: String, _ port: UInt16) -> String {
    host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
  }

  /// The head that asks for a tunnel.
  ///
  /// - Parameter target: host and port, as `authority` writes them.
  func request(for target: String) -> [UInt8] {
    var head = "CONNECT \(target) HTTP/1.1\r\nHost: \(target)\r\nUser-Agent: push-gateway\r\n"
    if let authorization { head += "Proxy-Authorization: \(authorization)\r\n" }
    return Array((head + "\r\n").utf8)
  }
}
