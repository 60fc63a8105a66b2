// Runs the gateway, from the first connection to the last settlement.

import Console
import Dispatching
import Foundation
import HTTPSurface
import Logging
import Providers
import Queue
import Runtime
import ServiceLifecycle
import Settings
import Synchronization

/// Opens the outbox, starts a lane for every app and provider, and drains at shutdown.
final class GatewayService: Service {
  /// Why the gateway cannot run.
  enum Failure: Error, CustomStringConvertible {
    case schemaIsOutdated(missing: [String])
    case notDrained

    var description: String {
      switch self {
      case .schemaIsOutdated(let missing):
        "the database lacks \(missing.joined(separator: ", ")) of this version's schema: run `push-gateway migrate` first"
      case .notDrained:
        "the database could not be reached while shutting down: some results were not written, and those pushes may be repeated"
      }
    }
  }

  /// The services that run beside the dispatcher.
  private struct BackgroundServices {
    var receipts: [ReceiptCollector] = []
    var credentials: CredentialWatcher?

    func start() async {
      for collector in receipts { await collector.start() }
      await credentials?.start()
    }

    func stop() async {
      for collector in receipts { await collector.stop() }
      await credentials?.stop()
    }
  }

  private let configuration: GatewayConfiguration
  private let source: ConfigurationFile?
  private let logger: Logger
  private let heartbeat: Heartbeat
  private let threshold: LogThreshold?
  private let notifier = ServiceNotifier()
  /// The metrics, which scrapes read.
  let metrics: Metrics
  private let dispatcher = Mutex<Dispatcher?>(nil)
  private let credentials = Mutex<CredentialWatcher?>(nil)

  /// - Parameters:
  ///   - source: the source of `configuration`, which is read again when it or its credentials change; nil: never.
  ///   - threshold: the log level, which follows `log.level`.
  ///   - heartbeat: watches the event loop.
  init(
    configuration: GatewayConfiguration, source: ConfigurationFile? = nil, logger: Logger,
    threshold: LogThreshold? = nil, heartbeat: Heartbeat = Heartbeat()
  ) {
    self.configuration = configuration
    self.source = source
    self.logger = logger
    self.threshold = threshold
    self.heartbeat = heartbeat
    metrics = Metrics(lanes: configuration.apps.flatMap { app in app.providers.map { (app.name, $0) } })
  }

  /// Reads the configuration again now, for the settings that change without a restart: credentials and `log.level`.
  func reloadCredentials() async {
    await credentials.withLock { $0 }?.reload()
  }

  /// The result of `/readyz`.
  func readiness() async -> Readiness {
    guard let dispatcher = dispatcher.withLock({ $0 }) else {
      return .notReady(["the gateway is starting, or has stopped"])
    }
    // Asked first, because a loop that hangs would not answer the question either.
    let silent = await heartbeat.silentLoops()
    guard silent.isEmpty else { return .notReady(silent.map { "the event loop \($0) does not answer" }) }
    let obstacles = await dispatcher.obstacles
    return obstacles.isEmpty ? .ready : .notReady(obstacles)
  }

  /// The lines in the body of `/readyz` about providers that do not answer.
  func remarks() async -> [String] {
    guard let dispatcher = dispatcher.withLock({ $0 }), await heartbeat.silentLoops().isEmpty else { return [] }
    return await dispatcher.unansweredLanes
  }

  func run() async throws {
    let loop = EventLoop(name: "gateway")
    heartbeat.watch(loop)
    defer {
      dispatcher.withLock { $0 = nil }  // a stopped loop must not be asked
      heartbeat.unwatch(loop)
      loop.stop()
    }
    let outbox = PostgresOutbox(
      options: PostgresOutbox.Options(
        url: configuration.databaseURL, name: ProcessInfo.processInfo.hostName, version: GatewayVersion.current),
      loop: loop, logger: logger)
    let relay = OutboxEventRelay()
    var factory = ProviderFactory(
      caFile: configuration.caFile, privacy: configuration.secretPrivacy, outbox: outbox, logger: logger)
    let planned = try configuration.apps.map { app in
      (app, try app.providers.map { kind in (kind, try factory.make(kind, for: app)) })
    }

    do {
      try await cancelWhenGracefulShutdown { [configuration, logger] in
        try await Self.waitForSchema(configuration.databaseURL, loop, logger)
      }
    } catch is CancellationError {}  // stopped while it waits
    guard !Self.isToStop else { return }
    await outbox.open { relay.hear($0) }
    await cancelWhenGracefulShutdown { await relay.waitUntilAvailable() }
    guard !Self.isToStop else { return await outbox.close() }

    var lanes: [DispatcherLane] = []
    var credentialed: [CredentialWatcher.Lane] = []
    for (app, providers) in planned {
      let registered = try await untilAnswered {
        () async throws(OutboxError) -> [Int16] in
        try await outbox.register(
          app: app.name, ringSeconds: app.ringSeconds, escalateAfterSeconds: app.escalateAfterSeconds,
          atLeastOnce: app.isAtLeastOnce, providers: app.providers.map(\.rawValue),
          missedCalls: app.missedCalls?.rawValue ?? "default", voipCancel: app.hasVoIPCancel)
        var ids: [Int16] = []
        for (kind, _) in providers { ids.append(try await outbox.register(lane: kind.rawValue, app: app.name)) }
        return ids
      }
      guard let registered else { return await outbox.close() }
      for (id, (kind, lane)) in zip(registered, providers) {
        lanes.append(DispatcherLane(LaneConfiguration(id: id, app: app, kind, lane), provider: lane.provider))
        credentialed.append(CredentialWatcher.Lane(app: app.name, kind: kind, provider: lane))
      }
    }
    let dispatcher = Dispatcher(store: outbox, lanes: lanes, permit: factory.permit, loop: loop, logger: logger)
    await dispatcher.start()
    relay.connect(dispatcher)
    self.dispatcher.withLock { $0 = dispatcher }
    var background = BackgroundServices()
    for (index, (lane, made)) in zip(lanes.map(\.configuration), credentialed).enumerated() {
      guard let receiptAfter = lane.receiptAfter, let read = made.provider.readReceipts else { continue }
      background.receipts.append(
        ReceiptCollector(
          app: lane.app, receiptAfter: receiptAfter, store: outbox, loop: loop, logger: logger, read: read
        ) { await dispatcher.hear(receipts: $0, of: index) })
    }
    if let source {
      let watcher = CredentialWatcher(
        source: source, configuration: configuration, factory: factory, lanes: credentialed, threshold: threshold,
        logger: logger)
      background.credentials = watcher
      credentials.withLock { $0 = watcher }
    }
    await background.start()
    metrics.connect(
      MetricsObserver(dispatcher: dispatcher, outbox: outbox, receipts: background.receipts),
      OutboxGaugeCache(url: configuration.databaseURL, logger: logger))
    let names = lanes.map { "\($0.configuration.app)/\($0.configuration.provider.rawValue)" }.joined(separator: " ")
    logger.notice("The gateway serves", metadata: ["lanes": "\(names)"])
    notifier.notify(.ready, status: "serving \(names)")

    try? await gracefulShutdown()
    await background.stop()
    try await shutDown(dispatcher, outbox)
  }

