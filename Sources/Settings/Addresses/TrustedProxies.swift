// From which address a request came, where proxies stand between the client and the gateway.

/// The proxies that are believed in what they say of a request's origin.
package struct TrustedProxies: Equatable, Sendable {
  private let ranges: [IPRange]

  /// - Parameter ranges: none: nobody is believed, and a request comes from where its connection comes from.
  package init(_ ranges: [IPRange] = []) {
    self.ranges = ranges
  }

  package var isEmpty: Bool { ranges.isEmpty }

  /// The address of the client.
  ///
  /// Each proxy appends the address that it was connected from to `X-Forwarded-For`. So the header is read from its end, and
  /// only as long as the one who wrote an entry is trusted: what stands further left may be the client's own invention.
  ///
  /// - Parameters:
  ///   - connection: where the connection comes from.
  ///   - forwardedFor: all fields `X-Forwarded-For` of the request in their order, with commas between them.
  /// - Returns: the right-most address that is no trusted proxy's; the last trusted proxy that is known where there is none, or
  ///   where an entry is no address.
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

  /// `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:4711`, with blanks around it.
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
