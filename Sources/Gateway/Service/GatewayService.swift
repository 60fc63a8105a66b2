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

/// Serves every database, and drains at shutdown.
///
/// All databases share the connections to the providers, their tokens, rates and circuits. Apart from that they do not depend on
/// each other: each has its own connections, claims, lease and permit to send.
final class GatewayService: Service {
  /// Why the gateway has stopped with an error.
  enum Failure: Error, CustomStringConvertible {
    case notDrained

    var description: String {
      "some results could not be written while shutting down, and those pushes may be repeated: the log says whether the database could not be reached or refused them"
    }
  }

  private let configuration: GatewayConfiguration
  private let dispatching: DispatcherSettings
  private let source: ConfigurationFile?
  private let logger: Logger
  private let heartbeat: Heartbeat
  private let threshold: LogThreshold?
  private let notifier = ServiceNotifier()
  /// The metrics, which scrapes read.
  let metrics: Metrics
  /// The apps of Matrix pushers, which the API asks for.
  let apiApps: APIApps
  private let supervisors = Mutex<[DatabaseSupervisor]>([])
  private let watcher = Mutex<ConfigurationWatcher?>(nil)

  /// - Parameters:
  ///   - source: the source of `configuration`, which is read again when it or its credentials change; nil: never.
  ///   - threshold: the log level, which follows `log.level`.
  ///   - dispatching: the times of dispatchers.
  ///   - heartbeat: watches the event loop.
  init(
    configuration: GatewayConfiguration, source: ConfigurationFile? = nil, logger: Logger,
    threshold: LogThreshold? = nil, dispatching: DispatcherSettings = DispatcherSettings(),
    heartbeat: Heartbeat = Heartbeat()
  ) {
    self.configuration = configuration
    self.dispatching = dispatching
    self.source = source
    self.logger = logger
    self.threshold = threshold
    self.heartbeat = heartbeat
    apiApps = APIApps(configuration.apps)
    metrics = Metrics(
      lanes: configuration.apps.flatMap(\.lanes), databases: configuration.databases.map(\.name))
  }

  /// Reads the configuration again now, for the settings that change without a restart: apps, credentials and `log.level`.
  func reload() async {
    await watcher.withLock { $0 }?.reload()
  }

  // MARK: - Health

  /// The result of `/readyz`: ready if it serves a database.
  func readiness() async -> Readiness {
    let supervisors = supervisors.withLock { $0 }
    guard !supervisors.isEmpty else { return .notReady(["the gateway is starting, or has stopped"]) }
    // Asked first, because a loop that hangs would not answer the question either.
    let silent = await heartbeat.silentLoops()
    guard silent.isEmpty else { return .notReady(silent.map { "the event loop \($0) does not answer" }) }
    var obstacles: [String] = []
    for supervisor in supervisors {
      let found = await Self.obstacles(of: supervisor)
      if found.isEmpty { return .ready }
      obstacles += found
    }
    return .notReady(obstacles)
  }

  /// The lines in the body of `/readyz` about databases that are not served, providers that do not answer, and credentials that are refused.
  func remarks() async -> [String] {
    let supervisors = supervisors.withLock { $0 }
    guard !supervisors.isEmpty, await heartbeat.silentLoops().isEmpty else { return [] }
    var remarks: [String] = []
    if supervisors.count > 1 { for supervisor in supervisors { remarks += await Self.obstacles(of: supervisor) } }
    for supervisor in supervisors {
      guard let dispatcher = await supervisor.current?.dispatcher else { continue }
      return remarks + (await dispatcher.laneRemarks)
    }
    return remarks
  }

  private static func obstacles(of supervisor: DatabaseSupervisor) async -> [String] {
    let name = supervisor.database.name.map { "database \($0): " } ?? ""
    guard let obstacles = await supervisor.current?.obstacles else {
      return [name + (name.isEmpty ? "the gateway is starting, or has stopped" : "it has not been served yet")]
    }
    return obstacles.map { name + $0 }
  }

  // MARK: - Life

