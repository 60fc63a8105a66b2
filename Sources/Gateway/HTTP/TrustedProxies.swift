// Behind a proxy every request comes from the proxy's address: whom it asks for, only its own word tells.

/// The proxies whose `X-Forwarded-For` is believed.
struct TrustedProxies: Equatable, Sendable {
  var networks: [PeerNetwork] = []

  func contains(_ address: PeerAddress) -> Bool { networks.contains { $0.contains(address) } }

  /// Who asks: the last hop that is no proxy of ours. What stands before it anybody may have written.
  ///
  /// - Parameters:
  ///   - peer: the other end of the connection.
  ///   - forwardedFor: `X-Forwarded-For`, its lines joined by commas.
  func client(of peer: PeerAddress?, forwardedFor: String?) -> PeerAddress? {
    guard var client = peer, contains(client) else { return peer }
    for hop in (forwardedFor ?? "").split(separator: ",").reversed() {
      guard let address = Self.address(ofHop: hop) else { return client }
      client = address
      guard contains(client) else { return client }
    }
    return client
  }

  /// Some proxies write a port, too: `192.0.2.1:4711`, `[2001:db8::1]:4711`.
  private static func address(ofHop hop: Substring) -> PeerAddress? {
    let hop = hop.split(separator: " ").joined()
    if let address = PeerAddress(hop) { return address }
    guard hop.count(where: { $0 == ":" }) == 1 else { return nil }
    return PeerAddress(hop.prefix { $0 != ":" })
  }
}
