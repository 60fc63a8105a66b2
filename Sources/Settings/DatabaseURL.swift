// Checks a database URL before libpq reads it. Pure.
//
// A character of the password that should be written as %XX can shift the parts of the URL: libpq then takes a part of
// the password for a host, a port or a database, and its errors quote that part. So a URL that is certainly wrong is
// refused here, by an error that quotes nothing.

internal import Queue
internal import Runtime

package enum DatabaseURL {
  package static let unreadable =
    "cannot be read: it must be postgres://USER:PASSWORD@HOST:PORT/DATABASE, and in USER and PASSWORD each character other than "
    + "letters, digits, '-', '.', '_' and '~' must be written as % and two hexadecimal digits"

  /// What is wrong with a URL, without quoting it; nil if nothing is.
  package static func fault(of url: String) -> String? {
    let scheme = ["postgres://", "postgresql://"].first { url.hasPrefix($0) } ?? ""
    let rest = url.dropFirst(scheme.count)
    guard !scheme.isEmpty, !rest.isEmpty, !rest.contains(where: \.isWhitespace) else {
      return "must be a URL that begins with postgres:// or postgresql://"
    }
    let authority = rest.prefix { $0 != "/" && $0 != "?" }
    let places = authority.split(separator: "@", omittingEmptySubsequences: false)
    // A second @ before the host, or one after it, is an unescaped @ of the password.
    let hosts = places[places.count - 1]
    guard places.count <= 2, !rest.dropFirst(authority.count).contains("@"), areHosts(hosts, anyPort: true) else {
      return unreadable
    }
    guard areHosts(hosts, anyPort: false) else { return "has a port that is not a number from 1 to 65535" }
    if let fault = parameterFault(of: rest) { return fault }
    guard let mode = try? PostgresHosts.tlsMode(of: url) ?? tlsModes[0] else { return unreadable }
    guard tlsModes.contains(mode) else {
      return (rest.contains("sslmode=") ? "sslmode" : "the environment variable PGSSLMODE, which adds to it,")
        + " must be one of \(tlsModes.joined(separator: ", "))"
    }
    return nil
  }

  private static let tlsModes = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]

  /// The first parameter behind `?` that libpq does not know. Its name is not quoted: it may be a part of a password.
  private static func parameterFault(of rest: Substring) -> String? {
    let known = PostgresHosts.parameters + ["ssl"]
    let names = rest.split(separator: "?", maxSplits: 1).dropFirst().flatMap { $0.split(separator: "&") }
      .map { String($0.prefix { $0 != "=" }) }
    guard let name = names.first(where: { !$0.contains("%") && !known.contains($0) }) else { return nil }
    let near = Suggestion.text(for: name, among: known)
    return "has a parameter behind ? that Postgres does not know" + (near.isEmpty ? "; remove it" : near)
  }

  /// Hosts and ports: `db-1.example:5432,[::1]:5433,%2Frun%2Fpostgresql`.
  private static func areHosts(_ text: Substring, anyPort: Bool) -> Bool {
    text.split(separator: ",", omittingEmptySubsequences: true).allSatisfy { place in
      guard place.utf8.allSatisfy({ isOfHost($0) }) else { return false }
      if place.hasPrefix("["), let end = place.lastIndex(of: "]") {
        let after = place[place.index(after: end)...]
        return after.isEmpty || after.hasPrefix(":") && isPort(after.dropFirst(), any: anyPort)
      }
      let parts = place.split(separator: ":", omittingEmptySubsequences: false)
      return parts.count == 1 || parts.count == 2 && isPort(parts[1], any: anyPort)
    }
  }

  private static func isOfHost(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"):
      true
    case UInt8(ascii: "."), UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "%"), UInt8(ascii: ":"): true
    case UInt8(ascii: "["), UInt8(ascii: "]"): true
    default: false
    }
  }

  private static func isPort(_ text: Substring, any: Bool) -> Bool {
    text.isEmpty
      || text.utf8.allSatisfy { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
        && (any ? text.utf8.count <= 6 : UInt16(text) ?? 0 > 0)
  }
}
