// Keeps one database served: starts a service for each list of apps, hands over to it, and drains the former one.

import HTTPSurface
import Logging
import Queue
import Runtime
import Settings
import Synchronization

/// Serves one database. An actor on the gateway's event loop.
actor DatabaseSupervisor {
  /// What its owner is told.
  enum Event: Sendable {
    /// Its first service claims deliveries.
    case serves
    /// The first service cannot start, for a reason that waiting does not change. It is tried again, and may fail again.
    case failed(database: String?, any Error)
  }

  /// The wait after a start that failed.
  static let retryInterval = Duration.seconds(5)
  /// How long requests in flight of a former service may take. They end sooner: each has its own deadline.
  private static let handOverTime = Nanoseconds.seconds(120)
  /// Minimum time between two changes; of those in between, the newest is taken over.
  ///
  /// A gateway declares a crashed one dead only after four seconds of its own life (push.beat). If each lived shorter, because many
  /// changes follow each other, the calls of the crashed one would wait for the last change. And each that drains has connections of
  /// its own, for ten seconds if a provider hangs.
  static let changeInterval = Nanoseconds.seconds(6)

  nonisolated let loop: EventLoop
  nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  nonisolated let database: GatewayConfiguration.Database
  private let make: @Sendable ([ServedApp]) -> DatabaseService
  private let metrics: Metrics
  private let gauges: OutboxGaugeCache
  private let logger: Logger
  private let report: @Sendable (Event) -> Void

  private var serving: DatabaseService?
  /// When the last change was taken over.
  private var tookOverAt = Instant(nanoseconds: .min)
  private var starting: Task<Void, Never>?
  /// The former services that drain, by their numbers.
  private var handOvers: [Int: Task<Void, Never>] = [:]
  private var isStopping = false

  /// - Parameters:
  ///   - make: makes a service for a list of apps, with a number of its own.
  ///   - report: called from the loop.
  init(
    _ database: GatewayConfiguration.Database, loop: EventLoop, metrics: Metrics, logger: Logger,
    make: @escaping @Sendable ([ServedApp]) -> DatabaseService, report: @escaping @Sendable (Event) -> Void
  ) {
    self.database = database
    self.loop = loop
    self.metrics = metrics
    self.logger = logger
    self.make = make
    self.report = report
    gauges = OutboxGaugeCache(url: database.url, logger: logger)
  }

  /// The service that claims; nil until the first one does.
  var current: DatabaseService? { serving }

  /// Serves these apps as soon as the database is available. The former service continues until then, and drains after it.
  func serve(_ apps: [ServedApp]) async {
    guard !isStopping else { return }
    let former = starting
    former?.cancel()
    starting = Task { [weak self] in
      await former?.value
      await self?.start(apps)
    }
  }

  private func start(_ apps: [ServedApp]) async {
    let wait = tookOverAt + Self.changeInterval - loop.now
    if wait > .zero { try? await Task.sleep(for: .milliseconds(wait.milliseconds)) }
    while !Task.isCancelled {
      let service = make(apps)
      do {
        try await service.start()
        return didStart(service)
      } catch is CancellationError {
        return
      } catch {
        if Task.isCancelled { return }
        logger.error("The database cannot be served; it is tried again", metadata: ["reason": "\(error)"])
        if serving == nil { report(.failed(database: database.name, error)) }
        try? await Task.sleep(for: Self.retryInterval)
      }
    }
  }

  private func didStart(_ service: DatabaseService) {
    let former = serving
    serving = service
    if let observer = service.observer { metrics.connect(observer, gauges, database: database.name) }
    if let former {
      guard !isStopping else { return }  // `shutDown` ends both
      tookOverAt = loop.now
      handOvers[former.number] = Task {
        let (_, totals) = await end(former, by: loop.now + Self.handOverTime)
        logger.notice("The former configuration is no longer served", metadata: totals)
        handOvers[former.number] = nil
      }
    } else {
      report(.serves)
    }
  }

  private func end(
    _ service: DatabaseService, by deadline: Instant
  ) async -> (isDrained: Bool, totals: Logger.Metadata) {
    let result = await service.drain(until: deadline)
    if let observer = service.observer { await metrics.disconnect(observer, database: database.name) }
    return result
  }

  /// Ends everything. Returns whether all outcomes were written.
  func shutDown(by deadline: Instant) async -> Bool {
    isStopping = true
    starting?.cancel()
    // First the service that claims: a start may notice its cancellation only when its database answers.
    let current = serving
    var isDrained = true
    if let current { isDrained = await stop(current, by: deadline) }
    await starting?.value
    if let serving, serving !== current { isDrained = await stop(serving, by: deadline) && isDrained }
    for handOver in handOvers.values { await handOver.value }
    await gauges.close()
    return isDrained
  }

  private func stop(_ service: DatabaseService, by deadline: Instant) async -> Bool {
    let (isDrained, totals) = await end(service, by: deadline)
    logger.notice("The gateway has stopped", metadata: totals)
    return isDrained
  }
}
