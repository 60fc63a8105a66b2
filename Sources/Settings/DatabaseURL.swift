// Checks a database URL before libpq reads it. Pure.
//
// A character of the password that should be written as %XX can shift the parts of the URL: libpq then takes a part of
// the password for a host, a port or a database, and its errors quote that part. So a URL that is certainly wrong is
// refused here, by an error that quotes nothing.

internal import Queue

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
    guard places.count <= 2, !rest.dropFirst(authority.count).contains("@"), areHosts(places[places.count - 1]),
      (try? PostgresHosts.named(in: url)) != nil
    else { return unreadable }
    return nil
  }

  /// Hosts and ports: `db-1.example:5432,[::1]:5433,%2Frun%2Fpostgresql`.
  private static func areHosts(_ text: Substring) -> Bool {
    text.split(separator: ",", omittingEmptySubsequences: true).allSatisfy { place in
      guard place.utf8.allSatisfy({ isOfHost($0) }) else { return false }
      if place.hasPrefix("["), let end = place.lastIndex(of: "]") {
        let after = place[place.index(after: end)...]
        return after.isEmpty || after.hasPrefix(":") && isPort(after.dropFirst())
      }
      let parts = place.split(separator: ":", omittingEmptySubsequences: false)
      return parts.count == 1 || parts.count == 2 && isPort(parts[1])
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

  private static func isPort(_ text: Substring) -> Bool {
    text.isEmpty || text.utf8.allSatisfy { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) } && UInt16(text) != nil
  }
}
