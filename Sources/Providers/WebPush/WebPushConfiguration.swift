// The settings of an app's web pushes: which push services, and the connections to them.

public import Runtime

/// The settings with which one app sends web pushes.
public struct WebPushConfiguration: Sendable {
  /// The push services to which pushes are sent.
  public var allowedOrigins: WebPushAllowedOrigins
  /// The trusted certificates of push services.
  public var tls: TLSContext
  /// Nil: connections go to the push services themselves.
  public var proxy: HTTPProxy?
  /// The settings of the connections to each origin.
  public var pool: HTTP2ConnectionPoolSettings
  /// Maximum number of origins with connections. WNS has several dozen.
  public var originsMax = 64
  /// Number of requests that the connections to one origin can carry: the capacity of the provider.
  public var requestsMax: Int { pool.connectionsMax * pool.connection.streamsMax }
  /// The connections to an origin are closed when no push was sent to it for this time.
  public var idleTimeMax = Nanoseconds.seconds(15 * 60)

  public init(
    tls: TLSContext, proxy: HTTPProxy? = nil, allowedOrigins: WebPushAllowedOrigins = .browsers,
    pool: HTTP2ConnectionPoolSettings = WebPushConfiguration.defaultPool
  ) {
    self.tls = tls
    self.proxy = proxy
    self.allowedOrigins = allowedOrigins
    self.pool = pool
  }

  /// At most two connections to each origin, with at most 100 streams each, as for FCM. A push waits longer than for other
  /// providers, because the first push to an origin waits for its connection.
  public static var defaultPool: HTTP2ConnectionPoolSettings {
    var settings = HTTP2ConnectionPoolSettings()
    settings.connectionsMax = 2
    settings.waitTimeout = .seconds(4)
    settings.connection.streamsMax = 100
    settings.connection.lateAnswerTimeout = .seconds(5)
    return settings
  }
}
