// The name of a lane: for messages, metrics and the views of the database.

public import Providers

/// One app's account at one provider, or at one of several services behind it.
public struct LaneName: Hashable, Sendable, CustomStringConvertible {
  public var app: String
  public var provider: ProviderKind
  /// Nil if one service takes all pushes.
  public var service: WebPushService?

  public init(app: String, provider: ProviderKind, service: WebPushService? = nil) {
    self.app = app
    self.provider = provider
    self.service = service
  }

  /// The label `provider` of metrics: `apns`, `webpush/google`. The database has the same text (`push.take_tally`, `push.observe`).
  public var channel: String { service.map { "\(provider.rawValue)/\($0.rawValue)" } ?? provider.rawValue }

  /// `porteiro/apns`
  public var description: String { "\(app)/\(channel)" }
}
