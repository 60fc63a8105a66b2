// How many files and sockets the process may have open, and whether the configured connections fit: a gateway without a descriptor
// cannot connect to a provider, and no phone rings.

import HTTPSurface
import Settings

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
import HTTPSurface
#endif

/// The process' limit of open descriptors (getrlimit(2), RLIMIT_NOFILE).
enum DescriptorLimit {
  /// Set aside for what is not a client's connection: event loops, Postgres, look-ups of names, standard streams, files that are
  /// read again, and some to spare.
  private static let ownNeed = 96
  /// A listener that may have fewer connections than this is of no use. Where less is configured, that counts.
  private static let connectionsMin = 16

  /// Raises the soft limit to the hard one. Returns the limit in force; nil if it is not known.
  static func raise() -> Int? {
    guard var limit = read() else { return nil }
    if limit.rlim_cur < limit.rlim_max {
      limit.rlim_cur = limit.rlim_max
      _ = unsafe setrlimit(resource, &limit)
    }
    return read().map { Int(clamping: $0.rlim_cur) }
  }

  /// What the limit would be after `raise`; nil if it is not known.
  static var hard: Int? { read().map { Int(clamping: $0.rlim_max) } }

  /// What is wrong with a configuration under this limit, and the remedy; nil: nothing.
  static func fault(of configuration: GatewayConfiguration, under limit: Int) -> String? {
    let need = need(of: configuration)
    guard need > limit else { return nil }
    let caps =
      configuration.api == nil ? "http.connections_max" : "api.connections_max and http.connections_max"
    return
      "so many connections need \(need) open files, and the limit is \(limit): raise it (ulimit -n, LimitNOFILE=), or lower "
      + "\(caps) by \(need - limit) in all"
  }

  /// The configuration with limits of connections that fit under this limit of open files: those that are configured if they
  /// fit, else lowered in proportion. nil: not even the least fit, and the gateway could not do its work.
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

  /// Descriptors that everything configured may take at a time.
  static func need(of configuration: GatewayConfiguration) -> Int {
    var need = ownNeed + configuration.httpConnectionsMax + HTTPConnectionCount.refusedMax
    if let api = configuration.api { need += api.connectionsMax + HTTPConnectionCount.refusedMax }
    for app in configuration.apps {
      // Two of each connection while it is replaced or its key changes; APNs has two endpoints.
      if let apns = app.apns { need += apns.connections * 4 }
      if let fcm = app.fcm { need += fcm.connections * 2 + 1 }
      if let expo = app.expo { need += expo.connections + 1 }
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
