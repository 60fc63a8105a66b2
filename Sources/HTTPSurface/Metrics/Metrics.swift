// The metrics: copies of the counters from the gateway's event loop and a query of each database, written as text.

package import Dispatching
import Logging
import Providers
import Queue
package import Runtime
import Settings
import Synchronization
package import Webhooks

/// Answers scrapes, from the start of the process to its end.
package final class Metrics: Sendable {
  /// What is known of one database.
  private struct Database {
    /// The value of the label `database`; nil if there is only one database, which gets no label.
    let name: String?
    /// Queries it; nil while it is not served.
    var gauges: OutboxGaugeCache?
    /// Its dispatchers, the newest last. The others drain. There is none before the gateway serves it and after its end: then there
    /// is no event loop to ask.
    var observers: [MetricsObserver] = []
    /// What dispatchers that have ended had counted.
    var ended: MetricsSnapshot?
    /// The last sum of all.
    var snapshot: MetricsSnapshot
  }

  private struct State {
    var databases: [Database]
    var lanes: [LaneName]
    var scrapes = 0
    var listeners: [ListenerCredentials] = []
    var afterScrapes: [CheckedContinuation<Void, Never>] = []
  }

  /// A database as a scrape shows it.
  private struct View {
    var name: String?
    var snapshot: MetricsSnapshot
    var sight: OutboxGauges?
    var lockTableUsed: Double?
  }

  /// The API's counters. They exist even if the API is off.
  package let api = APICounters()

  /// The counters of webhooks.
  package let webhooks = WebhookCounters()

  private let clock: any GatewayClock
  private let state: Mutex<State>

  /// - Parameters:
  ///   - lanes: the configured lanes, in the dispatchers' order. Their series exist from the start.
  ///   - databases: the names of the databases; one without a name is the only one.
  package init(
    lanes: [LaneName], databases: [String?] = [nil],
    clock: any GatewayClock = SystemClock()
  ) {
    self.clock = clock
    state = Mutex(
      State(
        databases: databases.map { Database(name: $0, snapshot: MetricsSnapshot(lanes: lanes)) }, lanes: lanes))
  }

  /// Adds the listeners with TLS, whose certificates' expiry is shown.
  package func watch(_ listeners: [ListenerCredentials]) { state.withLock { $0.listeners = listeners } }

  /// The lanes have changed, with the configuration.
  package func setLanes(_ lanes: [LaneName]) { state.withLock { $0.lanes = lanes } }

  /// A dispatcher serves a database: from now on its counters and the database are shown.
  ///
  /// - Parameter gauges: queries the database; the same object for all dispatchers of a database.
  package func connect(_ observer: MetricsObserver, _ gauges: OutboxGaugeCache, database name: String? = nil) {
    state.withLock { state in
      guard let index = state.databases.firstIndex(where: { $0.name == name }) else { return }
      state.databases[index].observers.append(observer)
      state.databases[index].gauges = gauges
    }
  }

  /// A dispatcher has ended. Its counters stay. Returns when no scrape asks its event loop any more.
  package func disconnect(_ observer: MetricsObserver, database name: String? = nil) async {
    let last = await observer.snapshot()
    state.withLock { state in
      guard let index = state.databases.firstIndex(where: { $0.name == name }) else { return }
      state.databases[index].observers.removeAll { $0 === observer }
      var ended = last
      ended.isDatabaseReady = false
      if let earlier = state.databases[index].ended { ended.addCounters(of: earlier) }
      state.databases[index].ended = ended
      if state.databases[index].observers.isEmpty { state.databases[index].gauges = nil }
    }
    await withCheckedContinuation { continuation in
      let isOver = state.withLock { state in
        if state.scrapes > 0 { state.afterScrapes.append(continuation) }
        return state.scrapes == 0
      }
      if isOver { continuation.resume() }
    }
  }

  /// All series as text.
  ///
  /// - Parameter readiness: what `/readyz` would answer now.
  func exposition(_ format: ExpositionFormat, readiness: Readiness) async -> [UInt8] {
    let views = await look()
    let (lanes, listeners) = state.withLock { ($0.lanes, $0.listeners) }
    var writer = ExpositionWriter(format)
    for view in views {
      writer.database = view.name
      writer.write(attemptsAndDeliveries: view.snapshot.counters)
      writer.write(apps: view.snapshot)
      writer.write(lanes: view.snapshot)
      writer.write(outbox: view.snapshot)
      writer.write(isDatabaseReady: view.snapshot.isDatabaseReady)
      if let sight = view.sight { writer.write(sight, lanes) }
      if let lockTableUsed = view.lockTableUsed { writer.write(lockTableUsed: lockTableUsed) }
    }
    writer.database = nil
    // The first served database has the state of the connections, which all of them share.
    if let view = views.first(where: { $0.sight != nil }) ?? views.first {
      writer.write(providers: view.snapshot, wallMilliseconds: clock.wallMilliseconds())
    }
    var seen: Set<String> = []
    writer.write(webhooks.snapshot, apps: lanes.map(\.app).filter { seen.insert($0).inserted })
    writer.write(api.snapshot)
    writer.write(listeners: listeners)
    writer.write(isReady: readiness == .ready, version: GatewayVersion.current)
    if let process = ProcessStatistics() { writer.write(process) }
    return writer.finish()
  }

  /// Looks at every database at the same time, so that one that does not answer delays no other.
  private func look() async -> [View] {
    let databases = state.withLock { state in
      state.scrapes += 1
      return state.databases
    }
    defer {
      let waiting = state.withLock { state in
        state.scrapes -= 1
        guard state.scrapes == 0 else { return [CheckedContinuation<Void, Never>]() }
        defer { state.afterScrapes = [] }
        return state.afterScrapes
      }
      for continuation in waiting { continuation.resume() }
    }
    return await withTaskGroup { group in
      for (index, database) in databases.enumerated() { group.addTask { (index, await Self.look(at: database)) } }
      var views = databases.map { View(name: $0.name, snapshot: $0.snapshot) }
      for await (index, view) in group { views[index] = view }
      state.withLock { state in
        for (index, view) in views.enumerated() { state.databases[index].snapshot = view.snapshot }
      }
      return views
    }
  }

  private static func look(at database: Database) async -> View {
    guard let observer = database.observers.last, let gauges = database.gauges else {
      var snapshot = database.ended ?? database.snapshot
      snapshot.isDatabaseReady = false
      return View(name: database.name, snapshot: snapshot)
    }
    let sight = await gauges.sight()
    let lockTableUsed = await gauges.lockTableUsed()
    var snapshot = await observer.snapshot()
    for earlier in database.observers.dropLast() { snapshot.addCounters(of: await earlier.snapshot()) }
    if let ended = database.ended { snapshot.addCounters(of: ended) }
    return View(name: database.name, snapshot: snapshot, sight: sight, lockTableUsed: lockTableUsed)
  }
}
