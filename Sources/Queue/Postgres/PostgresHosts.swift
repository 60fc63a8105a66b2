// The hosts of a connection URL, as libpq itself reads it.

internal import CLibPQ

/// One place a connection may be opened to.
struct PostgresEndpoint: Sendable, Equatable, CustomStringConvertible {
  /// A name, an address or the directory of a Unix socket; empty for libpq's default.
  var host: String
  /// The numeric address. Empty if libpq needs none, or if it is not looked up yet.
  var address: String
  /// Empty for libpq's default.
  var port: String

  var description: String { "\(host) \(address) \(port)" }
  /// The host as the URL names it, or its address where there is no name.
  var place: String { host.isEmpty ? address : host }

  /// Whether `address` is still to be looked up for `host`.
  var needsAddress: Bool { address.isEmpty && !host.isEmpty && !PostgresHosts.isSocket(host) }
}

/// The hosts that libpq would try.
public enum PostgresHosts {
  /// What a URL says about connecting.
  struct Plan: Equatable {
    /// The endpoints in the order in which to try them. Empty if libpq decides by itself.
    var endpoints: [PostgresEndpoint]
    /// `connect_timeout` in seconds: maximum time for each endpoint; nil if not given.
    var timeoutSeconds: Int64?
  }

  /// Host names, addresses and directories of Unix sockets, as the URL or the environment (PGHOST, PGHOSTADDR, PGSERVICE)
  /// gives them; empty when neither says anything, which means the default Unix socket.
  ///
  /// - Throws: `connectionFailed` when the URL cannot be read.
  public static func named(in url: String) throws(PostgresError) -> [String] {
    // Either of the first two decides where a connection goes, so both count. A service file is named rather than read.
    let values = try values(of: ["host", "hostaddr", "service"], in: url)
    return values.flatMap { ($0 ?? "").split(separator: ",", omittingEmptySubsequences: true).map(String.init) }
  }

  /// `sslmode`, as the URL or the environment (PGSSLMODE) gives it; nil if neither sets it: then libpq uses TLS if the server offers it.
  ///
  /// - Throws: `connectionFailed` when the URL cannot be read.
  public static func tlsMode(of url: String) throws(PostgresError) -> String? {
    try values(of: ["sslmode"], in: url)[0]
  }

  /// The names of the parameters that a URL may have.
  public static let parameters: [String] = {
    let defaults = unsafe PQconndefaults()
    defer { unsafe PQconninfoFree(defaults) }
    guard var option = unsafe defaults else { return [] }
    var names: [String] = []
    while let name = unsafe option.pointee.keyword {
      unsafe names.append(String(cString: name))
      unsafe option += 1
    }
    return names
  }()

  /// Whether the URL itself has a password. A password in the environment or a password file does not count. False for a URL that
  /// cannot be read.
  public static func givesPassword(_ url: String) -> Bool {
    guard let given = unsafe PQconninfoParse(url, nil) else { return false }
    defer { unsafe PQconninfoFree(given) }
    return ["password", "sslpassword"].contains { unsafe value(of: $0, in: given) != nil }
  }

  /// The endpoints of a URL. There are none if a service file names them, if nothing is given, or if the lists do not match, which
  /// libpq reports best.
  ///
  /// - Throws: `connectionFailed` when the URL cannot be read.
  static func plan(for url: String) throws(PostgresError) -> Plan {
    let values = try values(of: ["host", "hostaddr", "port", "service", "connect_timeout"], in: url)
    func list(_ value: String?) -> [String] {
      (value ?? "").isEmpty
        ? [] : (value ?? "").split(separator: ",", omittingEmptySubsequences: false).map(String.init)
    }
    var plan = Plan(endpoints: [], timeoutSeconds: values[4].flatMap { Int64($0) }.flatMap { $0 > 0 ? $0 : nil })
    let (hosts, addresses, ports) = (list(values[0]), list(values[1]), list(values[2]))
    let count = max(hosts.count, addresses.count)
    // libpq treats an empty value as not set, so an empty entry of a list cannot be passed on its own.
    guard values[3] == nil, hosts.isEmpty || addresses.isEmpty || hosts.count == addresses.count,
      ports.count <= 1 || ports.count == count, count == 1 || !(hosts + addresses).contains("")
    else { return plan }
    plan.endpoints = (0..<count).map { index in
      PostgresEndpoint(
        host: hosts.isEmpty ? "" : hosts[index], address: addresses.isEmpty ? "" : addresses[index],
        port: ports.count <= 1 ? ports.first ?? "" : ports[index].isEmpty ? "5432" : ports[index])
    }
    return plan
  }

  /// Whether a host, as `named` gives it, is this machine: a Unix socket, `localhost` or a loopback address.
  public static func isLoopback(_ host: String) -> Bool {
    if isSocket(host) { return true }
    if ["localhost", "::1"].contains(host.lowercased()) { return true }
    let octets = host.split(separator: ".", omittingEmptySubsequences: false)
    return octets.count == 4 && octets[0] == "127" && octets.allSatisfy { UInt8($0) != nil }
  }

  static func isSocket(_ host: String) -> Bool { host.hasPrefix("/") || host.hasPrefix("@") }

  /// The value in the URL, or else in the environment; nil if neither has one.
  private static func values(of keywords: [String], in url: String) throws(PostgresError) -> [String?] {
    var complaint: UnsafeMutablePointer<CChar>?
    guard let given = unsafe PQconninfoParse(url, &complaint) else {
      // libpq's text may quote the URL, and with it the password.
      unsafe PQfreemem(complaint)
      throw PostgresError(.connectionFailed, "the database URL cannot be read")
    }
    defer { unsafe PQconninfoFree(given) }
    let defaults = unsafe PQconndefaults()
    defer { unsafe PQconninfoFree(defaults) }
    var values: [String?] = []
    for keyword in keywords {
      unsafe values.append(value(of: keyword, in: given) ?? value(of: keyword, in: defaults))
    }
    return values
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
