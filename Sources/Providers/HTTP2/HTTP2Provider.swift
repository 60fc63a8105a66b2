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
      permits: permits, clock: clock, loop: loop, logger: logger)
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

  public func preview(_ request: PushRequest) -> PushPreview? { PushPreview(sender.format, request, loop: loop) }

  public var condition: ProviderCondition { sender.condition }

  public func withdraw(_ tags: Set<UInt64>) {
    sender.withdraw(tags)
  }

  /// Sends with the tokens of another key as soon as the provider has accepted one. No push fails because of the change.
  ///
  /// New connections are opened, and the key is tried there with a push to a made-up token. When it is accepted, new requests and
  /// waiting requests use these connections; requests in flight end on the old ones. Until then the former key is used, if that was
  /// ever accepted (`HTTP2Sender+Credentials.swift`).
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
