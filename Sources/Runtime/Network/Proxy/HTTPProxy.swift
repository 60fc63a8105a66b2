// An HTTP proxy: the way out where machines may not connect to providers themselves.
//
// It is asked for a tunnel (CONNECT, RFC 9110 §9.3.6) and sees no more than the provider's name and port: TLS is spoken with the
// provider through the tunnel, and it is the provider's certificate that is verified. The proxy looks the provider's name up; we
// look up the proxy's.

internal import Synchronization

/// A proxy that takes CONNECT, and what it is shown. One object for everything that goes through it.
public final class HTTPProxy: Sendable, CustomStringConvertible {
  /// A host name, or an IP address without brackets.
  public let host: String
  public let port: UInt16
  private let credentials: Mutex<ProxyCredentials?>

  /// - Parameter credentials: nil where the proxy asks for none.
  public init(host: String, port: UInt16, credentials: ProxyCredentials? = nil) {
    self.host = host
    self.port = port
    self.credentials = Mutex(credentials)
  }

  /// Shows these to the proxy when the next connections are made; those that are open stay. Returns whether they are others.
  public func use(_ new: ProxyCredentials?) -> Bool {
    credentials.withLock { credentials in
      defer { credentials = new }
      return credentials != new
    }
  }

  /// The value of `Proxy-Authorization`: a secret; nil: there is none.
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
