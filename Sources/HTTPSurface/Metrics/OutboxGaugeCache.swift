// Queries the outbox for the metrics, over one connection, and keeps the result for a while.

package import Logging
import Queue
import Runtime

/// Queries the database over a connection of its own, and caches the result.
///
/// At most one query runs at a time, however many scrapes wait for it. Queries take at most a tenth of the time, so
/// that counting a large backlog does not slow it down.
package actor OutboxGaugeCache {
  nonisolated let loop: EventLoop
  package nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  /// A result is used for this long, or for ten times as long as the query took, if that is more.
  static let freshness = Nanoseconds.seconds(1)
  /// Longest wait for a look at the database. A caller that has waited that long gets the previous result.
  static let patience = Nanoseconds.seconds(2)
  /// After this time a result is no longer shown.
  static let memory = Nanoseconds.seconds(15)

  private static let observe = PostgresStatement(
    name: "observe", sql: "select what, app, provider, kind, state, value from push.observe()")

  /// A statement of its own: when the table of locks is full, `observe` fails.
  private static let lookAtLocks = PostgresStatement(name: "lock_table_used", sql: "select push.lock_table_used()")

  private let database: PostgresPool
  private var lastLocks: (used: Double, at: Instant)?
  private var last: (sight: OutboxGauges, at: Instant, cost: Nanoseconds)?
  private var isLooking = false
  private var waiting: [CheckedContinuation<Void, Never>] = []

  package init(url: String, logger: Logger) {
    loop = EventLoop(name: "metrics")
    database = PostgresPool(
      url: url, loop: loop, timeoutSeconds: 5, logger: logger, applicationName: "push-gateway metrics",
      connectionsMax: 1)
  }

  /// Closes the connection and stops the event loop. No method may be called afterwards.
  package nonisolated func close() async {
    await database.close()
    loop.stop()
  }

  /// The current or cached result; nil if the database cannot be queried.
  func sight() async -> OutboxGauges? {
    if let last, loop.now < last.at + max(Self.freshness, last.cost * 10) { return last.sight }
    if !isLooking {
      isLooking = true
      Task { await look() }
    }
    await withCheckedContinuation { waiting.append($0) }
    guard let last, loop.now < last.at + max(Self.memory, last.cost * 10) else { return nil }
    return last.sight
  }

  /// The used part of Postgres's table of locks when it was last queried; nil if that was more than `memory` ago.
  func lockTableUsed() -> Double? {
    guard let lastLocks, loop.now < lastLocks.at + Self.memory else { return nil }
    return lastLocks.used
  }

  private func look() async {
    let began = loop.now
    let timer = loop.schedule(at: began + Self.patience) { [weak self] in
      self?.assumeIsolated { $0.answer() }
    }
    if let result = try? await database.query(Self.lookAtLocks) {
      lastLocks = (result.double(0, 0), loop.now)
    }
    if let result = try? await database.query(Self.observe) {
      last = (OutboxGauges(result), loop.now, loop.now - began)
    }
    timer.cancel()
    isLooking = false
    answer()
  }

  private func answer() {
    let waiting = waiting
    self.waiting = []
    for continuation in waiting { continuation.resume() }
  }
}
