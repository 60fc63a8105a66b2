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
  private var domains: [String] {
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

extension WebPushOrigin {
  /// Who runs it.
  public var service: WebPushService { WebPushService(host: host) }
}