  /// Whether to stop, also because another service failed and cancelled this one.
  private static var isToStop: Bool { Task.isShuttingDownGracefully || Task.isCancelled }

  /// Repeats a query every second while the error is a temporary one: a lock, a broken connection, a server that
  /// restarts. Returns nil if the gateway must stop.
  private func untilAnswered<Answer: Sendable>(
    _ ask: () async throws(OutboxError) -> Answer
  ) async throws -> Answer? {
    while !Self.isToStop {
      do throws(OutboxError) {
        return try await ask()
      } catch {
        guard [.unavailable, .answerLost, .locked, .transient].contains(error.code) else { throw error }
        logger.warning(
          "The database does not accept the configuration yet; trying again", metadata: ["reason": "\(error)"])
      }
      try? await cancelWhenGracefulShutdown { try await Task.sleep(for: .seconds(1)) }
    }
    return nil
  }

  private func shutDown(_ dispatcher: Dispatcher, _ outbox: PostgresOutbox) async throws {
    notifier.notify(.stopping, status: "draining")
    logger.notice("The gateway drains", metadata: ["seconds": .stringConvertible(configuration.drainSeconds)])
    let isDrained = await dispatcher.drain(until: outbox.loop.now + .seconds(Int64(configuration.drainSeconds)))
    await outbox.close(retires: isDrained)
    await metrics.disconnect()
    let counters = await dispatcher.counters
    logger.notice(
      "The gateway has stopped",
      metadata: [
        "claimed": .stringConvertible(counters.claimed),
        "delivered": .stringConvertible(counters.deliveries(.delivered)),
        "dead": .stringConvertible(counters.deliveries(.dead)),
        "expired": .stringConvertible(counters.deliveries(.expired)),
        "released": .stringConvertible(counters.released), "parked": .stringConvertible(counters.parked),
        "lost_leases": .stringConvertible(counters.lostLeases),
        "ambiguous": .stringConvertible(counters.ambiguous),
      ])
    if !isDrained { throw Failure.notDrained }
  }

  /// Refuses a database without this version's schema, before any listener is opened. If the database does not answer
  /// within two seconds, returns without a result: `run` waits for it.
  ///
  /// - Throws: `Failure.schemaIsOutdated`; or the database's error if it is not a temporary one.
  static func refuseOldSchema(of url: String) async throws {
    let (result, report) = AsyncThrowingStream<Void, any Error>.makeStream()
    Task {
      let loop = EventLoop(name: "schema")
      defer { loop.stop() }
      do {
        try await checkSchema(url, loop)
        report.finish()
      } catch {
        report.finish(throwing: (error as? PostgresError)?.isTransient == true ? nil : error)
      }
    }
    Task {
      try await Task.sleep(for: .seconds(2))
      report.finish()
    }
    for try await _ in result {}
  }

  private static func checkSchema(_ url: String, _ loop: EventLoop) async throws {
    let connection = try await PostgresConnection.connect(to: url, applicationName: "push-gateway start", on: loop)
    let pending = try await Migrator().pending(on: connection)
    await connection.close()
    guard pending.isEmpty else { throw Failure.schemaIsOutdated(missing: pending.titles) }
  }

  /// Returns once the database can be reached and has this version's schema.
  private static func waitForSchema(_ url: String, _ loop: EventLoop, _ logger: Logger) async throws {
    while true {
      do {
        return try await checkSchema(url, loop)
      } catch let error as PostgresError where error.isTransient {
        logger.warning("The database cannot be reached; waiting for it", metadata: ["reason": "\(error)"])
        try await Task.sleep(for: .seconds(1))
      }
    }
  }
}
