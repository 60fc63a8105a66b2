// The outbox in memory: the behaviour of the SQL functions of schema push as gateways see it, for simulations and for
// tests without Postgres.
//
// One struct with value semantics and no clock: the database's time is an argument of every statement. A statement is
// executed at one moment. The exception is a claim, which holds its gateway's row from its beginning to its end
// (`beginClaim`, `finish`), as the lock of push.claim does. Floors, receipts, tallies and data for operators alone are
// not stored.
//
// Commits. Sessions of gateways commit asynchronously. Every statement appends a commit to a log; a durable commit
// makes all earlier commits durable, as in a write-ahead log; `crash(keeping:)` undoes the others. Tables that are
// unlogged in Postgres (`life`, `reclaimed`) are empty after a crash.

public import Queue

/// The contents of one database: calls, deliveries and gateways.
public struct MemoryOutbox: Sendable {
  /// Codes that no rule of SQL uses, and times that are part of the contract.
  public enum Limits {
    /// A gateway without a heartbeat for longer than this is declared dead.
    public static let silence: Int64 = 3_000_000
    /// Deliveries with less time left are not claimed.
    public static let slack: Int64 = 300_000
    /// Deliveries with more time left are background.
    public static let near: Int64 = 600_000_000
    public static let cancelLife: Int64 = 60_000_000
    public static let missedCallLife: Int64 = 4 * 3_600_000_000
    /// An expired invite gets a next channel if more than this time was left.
    public static let fallBackLeft: Int64 = 2_000_000
    /// A delivery that this many gateways had when they died is not tried again.
    public static let crashes: Int16 = 3
  }

  public var apps: [String: MemoryApp] = [:]
  public var lanes: [Int16: MemoryLane] = [:]
  public var poison: [DeliveryKey: MemoryPoison] = [:]

  public internal(set) var calls = JournaledTable<Int64, MemoryCall>()
  public internal(set) var deliveries = JournaledTable<DeliveryKey, MemoryDelivery>()
  /// Every final state that was ever written for a delivery: more than one is an error.
  public internal(set) var history = JournaledTable<DeliveryKey, [MemoryHistory]>()
  public internal(set) var gateways = JournaledTable<Int32, MemoryGateway>()
  public internal(set) var jobs = JournaledTable<String, MemoryJob>()

  /// `push.life`: nil means the empty table; false means that commits may have been lost and nothing may be claimed
  /// yet.
  public internal(set) var isLifeOpen: Bool?
  /// `push.reclaimed`: the gateways that were asked to reclaim in this life, and whether they have confirmed it.
  public internal(set) var reclaimed: [Int32: Bool] = [:]
  /// Notifications since `readNotifications`.
  var notifications: [MemoryNotification] = []

  // A crash does not reset sequences.
  var nextCall: Int64 = 1
  var nextGateway: Int32 = 1

  /// Number of statements that hold a share lock on a gateway's row.
  var sharedLocks: [Int32: Int] = [:]
  /// Rows picked by running claims: other statements skip them.
  var locked: Set<DeliveryKey> = []

  private var commits: [Commit] = []

  public init() {
    for (name, every) in Self.jobIntervals {
      jobs[name] = MemoryJob(name: name, everyMicroseconds: every, dueAt: 0)
    }
    isLifeOpen = nil
    commit(isDurable: true)
  }

  // MARK: - Commits

  /// The ends of all journals when a statement was committed.
  private struct Commit {
    var calls, deliveries, history, gateways, jobs: Int
  }

  /// Number of commits that a crash could lose.
  public var unsyncedCommits: Int { max(0, commits.count - 1) }

  /// Ends a statement.
  ///
  /// - Parameter isDurable: whether it waits until it and all earlier commits are on the disk.
  mutating func commit(isDurable: Bool = false) {
    let here = Commit(
      calls: calls.position, deliveries: deliveries.position, history: history.position, gateways: gateways.position,
      jobs: jobs.position)
    commits.append(here)
    if isDurable { sync() }
  }

  /// All commits reach the disk.
  public mutating func sync() { sync(upTo: unsyncedCommits) }

  /// The first `count` commits that a crash could lose reach the disk, as the WAL writer flushes them from time to
  /// time.
  public mutating func sync(upTo count: Int) {
    let count = min(count, unsyncedCommits)
    guard !commits.isEmpty else { return }
    commits.removeFirst(count)
    guard let base = commits.first else { return }
    calls.forget(before: base.calls)
    deliveries.forget(before: base.deliveries)
    history.forget(before: base.history)
    gateways.forget(before: base.gateways)
    jobs.forget(before: base.jobs)
  }

  /// The server crashes, or a standby without the last commits takes its place.
  ///
  /// - Parameter count: number of non-durable commits that survive: the oldest ones.
  /// - Returns: the deliveries with a lost change.
  @discardableResult
  public mutating func crash(keeping count: Int) -> Set<DeliveryKey> {
    let kept = commits.prefix(min(count, unsyncedCommits) + 1)
    var lost: Set<DeliveryKey> = []
    if let last = kept.last {
      calls.rollBack(to: last.calls)
      lost = deliveries.rollBack(to: last.deliveries).union(history.rollBack(to: last.history))
      gateways.rollBack(to: last.gateways)
      jobs.rollBack(to: last.jobs)
    }
    commits = Array(kept)
    sync()
    isLifeOpen = nil
    reclaimed = [:]
    notifications = []
    sharedLocks = [:]
    locked = []
    return lost
  }

  /// The server is stopped and started: nothing is lost, but every session ends.
  public mutating func restart() {
    sync()
    notifications = []
    sharedLocks = [:]
    locked = []
  }

  /// The deliveries whose row or history was changed since the last call.
  public mutating func takeTouched() -> [DeliveryKey] { deliveries.takeTouched() + history.takeTouched() }

  // MARK: - Notifications

  /// Notifications since the last call.
  public mutating func readNotifications() -> [MemoryNotification] {
    defer { notifications = [] }
    return notifications
  }

  mutating func ringBell() {
    if notifications.last != .bell { notifications.append(.bell) }
  }

  // MARK: - Queries

  /// Whether the call rings; a missing call does not.
  func isRinging(_ outboxID: Int64) -> Bool { calls[outboxID]?.state == .ringing }

  /// Keys of deliveries that satisfy a condition, in the order of locks: ascending.
  func keys(where condition: (MemoryDelivery) -> Bool) -> [DeliveryKey] {
    deliveries.values.lazy.filter(condition).map(\.key).sorted {
      ($0.outboxID, $0.pushNumber) < ($1.outboxID, $1.pushNumber)
    }
  }

  /// A delivery ends.
  mutating func finish(
    _ row: MemoryDelivery, _ outcome: DeliveryOutcome, owner: Int32? = nil, attempts: Int32? = nil, status: UInt16 = 0,
    reason: String?, wasSent: Bool = false, at now: DatabaseTime
  ) {
    deliveries[row.key] = nil
    let entry = MemoryHistory(
      key: row.key, kind: row.kind, lane: row.lane, userID: row.userID, token: row.token, outcome: outcome,
      owner: owner, attempts: attempts ?? row.attempt, status: status, reason: reason, wasSent: wasSent,
      finishedAt: now)
    history[row.key] = (history[row.key] ?? []) + [entry]
  }
}
