// One database, served for one list of apps: its outbox, its dispatcher, its receipts. After a change of the apps, another one
// takes over and this one drains, as if another replica had started.

import Console
import Dispatching
import Foundation
import HTTPSurface
import Logging
import Providers
import Queue
import Runtime
import Settings
import Synchronization

/// Serves the apps of one database, from the first connection to the last settlement.
final class DatabaseService: Sendable {
  /// What runs once the database is available.
  private struct Running {
    var dispatcher: Dispatcher
    var receipts: [ReceiptCollector]
    var observer: MetricsObserver
  }

  let database: GatewayConfiguration.Database
  /// The number of the dispatcher.
  let number: Int
  let apps: [ServedApp]
  private let outbox: PostgresOutbox
  private let relay = OutboxEventRelay()
  private let settings: DispatcherSettings
  private let permits: SendPermits
  private let tokenStores: TokenStores
  private let logger: Logger
  private let running = Mutex<Running?>(nil)

  /// - Parameters:
  ///   - number: unique in the process.
  ///   - logger: has the database's name in its metadata, if it has one.
  init(
    _ database: GatewayConfiguration.Database, number: Int, apps: [ServedApp], settings: DispatcherSettings,
    permits: SendPermits, tokenStores: TokenStores, loop: EventLoop, logger: Logger
  ) {
    self.database = database
    self.number = number
    self.apps = apps
    self.settings = settings
    self.permits = permits
    self.tokenStores = tokenStores
    self.logger = logger
    outbox = PostgresOutbox(
      options: PostgresOutbox.Options(
        url: database.url, name: ProcessInfo.processInfo.hostName, version: GatewayVersion.current),
      loop: loop, logger: logger)
  }

  /// The dispatcher; nil until `start` has returned.
  var dispatcher: Dispatcher? { running.withLock { $0?.dispatcher } }

  /// Why nothing is sent or recorded, one sentence each; empty if all is well, nil while there is no dispatcher.
  var obstacles: [String]? {
    get async {
      guard let dispatcher else { return nil }
      return await dispatcher.obstacles + (await outbox.obstacles)
    }
  }

  /// The counters for scrapes; nil while there is no dispatcher.
  var observer: MetricsObserver? { running.withLock { $0?.observer } }

  /// Waits for the database, and begins to claim.
  ///
  /// - Throws: `CancellationError` if the task was cancelled, `SchemaCheck.Failure` if the schema is too old, `MigrationError` if
  ///   it is too new, or a lasting error of the database.
  func start() async throws {
    try await SchemaCheck.wait(for: database.url, outbox.loop, logger)
    await outbox.open { [relay] in relay.hear($0) }
    do {
      await relay.waitUntilAvailable()
      try await serve()
    } catch {
      await outbox.close()
      throw error
    }
  }

  private func serve() async throws {
    var lanes: [DispatcherLane] = []
    for served in apps {
      let ids = try await register(served)
      for (id, account) in zip(ids, served.accounts) {
        lanes.append(
          DispatcherLane(
            LaneConfiguration(id: id, app: served.app, account),
            provider: account.shared.share(of: number), board: account.board))
      }
    }
    try Task.checkCancellation()
    tokenStores.add(outbox, database: database.name, number: number)
    var settings = settings
    settings.number = number
    let dispatcher = Dispatcher(
      store: outbox, lanes: lanes, permits: permits, settings: settings, loop: outbox.loop, logger: logger)
    await dispatcher.start()
    relay.connect(dispatcher)
    let receipts = collectors(of: lanes.map(\.configuration), dispatcher)
    running.withLock {
      $0 = Running(
        dispatcher: dispatcher, receipts: receipts,
        observer: MetricsObserver(dispatcher: dispatcher, outbox: outbox, receipts: receipts))
    }
    for collector in receipts { await collector.start() }
  }

  private func collectors(of lanes: [LaneConfiguration], _ dispatcher: Dispatcher) -> [ReceiptCollector] {
    zip(lanes, apps.flatMap(\.accounts)).enumerated().compactMap { index, pair in
      let (lane, account) = pair
      guard let receiptAfter = lane.receiptAfter, let read = account.lane.readReceipts else { return nil }
      return ReceiptCollector(
        app: lane.app, receiptAfter: receiptAfter, store: outbox, loop: outbox.loop, logger: logger, read: read
      ) { await dispatcher.hear(receipts: $0, of: index) }
    }
  }

  /// Writes an app and its lanes into the database. Returns the ids of the lanes.
  private func register(_ served: ServedApp) async throws -> [Int16] {
    let app = served.app
    return try await untilAnswered { () async throws(OutboxError) -> [Int16] in
      try await self.outbox.register(
        app: app.name, ringSeconds: app.ringSeconds, escalateAfterSeconds: app.escalateAfterSeconds,
        atLeastOnce: app.isAtLeastOnce, providers: app.providers.map(\.rawValue),
        known: ProviderKind.allCases.map(\.rawValue), missedCalls: app.missedCalls?.rawValue ?? "default",
        voipCancel: app.hasVoIPCancel, messageText: app.sendsMessageText,
        quota: AppQuota(
          calls: app.quota.callsPerMinute, notifications: app.quota.notificationsPerMinute,
          recipients: app.quota.recipientsPerMinute))
      var ids: [Int16] = []
      for lane in served.lanes {
        ids.append(
          try await self.outbox.register(
            lane: lane.provider.rawValue, service: lane.service?.rawValue ?? "", app: lane.app))
      }
      return ids
    }
  }

  /// Repeats a query every second while the error is a temporary one: a lock, a broken connection, a server that
  /// restarts.
  private func untilAnswered<Answer: Sendable>(
    _ ask: () async throws(OutboxError) -> Answer
  ) async throws -> Answer {
    while true {
      try Task.checkCancellation()
      do throws(OutboxError) {
        return try await ask()
      } catch {
        guard [.unavailable, .answerLost, .locked, .tooSlow, .transient].contains(error.code) else { throw error }
        logger.warning(
          "The database does not accept the configuration yet; trying again", metadata: ["reason": "\(error)"])
      }
      try await Task.sleep(for: .seconds(1))
    }
  }

  /// Stops claiming, lets requests in flight finish until `deadline`, returns the other deliveries, writes all outcomes, and closes
  /// the connections.
  ///
  /// - Returns: whether everything was written, and what the service has done, for the log.
  func drain(until deadline: Instant) async -> (isDrained: Bool, totals: Logger.Metadata) {
    guard let running = running.withLock({ $0 }) else { return (true, [:]) }
    for collector in running.receipts { await collector.stop() }
    let isDrained = await running.dispatcher.drain(until: deadline)
    tokenStores.remove(number: number)
    await outbox.close(retires: isDrained)
    let counters = await running.dispatcher.counters
    let totals: Logger.Metadata = [
      "claimed": .stringConvertible(counters.claimed),
      "delivered": .stringConvertible(counters.deliveries(.delivered)),
      "dead": .stringConvertible(counters.deliveries(.dead)),
      "expired": .stringConvertible(counters.deliveries(.expired)),
      "released": .stringConvertible(counters.released), "parked": .stringConvertible(counters.parked),
      "lost_leases": .stringConvertible(counters.lostLeases),
      "ambiguous": .stringConvertible(counters.ambiguous),
    ]
    return (isDrained, totals)
  }
}
