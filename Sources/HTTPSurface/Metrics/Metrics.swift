// The metrics: a copy of the counters from the gateway's event loop and a query of the database, written as text.

import Dispatching
import Logging
package import Providers
import Queue
package import Runtime
import Settings
import Synchronization

/// Answers scrapes, from the start of the process to its end.
package final class Metrics: Sendable {
  private struct Sources {
    var observer: MetricsObserver
    var database: OutboxGaugeCache
  }

  private struct State {
    /// Nil while the gateway does not run. Then there is no event loop to ask.
    var sources: Sources?
    var scrapes = 0
    var listeners: [ListenerCredentials] = []
    var onLastScrape: CheckedContinuation<Void, Never>?
    var snapshot: MetricsSnapshot
  }

  /// The API's counters. They exist even if the API is off.
  package let api = APICounters()

  private let lanes: [(app: String, provider: ProviderKind)]
  private let clock: any GatewayClock
  private let state: Mutex<State>

  /// - Parameter lanes: the configured lanes, in the dispatcher's order. Their series exist from the start.
  package init(lanes: [(app: String, provider: ProviderKind)], clock: any GatewayClock = SystemClock()) {
    self.lanes = lanes
    self.clock = clock
    state = Mutex(State(snapshot: MetricsSnapshot(lanes: lanes)))
  }

  /// Adds the listeners with TLS, whose certificates' expiry is shown.
  package func watch(_ listeners: [ListenerCredentials]) { state.withLock { $0.listeners = listeners } }

  /// The gateway has started: from now on its counters and the database are shown.
  package func connect(_ observer: MetricsObserver, _ database: OutboxGaugeCache) {
    state.withLock { $0.sources = Sources(observer: observer, database: database) }
  }

  /// The gateway's event loop is about to stop. Later scrapes show the last counters.
  package func disconnect() async {
    let sources = state.withLock { state in
      defer { state.sources = nil }
      return state.sources
    }
    guard let sources else { return }
    await withCheckedContinuation { continuation in
      let isOver = state.withLock { state in
        if state.scrapes > 0 { state.onLastScrape = continuation }
        return state.scrapes == 0
      }
      if isOver { continuation.resume() }
    }
    await remember(sources.observer.snapshot())
    await sources.database.close()
  }

  /// All series as text.
  ///
  /// - Parameter readiness: what `/readyz` would answer now.
  func exposition(_ format: ExpositionFormat, readiness: Readiness) async -> [UInt8] {
    let (sight, lockTableUsed) = await look()
    let (snapshot, listeners) = state.withLock { ($0.snapshot, $0.listeners) }
    var writer = ExpositionWriter(format)
    writer.write(attemptsAndDeliveries: snapshot.counters)
    writer.write(apps: snapshot)
    writer.write(lanes: snapshot, wallMilliseconds: clock.wallMilliseconds())
    writer.write(outbox: snapshot)
    writer.write(api.snapshot)
    if let sight { writer.write(sight, lanes) }
    if let lockTableUsed { writer.write(lockTableUsed: lockTableUsed) }
    writer.write(listeners: listeners)
    writer.write(isReady: readiness == .ready, version: GatewayVersion.current)
    if let process = ProcessStatistics() { writer.write(process) }
    return writer.finish()
  }

  /// Updates the snapshot if the gateway runs. Returns the results of the database's queries.
  private func look() async -> (OutboxGauges?, lockTableUsed: Double?) {
    let sources = state.withLock { state in
      if state.sources != nil { state.scrapes += 1 }
      return state.sources
    }
    guard let sources else { return (nil, nil) }
    let sight = await sources.database.sight()
    let lockTableUsed = await sources.database.lockTableUsed()
    await remember(sources.observer.snapshot())
    let onLastScrape = state.withLock { state in
      state.scrapes -= 1
      guard state.scrapes == 0 else { return nil as CheckedContinuation<Void, Never>? }
      defer { state.onLastScrape = nil }
      return state.onLastScrape
    }
    onLastScrape?.resume()
    return (sight, lockTableUsed)
  }

  private func remember(_ snapshot: MetricsSnapshot) { state.withLock { $0.snapshot = snapshot } }
}
