// Warnings about a valid configuration that lets others read what the gateway sends or stores.

internal import HTTPSurface
internal import Queue
internal import Runtime
internal import Settings

enum SecurityRemarks {
  /// The values of libpq's sslmode with which nothing is sent in clear text.
  private static let encryptedModes: Set = ["require", "verify-ca", "verify-full"]

  /// One sentence for each warning. It begins with the key and ends with the remedy.
  ///
  /// - Parameter wallMilliseconds: the current time, for certificates that expire soon.
  static func all(
    of configuration: GatewayConfiguration, wallMilliseconds: Int64 = SystemClock().wallMilliseconds()
  ) -> [String] {
    listeners(of: configuration) + certificates(of: configuration, wallMilliseconds / 1000)
      + login(of: configuration) + configuration.databases.flatMap { database($0.url) }
      + proxies(of: configuration) + fronts(of: configuration)
  }

  /// Paths that need no key, open to more than one organization.
  private static func fronts(of configuration: GatewayConfiguration) -> [String] {
    let paths = [
      ("api.matrix.networks", configuration.api?.matrixNetworks ?? [], "a push key", "your homeservers"),
      ("api.gorush.networks", configuration.api?.gorush?.networks ?? [], "a token", "your backends"),
    ]
    return paths.compactMap { key, networks, secret, owners in
      guard let wide = networks.first(where: { !$0.mayBeOneNetwork }) else { return nil }
      return "\(key): every machine in \(wide) may use this path, and whoever knows \(secret) may ring its phone: "
        + "give the addresses of \(owners) alone, if you know them"
    }
  }

  /// Without a configured login, nothing leaks, but nobody can read the dashboard.
  private static func login(of configuration: GatewayConfiguration) -> [String] {
    let access = configuration.opsAccess
    let isReached =
      !PostgresHosts.isLoopback(configuration.http.host) || !access.hosts.isEmpty
      || !access.trustedProxies.isEmpty
    guard isReached, access.opsKeys.isEmpty, access.identity == nil else { return [] }
    return [
      "dashboard.ops_key_file: other machines can reach http.listen, so reading needs a login, but none is configured: "
        + (access.metricsKey == nil
          ? "the dashboard and /metrics refuse everyone" : "the dashboard refuses everyone")
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
      return
        "\(path).credentials_file: the user and password are sent to \(proxy) in clear text, as HTTP proxies require: "
        + "use a network of your own to reach it, and a password that is used for nothing else"
    }
  }

  private static func listeners(of configuration: GatewayConfiguration) -> [String] {
    let listeners =
      [("http", configuration.http, configuration.httpTLS)]
      + (configuration.api.map { [("api", $0.listener, $0.tls)] } ?? [])
    return listeners.compactMap { section, listener, tls in
      tls != nil || PostgresHosts.isLoopback(listener.host)
        ? nil
        : "\(section).listen: other machines can reach it in clear text: set \(section).tls, or put a proxy with TLS before it "
          + "and let it listen on loopback"
    }
  }

  /// Certificates that cannot be read, or have expired, are errors and not reported here.
  private static func certificates(of configuration: GatewayConfiguration, _ now: Int64) -> [String] {
    configuration.listenerTLS.compactMap { name, tls in
      guard let certificate = try? ListenerCertificate(tls, privacy: configuration.secretPrivacy),
        certificate.expiresAtSeconds > now,
        certificate.expiresAtSeconds - now < ListenerCertificate.warningSeconds
      else { return nil }
      return "\(name).tls.certificate_file: expires on \(certificate.expiry): renew it"
    }
  }

  private static func database(_ url: String) -> [String] {
    guard let hosts = try? PostgresHosts.named(in: url), hosts.contains(where: { !PostgresHosts.isLoopback($0) }),
      let mode = try? PostgresHosts.tlsMode(of: url) ?? "prefer", !encryptedModes.contains(mode)
    else { return [] }
    return [
      "database: calls and tokens may be sent to another machine in clear text: add sslmode=verify-full to its URL"
    ]
  }
}
