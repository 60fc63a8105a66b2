// The outbox in memory: the semantics of the SQL functions of schema push as far as gateways can tell, for simulations and for
// tests that need no Postgres.
//
// One struct with value semantics and no clock: the database's time is an argument of every statement. A statement is executed
// as a whole, at one moment, but for a claim, which holds its gateway's row from its beginning to its end (`beginClaim`,
// `finish`), as the lock of push.claim does. Floors, receipts, tallies and what only ops look at are not kept.
//
// Commits. Sessions of gateways commit asynchronously: every statement appends a commit to a log, a durable commit makes all
// before it durable (that is how a write-ahead log works), and `crash(keeping:)` takes back the others. Tables that are
// unlogged in Postgres (`life`, `reclaimed`) are empty after a crash.

public import Queue

/// Everything one database knows of calls, deliveries and gateways.
public struct MemoryOutbox: Sendable {
  /// Codes of what no rule of SQL is about, and times that are part of the contract.
  public enum Limits {
    /// A gateway that has not beaten for longer is declared dead.
    public static let silence: Int64 = 3_000_000
    /// Nothing is claimed that has less time left.
    public static let slack: Int64 = 300_000
    /// What has more time left than this is background.
    public static let near: Int64 = 600_000_000
    public static let cancelLife: Int64 = 60_000_000
    public static let missedCallLife: Int64 = 4 * 3_600_000_000
    /// An invite that expired falls back if more than this was left.
    public static let fallBackLeft: Int64 = 2_000_000
    /// A delivery that was being handled when so many gateways died is not tried again.
    public static let crashes: Int16 = 3
  }

  public var apps: [String: MemoryApp] = [:]
  public var lanes: [Int16: MemoryLane] = [:]
  public var poison: [DeliveryKey: MemoryPoison] = [:]

  public internal(set) var calls = JournaledTable<Int64, MemoryCall>()
  public internal(set) var deliveries = JournaledTable<DeliveryKey, MemoryDelivery>()
  /// Every terminal state that was ever written for a delivery: more than one is a fault.
  public internal(set) var history = JournaledTable<DeliveryKey, [MemoryHistory]>()
  public internal(set) var gateways = JournaledTable<Int32, MemoryGateway>()
  public internal(set) var jobs = JournaledTable<String, MemoryJob>()

  /// `push.life`: nil is the empty table; false: commits may have been lost, and nothing may be claimed yet.
  public internal(set) var isLifeOpen: Bool?
  /// `push.reclaimed`: the gateways that were asked to reclaim in this life, and whether they have said that they did.
  public internal(set) var reclaimed: [Int32: Bool] = [:]
  /// What was said since `readNotifications`.
  var notifications: [MemoryNotification] = []

  // Sequences are never taken back.
  var nextCall: Int64 = 1
  var nextGateway: Int32 = 1

  /// How many statements hold a gateway's row for share.
  var sharedLocks: [Int32: Int] = [:]
  /// What claims that are running have picked: others pass it by.
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

  /// Where every journal ended when a statement was committed.
  private struct Commit {
    var calls, deliveries, history, gateways, jobs: Int
  }

  /// How many commits a crash could lose.
  public var unsyncedCommits: Int { max(0, commits.count - 1) }

  /// Ends a statement.
  ///
  /// - Parameter isDurable: it waits until everything up to it is on the disk.
  mutating func commit(isDurable: Bool = false) {
    let here = Commit(
      calls: calls.position, deliveries: deliveries.position, history: history.position, gateways: gateways.position,
      jobs: jobs.position)
    commits.append(here)
    if isDurable { sync() }
  }

  /// Everything that was committed reaches the disk.
  public mutating func sync() { sync(upTo: unsyncedCommits) }

  /// The first `count` of the commits that could be lost reach the disk, as the WAL writer brings them there now and then.
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
  /// - Parameter count: how many of the commits that are not durable survive all the same: the oldest ones.
  /// - Returns: the deliveries about which something was lost.
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

  /// The deliveries whose row or history was changed since the last time.
  public mutating func takeTouched() -> [DeliveryKey] { deliveries.takeTouched() + history.takeTouched() }

  // MARK: - Notifications

  /// What was said since the last time.
  public mutating func readNotifications() -> [MemoryNotification] {
    defer { notifications = [] }
    return notifications
  }

  mutating func ringBell() {
    if notifications.last != .bell { notifications.append(.bell) }
  }

  // MARK: - Small questions

  /// Whether the call rings; a call that is not there does not.
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
