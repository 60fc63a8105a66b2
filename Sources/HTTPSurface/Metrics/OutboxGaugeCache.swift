// The metrics' own eye on the database: one connection, one look at a time.

package import Logging
import Queue
import Runtime

/// Looks at the database over a connection of its own, and remembers for a while what it saw.
///
/// However many ask, one looks at a time; and it looks at most a tenth of the time, so that a large backlog is not made to
/// suffer from being counted.
package actor OutboxGaugeCache {
  nonisolated let loop: EventLoop
  package nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  /// What was seen is good for so long, or ten times as long as it took to see it.
  static let freshness = Nanoseconds.seconds(1)
  /// Longest wait for a look at the database. A caller that has waited that long gets the previous result.
  static let patience = Nanoseconds.seconds(2)
  /// After this what was seen is no longer told.
  static let memory = Nanoseconds.seconds(15)

  private static let observe = PostgresStatement(
    name: "observe", sql: "select what, app, provider, kind, state, value from push.observe()")

  /// By itself: when that table is full nothing else can be seen.
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

  /// Closes the connection and ends the loop; nobody may ask any more.
  nonisolated func close() async {
    await database.close()
    loop.stop()
  }

  /// What the database looks like, or looked a moment ago; nil while it cannot be seen.
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

  /// How full Postgres's table of locks was when it was looked at last; nil if that is long ago.
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
