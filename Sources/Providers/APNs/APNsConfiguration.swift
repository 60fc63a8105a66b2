// The settings of an APNs account: topic, endpoints, connections.

public import Runtime

/// The settings with which one app sends through APNs.
public struct APNsConfiguration: Sendable {
  /// The bundle id, without `.voip`.
  public var topic: String
  /// `https://api.push.apple.com`
  public var production: HTTP2Endpoint
  /// `https://api.sandbox.push.apple.com`
  public var sandbox: HTTP2Endpoint
  public var pool: HTTP2ConnectionPoolSettings
  /// When invites are sent a second time over another connection; nil: never.
  public var hedging: HedgingSettings?

  public init(
    topic: String, production: HTTP2Endpoint, sandbox: HTTP2Endpoint,
    pool: HTTP2ConnectionPoolSettings = APNsConfiguration.defaultPool
  ) {
    self.topic = topic
    self.production = production
    self.sandbox = sandbox
    self.pool = pool
  }

  /// One stream until the first authorised answer, then at most 1000, which is the limit observed from APNs. Few connections that
  /// live long.
  public static var defaultPool: HTTP2ConnectionPoolSettings {
    var settings = HTTP2ConnectionPoolSettings()
    settings.connectionsMax = 2
    settings.probes = true
    settings.connection.streamsMax = 1000
    settings.connection.lateAnswerTimeout = .seconds(5)
    settings.connection.session.peerStreamsMaxBeforeSettings = 1
    return settings
  }
}
