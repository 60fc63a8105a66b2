// APNs as the gateway sees it: batches in, outcomes out.

public import Logging
public import Runtime

/// What one app needs to send through APNs.
public struct APNsConfiguration: Sendable {
  /// The bundle id, without `.voip`.
  public var topic: String
  /// `https://api.push.apple.com`
  public var production: HTTP2Endpoint
  /// `https://api.sandbox.push.apple.com`
  public var sandbox: HTTP2Endpoint
  public var pool: HTTP2ConnectionPoolSettings
  /// When invites are sent once more over another connection; nil: never.
  public var hedging: HedgingSettings?
  /// How long the connections of a new key may take to be ready; after that requests wait for them.
  public var rotationTimeMax = Nanoseconds.seconds(10)

  public init(
    topic: String, production: HTTP2Endpoint, sandbox: HTTP2Endpoint,
    pool: HTTP2ConnectionPoolSettings = APNsConfiguration.defaultPool
  ) {
    self.topic = topic
    self.production = production
    self.sandbox = sandbox
    self.pool = pool
  }

  /// One stream until the first authorised answer, then up to a thousand (as many as APNs was seen to allow); few
  /// connections that live long.
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

/// One app's connections to APNs, production and sandbox.
public actor APNsProvider: PushProvider {
  public nonisolated let loop: EventLoop
  public nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  private let sender: HTTP2Sender

  /// - Parameters:
  ///   - tokens: shared by every provider that uses the same key.
  ///   - permit: whether requests may be written; nil: always.
  ///   - logger: carries the app's name; gets no token and no payload.
  public init(
    _ configuration: APNsConfiguration, tokens: any ProviderTokenSource, loop: EventLoop, logger: Logger,
    permit: SendPermit? = nil, clock: any GatewayClock = SystemClock()
  ) {
    self.loop = loop
    sender = HTTP2Sender(
      APNsFormat(configuration), settings: configuration.pool, hedging: configuration.hedging, tokens: tokens,
      permit: permit, clock: clock, loop: loop, logger: logger, rotationTimeMax: configuration.rotationTimeMax)
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

  /// Sends with the tokens of another key from now on, without a failed push: new connections are opened for it, for
  /// APNs ties a connection to the key it saw first; when they are ready new requests go there, those on the old ones
  /// are finished, and those that have not left move. If they are not ready in `rotationTimeMax`, requests wait for
  /// them; while there is no token of the new key, the old one is used on.
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
