// Where an HTTP/2 server is.

/// A server to connect to: `https://host[:port]`, the TLS settings for it, and the way there.
public struct HTTP2Endpoint: Sendable {
  /// A host name, or an IP address without brackets.
  public let host: String
  public let port: UInt16
  public let tls: TLSContext
  /// Nil: connections go to the server itself.
  public let proxy: HTTPProxy?

  public init(host: String, port: UInt16 = 443, tls: TLSContext, proxy: HTTPProxy? = nil) {
    self.host = host
    self.port = port
    self.tls = tls
    self.proxy = proxy
  }

  /// Reads `https://host[:port]`; a path is not allowed, but for a single "/".
  ///
  /// - Throws: `HTTP2Error` that says what is wrong with the URL.
  public init(url: String, tls: TLSContext, proxy: HTTPProxy? = nil) throws(HTTP2Error) {
    let prefix = "https://"
    guard url.hasPrefix(prefix) else { throw HTTP2Error("\(url): must begin with \(prefix)") }
    var authority = url.dropFirst(prefix.count)
    if authority.last == "/" { authority.removeLast() }
    guard !authority.isEmpty, !authority.contains(where: { "/?#@ ".contains($0) }) else {
      throw HTTP2Error("\(url): must be \(prefix)host[:port] and nothing else")
    }
    var port: UInt16 = 443
    if let colon = authority.lastIndex(of: ":"), authority.last != "]" {
      guard let number = UInt16(authority[authority.index(after: colon)...]), number > 0 else {
        throw HTTP2Error("\(url): the port must be a number from 1 to 65535")
      }
      port = number
      authority = authority[..<colon]
    }
    if authority.first == "[", authority.last == "]" { authority = authority.dropFirst().dropLast() }
    guard !authority.isEmpty else { throw HTTP2Error("\(url): no host name") }
    self.init(host: String(authority), port: port, tls: tls, proxy: proxy)
  }

  /// The value of `:authority`: the host, with the port where it is not 443.
  public var authority: String {
    let host = self.host.contains(":") ? "[\(self.host)]" : self.host
    return port == 443 ? host : "\(host):\(port)"
  }
}
