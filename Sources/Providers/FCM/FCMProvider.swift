// FCM HTTP v1 as the gateway sees it: batches in, outcomes out.

public import Logging
public import Runtime

/// What one app needs to send through FCM.
public struct FCMConfiguration: Sendable {
  /// The service account's `project_id`.
  public var projectID: String
  /// `https://fcm.googleapis.com`
  public var endpoint: HTTP2Endpoint
  public var pool: HTTP2ConnectionPoolSettings
  /// When invites are sent once more over another connection; nil: never.
  public var hedging: HedgingSettings?

  public init(
    projectID: String, endpoint: HTTP2Endpoint, pool: HTTP2ConnectionPoolSettings = FCMConfiguration.defaultPool
  ) {
    self.projectID = projectID
    self.endpoint = endpoint
    self.pool = pool
  }

  /// A hundred streams a connection, as many as FCM was seen to allow; eight such connections carry the default quota
  /// of 10,000 messages a second at a round trip of 80 ms. PINGs go out with requests in flight only: FCM counts others
  /// as abuse.
  public static var defaultPool: HTTP2ConnectionPoolSettings {
    var settings = HTTP2ConnectionPoolSettings()
    settings.connectionsMax = 8
    settings.probes = false
    settings.connection.streamsMax = 100
    settings.connection.lateAnswerTimeout = .seconds(5)
    return settings
  }
}

/// One app's connections to FCM.
public actor FCMProvider: PushProvider {
  public nonisolated let loop: EventLoop
  public nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  private let sender: HTTP2Sender

  /// - Parameters:
  ///   - tokens: shared by every provider that uses the same service account.
  ///   - permit: whether requests may be written; nil: always.
  ///   - logger: carries the app's name; gets no token and no payload.
  public init(
    _ configuration: FCMConfiguration, tokens: any ProviderTokenSource, loop: EventLoop, logger: Logger,
    permit: SendPermit? = nil, clock: any GatewayClock = SystemClock()
  ) {
    self.loop = loop
    sender = HTTP2Sender(
      FCMFormat(configuration), settings: configuration.pool, hedging: configuration.hedging, tokens: tokens,
      permit: permit, clock: clock, loop: loop, logger: logger)
  }

  public func start(report: @escaping @Sendable (PushProviderEvent) -> Void) {
    sender.report = report
    sender.start()
  }

  public func send(_ batch: [PushRequest]) {
    sender.send(batch)
  }

  public var condition: ProviderCondition { sender.condition }

  public func withdraw(_ tags: Set<UInt64>) {
    sender.withdraw(tags)
  }

  /// Sends with the access tokens of another key from now on, as soon as there is one; the connections stay.
  public func rotate(to tokens: any ProviderTokenSource) {
    sender.rotate(to: tokens)
  }

  public func retryConnections() {
    sender.retryConnections()
  }

  public func shutDown(by deadline: Instant) async {
    await withCheckedContinuation { continuation in
      sender.shutDown(by: deadline) { continuation.resume() }
    }
  }
}
