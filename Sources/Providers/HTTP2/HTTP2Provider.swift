// The provider for APNs and FCM HTTP v1: takes batches of pushes and reports their outcomes.

public import Logging
public import Runtime

/// One app's connections to APNs (production and sandbox) or to FCM. `APNsFormat` and `FCMFormat` contain the differences between
/// the two.
public actor HTTP2Provider: PushProvider {
  public nonisolated let loop: EventLoop
  public nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  private let sender: HTTP2Sender

  /// A provider that sends to APNs.
  ///
  /// - Parameters:
  ///   - tokens: the token source, shared by every provider that uses the same key.
  ///   - logger: a logger with the app's name in its metadata. Tokens and payloads are never logged.
  ///   - permits: the permits of its requests; nil: they may always be written.
  public init(
    _ configuration: APNsConfiguration, tokens: any ProviderTokenSource, loop: EventLoop, logger: Logger,
    permits: SendPermits? = nil, clock: any GatewayClock = SystemClock()
  ) {
    self.loop = loop
    sender = HTTP2Sender(
      APNsFormat(configuration), settings: configuration.pool, hedging: configuration.hedging, tokens: tokens,
      permits: permits, clock: clock, loop: loop, logger: logger, rotationTimeMax: configuration.rotationTimeMax)
  }

  /// A provider that sends to FCM.
  ///
  /// - Parameters:
  ///   - tokens: the token source, shared by every provider that uses the same service account.
  ///   - logger: a logger with the app's name in its metadata. Tokens and payloads are never logged.
  ///   - permits: the permits of its requests; nil: they may always be written.
  public init(
    _ configuration: FCMConfiguration, tokens: any ProviderTokenSource, loop: EventLoop, logger: Logger,
    permits: SendPermits? = nil, clock: any GatewayClock = SystemClock()
  ) {
    self.loop = loop
    sender = HTTP2Sender(
      FCMFormat(configuration), settings: configuration.pool, hedging: configuration.hedging, tokens: tokens,
      permits: permits, clock: clock, loop: loop, logger: logger)
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

  /// From now on, sends with the tokens of another key. No push fails because of the change.
  ///
  /// FCM: the connections stay. Their requests carry the new token as soon as there is one.
  ///
  /// APNs ties a connection to the key of its first request, so new connections are opened. When they are ready, new requests and
  /// waiting requests use them; requests in flight end on the old connections. If the new connections are not ready within
  /// `APNsConfiguration.rotationTimeMax`, requests wait for them. Until there is a token of the new key, the old key is used.
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
