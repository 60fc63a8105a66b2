// The outbox in memory: the behaviour of the SQL functions of schema push as gateways see it, for simulations and for
// tests without Postgres.
//
// One struct with value semantics and no clock: the database's time is an argument of every statement. A statement is
// executed at one moment. Exceptions are a claim, which holds its gateway's row and the rows that it has picked from its
// beginning to its end, and follow-ups, which hold their calls, as the locks of the SQL functions do. Floors, receipts,
// tallies and data for operators alone are not stored.
//
// Commits. Every statement appends a commit to a log. A durable commit waits until it and all earlier commits are on the
// disk, as in a write-ahead log; `crash(keeping:)` undoes the others. A standby lags behind the disk; `failOver(keeping:)`
// also undoes what it has not got, and sets the sequence of call ids back.

internal import PushModel
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
    /// For how long others come first after a rest for all.
    public static let othersFirst: Int64 = 100_000
    /// How long a ring that was handed on in a round rests at least.
    public static let rest: Int64 = 250_000
    public static let cancelLife: Int64 = 60_000_000
    public static let missedCallLife: Int64 = 4 * 3_600_000_000
    /// A call that rings so long after its deadline is missed.
    public static let missedGrace: Int64 = 2_000_000
    /// When a note is taken again whose call was locked.
    public static let lockedCall: Int64 = 100_000
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
  public internal(set) var notes = JournaledTable<Int64, MemoryNote>()

  /// Notifications since `readNotifications`.
  var notifications: [MemoryNotification] = []

  // A crash does not reset sequences.
  var nextCall: Int64 = 1
  var nextGateway: Int32 = 1
  var nextNote: Int64 = 1

  /// Number of statements that hold a share lock on a gateway's row.
  var sharedLocks: [Int32: Int] = [:]
  /// Rows picked by running claims: other statements skip them, or wait.
  var locked: Set<DeliveryKey> = []
  /// Notes taken by running follow-ups, and their calls: others skip them, and backends wait.
  var takenNotes: Set<Int64> = []
  var lockedCalls: Set<Int64> = []

  /// The commits since the first one that may be lost, and the one before.
  private var commits: [Commit] = []
  /// The index of the last commit that is on the disk.
  private var synced = 0

  public init() {
    for (name, every) in Self.jobIntervals {
      jobs[name] = MemoryJob(name: name, everyMicroseconds: every, dueAt: 0)
    }
    commit(isDurable: true)
  }

  // MARK: - Commits

  /// The ends of all journals when a statement was committed.
  private struct Commit {
    var calls, deliveries, history, gateways, jobs, notes: Int
  }

  /// Number of commits that a crash could lose.
  public var unsyncedCommits: Int { commits.count - 1 - synced }
  /// Number of commits that are on the disk and that a fail-over could lose.
  public var unreplicatedCommits: Int { synced }

  /// Ends a statement.
  ///
  /// - Parameter isDurable: whether it waits until it and all earlier commits are on the disk.
  mutating func commit(isDurable: Bool = false) {
    let here = Commit(
      calls: calls.position, deliveries: deliveries.position, history: history.position, gateways: gateways.position,
      jobs: jobs.position, notes: notes.position)
    commits.append(here)
    if isDurable || commits.count == 1 { sync() }
  }

  /// All commits reach the disk.
  public mutating func sync() { synced = commits.count - 1 }

  /// The first `count` commits that a crash could lose reach the disk, as the WAL writer flushes them from time to
  /// time.
  public mutating func sync(upTo count: Int) { synced += min(count, unsyncedCommits) }

  /// The first `count` commits that a fail-over could lose reach the standby.
  public mutating func replicate(upTo count: Int) {
    let count = min(count, unreplicatedCommits)
    commits.removeFirst(count)
    synced -= count
    guard let base = commits.first else { return }
    calls.forget(before: base.calls)
    deliveries.forget(before: base.deliveries)
    history.forget(before: base.history)
    gateways.forget(before: base.gateways)
    jobs.forget(before: base.jobs)
    notes.forget(before: base.notes)
  }

  /// The server crashes.
  ///
  /// - Parameter count: number of commits that survive of those that are not on the disk: the oldest ones.
  /// - Returns: the deliveries with a lost change.
  @discardableResult
  public mutating func crash(keeping count: Int) -> Set<DeliveryKey> {
    rollBack(to: synced + min(count, unsyncedCommits))
  }

  /// A standby takes the server's place. The sequence of call ids continues after the calls that it knows.
  ///
  /// - Parameter count: number of commits that it has of those that it may lack: the oldest ones.
  /// - Returns: the deliveries with a lost change.
  public mutating func failOver(keeping count: Int) -> Set<DeliveryKey> {
    let lost = rollBack(to: min(count, unreplicatedCommits))
    nextCall = (calls.rows.keys.max() ?? 0) + 1
    return lost
  }

  /// Undoes all commits behind this one.
  private mutating func rollBack(to index: Int) -> Set<DeliveryKey> {
    let last = commits[index]
    calls.rollBack(to: last.calls)
    let lost = deliveries.rollBack(to: last.deliveries).union(history.rollBack(to: last.history))
    gateways.rollBack(to: last.gateways)
    jobs.rollBack(to: last.jobs)
    notes.rollBack(to: last.notes)
    commits.removeSubrange((index + 1)...)
    sync()
    endSessions()
    return lost
  }

  /// The server is stopped: nothing is lost, but every session ends.
  public mutating func stop() {
    sync()
    endSessions()
  }

  private mutating func endSessions() {
    notifications = []
    sharedLocks = [:]
    locked = []
    takenNotes = []
    lockedCalls = []
  }

  /// The deliveries whose row or history was changed since the last call.
  public mutating func takeTouched() -> [DeliveryKey] { deliveries.takeTouched() + history.takeTouched() }

  /// The notes that were written or taken since the last call.
  public mutating func takeTouchedNotes() -> [Int64] { notes.takeTouched() }

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

  /// Keys of deliveries that satisfy a condition, in the order of locks: ascending.
  func keys(where condition: (MemoryDelivery) -> Bool) -> [DeliveryKey] {
    deliveries.values.lazy.filter(condition).map(\.key).sorted {
      ($0.outboxID, $0.pushNumber) < ($1.outboxID, $1.pushNumber)
    }
  }

  /// `push.pushes_of`: the pushes of a call, owed and finished.
  public func pushes(of call: MemoryCall) -> [MemoryPush] {
    call.pushes.compactMap { key in
      if let row = deliveries[key] {
        return MemoryPush(
          key: key, kind: PushKind(rawValue: row.kind), channel: row.channel, userID: row.userID, reason: nil,
          mayHaveArrived: row.mayHaveArrived, deadlineAt: row.deadlineAt)
      }
      guard let end = history[key]?.last else { return nil }
      // If a gateway settled the push, its last attempt counts only if the request was sent. Otherwise every attempt may
      // have been sent.
      let mayHaveLeft = end.wasSent || end.attempts > (end.owner == nil ? 0 : 1)
      return MemoryPush(
        key: key, kind: PushKind(rawValue: end.kind), channel: MemoryChannel(lane: end.lane, token: end.token),
        userID: end.userID, outcome: end.outcome, reason: end.reason,
        mayHaveArrived: mayHaveLeft && (end.outcome != .dead || end.refusals < end.attempts),
        deadlineAt: end.deadlineAt)
    }
  }

  // MARK: - The ends of deliveries

  /// A delivery ends. What a provider has accepted is delivered.
  mutating func finish(
    _ row: MemoryDelivery, _ outcome: DeliveryOutcome, owner: Int32? = nil, attempts: Int32? = nil,
    refusals: Int32 = 0, reason: String?, wasSent: Bool = false, at now: DatabaseTime
  ) {
    deliveries[row.key] = nil
    var (outcome, reason) = (outcome, reason)
    if let acceptedAt = row.acceptedAt, outcome != .delivered, outcome != .deliveredLate {
      (outcome, reason) = (acceptedAt > row.deadlineAt ? .deliveredLate : .delivered, "Hedged")
    }
    let entry = MemoryHistory(
      key: row.key, kind: row.kind, lane: row.lane, userID: row.userID, token: row.token, outcome: outcome,
      owner: owner, attempts: attempts ?? row.attempt, refusals: row.refusals + refusals, reason: reason,
      wasSent: wasSent, deadlineAt: row.deadlineAt, finishedAt: now)
    history[row.key] = (history[row.key] ?? []) + [entry]
  }

  /// Why an invite is void, as `push.settle` says.
  func voidReason(_ row: MemoryDelivery) -> String {
    guard let call = calls[row.key.outboxID] else { return "CallEnded" }
    switch call.state {
    case .ringing: return call.declined[row.userID] == "busy" ? "UserBusy" : "UserDeclined"
    case .ended: return "CallEnded"
    case .answered: return "CallAnswered"
    case .missed: return "CallMissed"
    }
  }

  /// Writes down that something follows. Part of the transaction of the cause.
  mutating func note(_ outboxID: Int64, _ cause: MemoryNote.Cause, at now: DatabaseTime) {
    notes[nextNote] = MemoryNote(outboxID: outboxID, cause: cause, dueAt: now)
    nextNote += 1
  }
}
