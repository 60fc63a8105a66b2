// Who runs the push services of browsers. Each has a lane of its own, so that a bad day of one stops no push to the others.
//
// The list is fixed: whoever registers a device names its push service, and must not be able to make lanes. `push.push_service` has the
// same list (Tests/webpush/subscriptions.json tests both).

/// Who runs a push service.
public enum WebPushService: String, CaseIterable, Sendable {
  /// Chrome, and most browsers that are made of Chromium.
  case google
  /// Firefox.
  case mozilla
  /// Safari.
  case apple
  /// Edge on Windows: WNS, which has several dozen hosts.
  case windows
  /// All others that the configuration allows.
  case other

  /// Its hosts are these, and those below them.
  fileprivate var domains: [String] {
    switch self {
    case .google: ["fcm.googleapis.com", "google.com"]
    case .mozilla: ["push.services.mozilla.com"]
    case .apple: ["push.apple.com"]
    case .windows: ["notify.windows.com"]
    case .other: []
    }
  }

  /// - Parameter host: the host name of an endpoint, in lower case.
  init(host: String) {
    self =
      Self.allCases.first { service in service.domains.contains { host == $0 || host.hasSuffix(".\($0)") } } ?? .other
  }
}

extension WebPushAllowedOrigins {
  /// Maximum number of origins of this service.
  ///
  /// - Parameter wildcard: how many a pattern with a wildcard may stand for.
  public func originsMax(of service: WebPushService?, wildcard: Int) -> Int {
    guard let service else { return 1 }
    let patterns = origins.filter { $0.mayBe(of: service) }
    return patterns.contains(where: \.isWildcard) ? wildcard : max(1, patterns.count)
  }
}

extension WebPushAllowedOrigins.Pattern {
  fileprivate func mayBe(of service: WebPushService) -> Bool {
    origin.service == service || isWildcard && service.domains.contains { $0.hasSuffix(".\(origin.host)") }
  }
}

extension WebPushOrigin {
  /// Who runs it.
  public var service: WebPushService { WebPushService(host: host) }
}
