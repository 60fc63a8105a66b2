// The settings of an FCM account: project, endpoint, connections.

public import Runtime

/// The settings with which one app sends through FCM.
public struct FCMConfiguration: Sendable {
  /// The service account's `project_id`.
  public var projectID: String
  /// `https://fcm.googleapis.com`
  public var endpoint: HTTP2Endpoint
  public var pool: HTTP2ConnectionPoolSettings
  /// When invites are sent a second time over another connection; nil: never.
  public var hedging: HedgingSettings?

  public init(
    projectID: String, endpoint: HTTP2Endpoint, pool: HTTP2ConnectionPoolSettings = FCMConfiguration.defaultPool
  ) {
    self.projectID = projectID
    self.endpoint = endpoint
    self.pool = pool
  }

  /// 100 streams a connection, which is the limit observed from FCM. Eight such connections carry the default quota of 10,000
  /// messages a second at a round trip of 80 ms. PINGs are sent only while requests are in flight, because FCM treats others as
  /// abuse.
  public static var defaultPool: HTTP2ConnectionPoolSettings {
    var settings = HTTP2ConnectionPoolSettings()
    settings.connectionsMax = 8
    settings.probes = false
    settings.connection.streamsMax = 100
    settings.connection.lateAnswerTimeout = .seconds(5)
    return settings
  }
}
