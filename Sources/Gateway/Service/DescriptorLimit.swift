// The limit of open files and sockets, and whether the configured connections fit. Without a free descriptor, the
// gateway cannot connect to a provider, and no phone rings.

import HTTPSurface
import Settings
import Webhooks

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
import HTTPSurface
#endif

/// The process's limit of open file descriptors (getrlimit(2), RLIMIT_NOFILE).
enum DescriptorLimit {
  /// Number of descriptors reserved for other things than clients' connections: event loops, Postgres, name look-ups,
  /// standard streams, files that are read again, and some spare.
  private static let ownNeed = 96
  /// Minimum number of connections of a listener. If fewer are configured, that number is the minimum.
  private static let connectionsMin = 16

  /// Raises the soft limit to the hard one. Returns the new limit; nil if it is not known.
  static func raise() -> Int? {
    guard var limit = read() else { return nil }
    if limit.rlim_cur < limit.rlim_max {
      limit.rlim_cur = limit.rlim_max
      _ = unsafe setrlimit(resource, &limit)
    }
    return read().map { Int(clamping: $0.rlim_cur) }
  }

  /// The limit that `raise` would set; nil if it is not known.
  static var hard: Int? { read().map { Int(clamping: $0.rlim_max) } }

  /// Why a configuration does not fit under this limit, with the remedy; nil if it fits.
  static func fault(of configuration: GatewayConfiguration, under limit: Int) -> String? {
    let need = need(of: configuration)
    guard need > limit else { return nil }
    let caps =
      configuration.api == nil ? "http.connections_max" : "api.connections_max and http.connections_max"
    return
      "the configured connections need \(need) open files, but the limit is \(limit): raise it (ulimit -n, LimitNOFILE=), or lower "
      + "\(caps) by \(need - limit) in total"
  }

  /// The configuration with limits of connections that fit under this limit of open files: the configured ones if they
  /// fit, otherwise lowered in proportion; nil if not even the minimum fits.
  static func fitted(_ configuration: GatewayConfiguration, under limit: Int) -> GatewayConfiguration? {
    let excess = need(of: configuration) - limit
    guard excess > 0 else { return configuration }
    let ops = configuration.httpConnectionsMax
    let api = configuration.api?.connectionsMax ?? 0
    let room = ops + api - excess
    let (opsMin, apiMin) = (min(ops, connectionsMin), min(api, connectionsMin))
    guard room >= opsMin + apiMin else { return nil }
    var fitted = configuration
    fitted.httpConnectionsMax = max(opsMin, min(room - apiMin, room * ops / (ops + api)))
    fitted.api?.connectionsMax = room - fitted.httpConnectionsMax
    return fitted
  }

  /// Maximum number of descriptors that the configured connections can use at a time.
  static func need(of configuration: GatewayConfiguration) -> Int {
    var need = ownNeed + configuration.httpConnectionsMax + HTTPConnectionCount.refusedMax
    if let api = configuration.api { need += api.connectionsMax + HTTPConnectionCount.refusedMax }
    for app in configuration.apps {
      need += app.providers.reduce(0) { $0 + app.descriptors($1) }
      if app.webhook != nil { need += WebhookMachine.inFlightMax * configuration.databases.count }
    }
    return need
  }

  private static func read() -> rlimit? {
    var limit = rlimit()
    return unsafe getrlimit(resource, &limit) == 0 ? limit : nil
  }

  #if canImport(Glibc)
  private static var resource: __rlimit_resource_t { __rlimit_resource_t(RLIMIT_NOFILE.rawValue) }
  #else
  private static var resource: Int32 { RLIMIT_NOFILE }
  #endif
}
