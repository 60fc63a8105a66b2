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
    settings.connection.session.peerStreamsMaxBeforeSettings = 1
    return settings
  }
}

/// One app's connections to APNs, production and sandbox.
public actor APNsProvider: PushProvider {
  public nonisolated let loop: EventLoop
  public nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  private let tokens: any ProviderTokenSource
  private let logger: Logger
  private let sender: APNsSender

  /// - Parameters:
  ///   - tokens: shared by every provider that uses the same key.
  ///   - logger: carries the app's name; gets no token and no payload.
  public init(
    _ configuration: APNsConfiguration, tokens: any ProviderTokenSource, loop: EventLoop, logger: Logger,
    clock: any GatewayClock = SystemClock()
  ) {
    self.loop = loop
    self.tokens = tokens
    self.logger = logger
    sender = APNsSender(configuration, clock: clock, loop: loop, logger: logger)
  }

  public func start(report: @escaping @Sendable (PushProviderEvent) -> Void) {
    sender.report = report
    sender.fetchToken = { [weak self] refused in
      guard let self else { return }
      Task { await self.fetchToken(replacing: refused) }
    }
    sender.start()
  }

  public func send(_ batch: [PushRequest]) {
    sender.send(batch)
  }

  public func shutDown(by deadline: Instant) async {
    await withCheckedContinuation { continuation in
      sender.shutDown(by: deadline) { continuation.resume() }
    }
  }

  private func fetchToken(replacing refused: ProviderToken?) async {
    do {
      sender.tokenArrived(try await tokens.token(replacing: refused))
    } catch {
      logger.error("no APNs provider token", metadata: ["error": "\(error)"])
      sender.tokenFailed()
    }
  }
}
