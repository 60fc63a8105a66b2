// Whether a request was meant for this listener. This prevents DNS rebinding, where a hostile page points its own name
// at the gateway's address, and requests that other sites make the browser send.

internal import HTTPTypes
internal import Settings

/// The names under which `http.listen` may be reached.
package struct OpsHosts: Equatable, Sendable {
  private static let loopback: Set<String> = ["localhost", "127.0.0.1", "[::1]"]
  private static let wildcards: Set<String> = ["0.0.0.0", "[::]"]

  /// Whether only this machine reaches the listener.
  let isLoopback: Bool
  private let listensEverywhere: Bool
  /// In lower case, without ports: a tunnel or a proxy has a port of its own.
  private let names: Set<String>

  /// - Parameter names: further names, such as that of a proxy.
  init(listener: GatewayConfiguration.Listener, names: [String]) {
    let host = Self.bracketed(listener.host.lowercased())
    isLoopback = Self.isLoopback(host: host)
    listensEverywhere = Self.wildcards.contains(host)
    self.names = Self.loopback.union(names.map { Self.bracketed($0.lowercased()) } + [host]).subtracting(Self.wildcards)
  }

  /// Whether a request's `Host` is a name of this listener. If the listener listens on all addresses, every address is
  /// accepted, because only names can be rebound.
  func allows(authority: String?) -> Bool {
    guard let host = authority.flatMap(Self.host) else { return false }
    return names.contains(host) || listensEverywhere && Self.isAddress(host)
  }

  /// Whether a request's host is a loopback name or address, so that there need not be a proxy or a network in between.
  static func isLoopback(authority: String?) -> Bool {
    authority.flatMap(host).map(isLoopback(host:)) ?? false
  }

  private static func isLoopback(host: String) -> Bool {
    loopback.contains(host) || host.hasPrefix("127.") && isAddress(host)
  }

  /// Whether the dashboard's own page made the browser send the request.
  static func isOurs(origin: String?, site: String?, authority: String?) -> Bool {
    guard let origin = origin?.lowercased(), let authority = authority?.lowercased(),
      site ?? "same-origin" == "same-origin"
    else { return false }
    return origin == "http://" + authority || origin == "https://" + authority
  }

  private static func bracketed(_ host: String) -> String {
    host.contains(":") && !host.hasPrefix("[") ? "[\(host)]" : host
  }

  /// The host of `host` or `host:port`; nil for anything else.
  private static func host(of authority: String) -> String? {
    let authority = authority.lowercased()
    let end =
      authority.hasPrefix("[")
      ? authority.firstIndex(of: "]").map(authority.index(after:)) : authority.firstIndex(of: ":")
    let host = authority[..<(end ?? authority.endIndex)]
    let port = authority[host.endIndex...]
    guard !host.isEmpty, port.isEmpty || port.first == ":" && UInt16(port.dropFirst()) != nil else { return nil }
    return String(host)
  }

  private static func isAddress(_ host: String) -> Bool {
    if host.hasPrefix("[") { return true }
    let parts = host.split(separator: ".", omittingEmptySubsequences: false)
    return parts.count == 4 && parts.allSatisfy { UInt8($0) != nil }
  }
}