  func run() async throws {
    let loop = EventLoop(name: "gateway")
    heartbeat.watch(loop)
    defer {
      supervisors.withLock { $0 = [] }  // a stopped loop must not be asked
      watcher.withLock { $0 = nil }
      heartbeat.unwatch(loop)
      loop.stop()
    }
    let factory = ProviderFactory(
      caFile: configuration.caFile, privacy: configuration.secretPrivacy, loop: loop, logger: logger)
    let accounts = LaneAccounts(factory, logger: logger)
    let apps = try await accounts.make(for: configuration.apps)

    let (events, report) = AsyncStream<DatabaseSupervisor.Event>.makeStream()
    let supervisors = supervise(factory, loop) { report.yield($0) }
    self.supervisors.withLock { $0 = supervisors }
    for supervisor in supervisors { await supervisor.serve(apps) }
    let webhooks = WebhookService(configuration, counters: metrics.webhooks, logger: logger)
    defer { webhooks.loop.stop() }
    if let source { await watch(source, accounts, supervisors, webhooks) }
    var failure: (any Error)?
    do {
      try await cancelWhenGracefulShutdown { try await self.waitUntilServing(events, count: supervisors.count) }
    } catch is CancellationError {  // stopped while it waits
    } catch {
      failure = error
    }
    report.finish()  // a database that is tried again and again would fill it
    if failure == nil, !Self.isToStop {
      await webhooks.use(accounts.apps.map(\.app))
      let names = await accounts.apps.flatMap(\.lanes).map(\.description)
        .joined(separator: " ")
      logger.notice("The gateway serves", metadata: ["lanes": "\(names)"])
      notifier.notify(.ready, status: "serving \(names)")
      try? await gracefulShutdown()
    }
    await watcher.withLock { $0 }?.stop()
    let webhooksStop = Task { await webhooks.stop(by: loop.now + .seconds(Int64(configuration.drainSeconds))) }
    do {
      try await shutDown(supervisors, loop)
    } catch {
      failure = failure ?? error
    }
    await webhooksStop.value
    if let failure { throw failure }
  }

  /// Watches the configuration from now on, also while no database answers.
  private func watch(
    _ source: ConfigurationFile, _ accounts: LaneAccounts, _ supervisors: [DatabaseSupervisor],
    _ webhooks: WebhookService
  ) async {
    let watcher = ConfigurationWatcher(
      source: source, configuration: configuration, accounts: accounts, threshold: threshold, apiApps: apiApps,
      logger: logger, didReload: { await webhooks.use($0.map(\.app)) }
    ) { [metrics] apps in
      metrics.setLanes(apps.flatMap(\.lanes))
      for supervisor in supervisors { await supervisor.serve(apps) }
    }
    self.watcher.withLock { $0 = watcher }
    await watcher.start()
  }

  private func supervise(
    _ factory: ProviderFactory, _ loop: EventLoop, report: @escaping @Sendable (DatabaseSupervisor.Event) -> Void
  ) -> [DatabaseSupervisor] {
    let counter = DispatcherNumbers()
    return configuration.databases.map { database in
      var logger = logger
      if let name = database.name { logger[metadataKey: "database"] = "\(name)" }
      let (databaseLogger, permits, tokenStores) = (logger, factory.permits, factory.tokenStores)
      let dispatching = dispatching
      return DatabaseSupervisor(
        database, loop: loop, metrics: metrics, logger: logger,
        make: { apps in
          DatabaseService(
            database, number: counter.next(), apps: apps, settings: dispatching, permits: permits,
            tokenStores: tokenStores, loop: loop, logger: databaseLogger)
        }, report: report)
    }
  }

  /// Returns when the first database is served.
  ///
  /// - Throws: the error of the only database, or of the last of several, if none can be served.
  private func waitUntilServing(_ events: AsyncStream<DatabaseSupervisor.Event>, count: Int) async throws {
    var failed: Set<String?> = []
    for await event in events {
      switch event {
      case .serves: return
      case .failed(let database, let error):
        failed.insert(database)
        if failed.count >= count { throw error }
      }
    }
    throw CancellationError()
  }

  /// Whether to stop, also because another service failed and cancelled this one.
  private static var isToStop: Bool { Task.isShuttingDownGracefully || Task.isCancelled }

  private func shutDown(_ supervisors: [DatabaseSupervisor], _ loop: EventLoop) async throws {
    notifier.notify(.stopping, status: "draining")
    logger.notice("The gateway drains", metadata: ["seconds": .stringConvertible(configuration.drainSeconds)])
    let deadline = loop.now + .seconds(Int64(configuration.drainSeconds))
    let isDrained = await withTaskGroup { group in
      for supervisor in supervisors { group.addTask { await supervisor.shutDown(by: deadline) } }
      return await group.reduce(true) { $0 && $1 }
    }
    if !isDrained { throw Failure.notDrained }
  }
}

/// Numbers the dispatchers of a process.
private final class DispatcherNumbers: Sendable {
  private let last = Mutex(0)

  func next() -> Int {
    last.withLock { last in
      defer { last += 1 }
      return last
    }
  }
}
