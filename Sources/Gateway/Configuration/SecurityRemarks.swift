// What a configuration may say, and had better not: things that let others read what the gateway sends or keeps.

internal import Queue

enum SecurityRemarks {
  /// The modes of libpq in which nothing goes over the network in clear text.
  private static let encryptedModes: Set = ["require", "verify-ca", "verify-full"]

  /// A sentence about each, beginning with the key, each with its remedy.
  static func all(of configuration: GatewayConfiguration) -> [String] {
    listeners(of: configuration) + database(configuration.databaseURL) + proxies(of: configuration)
  }

  private static func proxies(of configuration: GatewayConfiguration) -> [String] {
    let proxies = [("proxy", configuration.proxy)] + configuration.apps.map { ("apps.\($0.name).proxy", $0.proxy) }
    return proxies.compactMap { path, proxy in
      guard let proxy, proxy.credentialsFile != nil, !PostgresHosts.isLoopback(proxy.host),
        path == "proxy" || proxy != configuration.proxy
      else { return nil }
      return "\(path).credentials_file: the user and password go to \(proxy) in clear text, as HTTP proxies want it: "
        + "reach it over a network of your own, and give it no password that opens anything else"
    }
  }

  private static func listeners(of configuration: GatewayConfiguration) -> [String] {
    let listeners =
      [("http.listen", configuration.http)] + (configuration.api.map { [("api.listen", $0.listener)] } ?? [])
    return listeners.compactMap { key, listener in
      PostgresHosts.isLoopback(listener.host)
        ? nil
        : "\(key): other machines reach it, in clear text: put a proxy with TLS before it, and let it listen on loopback"
    }
  }

  private static func database(_ url: String) -> [String] {
    guard let hosts = try? PostgresHosts.named(in: url), hosts.contains(where: { !PostgresHosts.isLoopback($0) }),
      let mode = try? PostgresHosts.tlsMode(of: url) ?? "prefer", !encryptedModes.contains(mode)
    else { return [] }
    return ["database: calls and tokens may go to another machine in clear text: add sslmode=verify-full to its URL"]
  }
}
