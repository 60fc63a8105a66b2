// What a configuration may say, and had better not: things that let others read what the gateway sends or keeps.

internal import HTTPSurface
internal import Queue
internal import Runtime
internal import Settings

enum SecurityRemarks {
  /// The modes of libpq in which nothing goes over the network in clear text.
  private static let encryptedModes: Set = ["require", "verify-ca", "verify-full"]

  /// A sentence about each, beginning with the key, each with its remedy.
  ///
  /// - Parameter wallMilliseconds: now; tells certificates that end soon.
  static func all(
    of configuration: GatewayConfiguration, wallMilliseconds: Int64 = SystemClock().wallMilliseconds()
  ) -> [String] {
    listeners(of: configuration) + certificates(of: configuration, wallMilliseconds / 1000)
      + login(of: configuration) + database(configuration.databaseURL)
      + proxies(of: configuration)
  }

  /// What nobody can read is no leak, but no help either.
  private static func login(of configuration: GatewayConfiguration) -> [String] {
    let access = configuration.opsAccess
    let isReached =
      !PostgresHosts.isLoopback(configuration.http.host) || !access.hosts.isEmpty
      || !access.trustedProxies.isEmpty
    guard isReached, access.opsKeys.isEmpty, access.identity == nil else { return [] }
    return [
      "dashboard.ops_key_file: other machines reach http.listen, so reading needs a login, and there is none: "
        + (access.metricsKey == nil
          ? "the dashboard and /metrics refuse everybody" : "the dashboard refuses everybody")
        + "; set it, dashboard.ops_keys or dashboard.identity"
        + (access.metricsKey == nil ? ", and http.metrics_key_file for Prometheus" : "")
    ]
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
      [("http", configuration.http, configuration.httpTLS)]
      + (configuration.api.map { [("api", $0.listener, $0.tls)] } ?? [])
    return listeners.compactMap { section, listener, tls in
      tls != nil || PostgresHosts.isLoopback(listener.host)
        ? nil
        : "\(section).listen: other machines reach it, in clear text: give it \(section).tls, or put a proxy with TLS before it "
          + "and let it listen on loopback"
    }
  }

  /// What cannot be read, or has expired, is more than a remark.
  private static func certificates(of configuration: GatewayConfiguration, _ now: Int64) -> [String] {
    configuration.listenerTLS.compactMap { name, tls in
      guard let certificate = try? ListenerCertificate(tls, privacy: configuration.secretPrivacy),
        certificate.expiresAtSeconds > now,
        certificate.expiresAtSeconds - now < ListenerCertificate.warningSeconds
      else { return nil }
      return "\(name).tls.certificate_file: ends on \(certificate.expiry): renew it"
    }
  }

  private static func database(_ url: String) -> [String] {
    guard let hosts = try? PostgresHosts.named(in: url), hosts.contains(where: { !PostgresHosts.isLoopback($0) }),
      let mode = try? PostgresHosts.tlsMode(of: url) ?? "prefer", !encryptedModes.contains(mode)
    else { return [] }
    return ["database: calls and tokens may go to another machine in clear text: add sslmode=verify-full to its URL"]
  }
}
