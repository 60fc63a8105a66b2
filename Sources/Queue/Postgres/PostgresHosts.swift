// Which hosts a connection URL leads to, by libpq's own reading of it.

internal import CLibPQ

/// The hosts that libpq would try.
public enum PostgresHosts {
  /// Host names, addresses and directories of Unix sockets, as the URL or the environment (PGHOST, PGHOSTADDR, PGSERVICE)
  /// gives them; empty when neither says anything, which means the default Unix socket.
  ///
  /// - Throws: `connectionFailed` when the URL cannot be read.
  public static func named(in url: String) throws(PostgresError) -> [String] {
    var complaint: UnsafeMutablePointer<CChar>?
    guard let given = unsafe PQconninfoParse(url, &complaint) else {
      // libpq's text may quote the URL, and with it the password.
      unsafe PQfreemem(complaint)
      throw PostgresError(.connectionFailed, "the database URL cannot be read")
    }
    defer { unsafe PQconninfoFree(given) }
    let defaults = unsafe PQconndefaults()
    defer { unsafe PQconninfoFree(defaults) }
    var hosts: [String] = []
    // Either decides where a connection goes, so both count. A service file is named rather than read.
    for keyword in ["host", "hostaddr", "service"] {
      let value = unsafe value(of: keyword, in: given) ?? value(of: keyword, in: defaults)
      hosts += (value ?? "").split(separator: ",", omittingEmptySubsequences: true).map(String.init)
    }
    return hosts
  }

  /// Whether a host, as `named` gives it, is this machine: a Unix socket, `localhost` or a loopback address.
  public static func isLoopback(_ host: String) -> Bool {
    if host.hasPrefix("/") || host.hasPrefix("@") { return true }
    if ["localhost", "::1"].contains(host.lowercased()) { return true }
    let octets = host.split(separator: ".", omittingEmptySubsequences: false)
    return octets.count == 4 && octets[0] == "127" && octets.allSatisfy { UInt8($0) != nil }
  }

  private static func value(of keyword: String, in options: UnsafeMutablePointer<PQconninfoOption>?) -> String? {
    guard var option = unsafe options else { return nil }
    while let name = unsafe option.pointee.keyword {
      if unsafe String(cString: name) == keyword { return unsafe option.pointee.val.map { unsafe String(cString: $0) } }
      unsafe option += 1
    }
    return nil
  }
}
