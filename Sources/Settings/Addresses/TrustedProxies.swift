// Finds the address of the client behind trusted proxies.

/// The proxies whose `X-Forwarded-For` is trusted.
package struct TrustedProxies: Equatable, Sendable {
  private let ranges: [IPRange]

  /// - Parameter ranges: the proxies' networks. If empty, the client is always the other end of the connection.
  package init(_ ranges: [IPRange] = []) {
    self.ranges = ranges
  }

  package var isEmpty: Bool { ranges.isEmpty }

  /// The address of the client.
  ///
  /// Each proxy appends the address that it was connected from to `X-Forwarded-For`. So the header is read from its
  /// end, as long as the proxy that wrote an entry is trusted. Entries further to the left may have been made up by the
  /// client.
  ///
  /// - Parameters:
  ///   - connection: the address at the other end of the connection.
  ///   - forwardedFor: all `X-Forwarded-For` fields of the request in order, joined by commas.
  /// - Returns: the right-most address that is not a trusted proxy's. If there is none, or an entry is not an address,
  ///   the left-most trusted proxy up to there.
  package func client(of connection: IPAddress, forwardedFor: String?) -> IPAddress {
    guard let forwardedFor, !ranges.isEmpty else { return connection }
    var client = connection
    var rest = forwardedFor[...]
    while isTrusted(client), !rest.isEmpty {
      let comma = rest.lastIndex(of: ",")
      let entry = comma.map { rest[rest.index(after: $0)...] } ?? rest
      guard let address = Self.address(entry) else { break }
      client = address
      rest = comma.map { rest[..<$0] } ?? ""
    }
    return client
  }

  private func isTrusted(_ address: IPAddress) -> Bool { ranges.contains { $0.contains(address) } }

  /// `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:4711`, with or without surrounding
  /// spaces.
  private static func address(_ entry: Substring) -> IPAddress? {
    var text = entry.drop { $0 == " " || $0 == "\t" }
    while text.last == " " || text.last == "\t" { text.removeLast() }
    if text.first == "[" {
      guard let end = text.lastIndex(of: "]") else { return nil }
      return IPAddress(text[text.index(after: text.startIndex)..<end])
    }
    if let colon = text.firstIndex(of: ":"), text.contains(".") && text.lastIndex(of: ":") == colon {
      text = text[..<colon]
    }
    return IPAddress(text)
  }
}
