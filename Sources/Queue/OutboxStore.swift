// The outbox as the dispatcher sees it. `PostgresOutbox` is the real one; the simulation has its own.

public import PushModel
public import Runtime

/// How many deliveries of one lane may be claimed now.
public struct LaneAllowance: Sendable, Equatable {
  /// `push.lane.id`.
  public var lane: Int16
  /// At least 1.
  public var limit: Int32
  /// How many of these may have more than ten minutes left; at most `limit`.
  public var background: Int32

  /// - Parameter background: `limit` if not given.
  public init(lane: Int16, limit: Int32, background: Int32? = nil) {
    self.lane = lane
    self.limit = limit
    self.background = background ?? limit
  }
}

/// The limits of one claim.
public struct ClaimLimits: Sendable, Equatable {
  /// Maximum number of rows of all lanes. Lanes are searched in the order of their allowances until that many rows are found.
  public var inAll: Int32
  /// Maximum number of these whose deadline is more than ten minutes away. No ring's is.
  public var background: Int32

  public init(inAll: Int32 = .max, background: Int32 = .max) {
    self.inAll = inAll
    self.background = background
  }
}

/// The outcome of one delivery, to be written. It is a class because it passes through several queues.
public final class Settlement: Sendable {
  public let delivery: Delivery
  /// The lease under which it is written: that of `delivery`, or a later one by which it was reclaimed.
  public let lease: DeliveryLease
  /// Where its row was last seen.
  public let place: DeliveryPlace
  public let outcome: DeliveryOutcome
  /// Number of attempts in all, including those in memory.
  public let attempts: Int32
  /// HTTP status of the last answer; 0 for none.
  public let status: UInt16
  /// The reason, in the provider's word or ours; nil for plain success.
  public let reason: String?
  public let providerMessageID: String?
  /// When the last request was sent; nil if none was.
  public let sentAt: Instant?
  /// When its answer came; nil if there was none.
  public let answeredAt: Instant?
  /// The failed tries before the last one that were made under this lease.
  public let failures: [FailedAttempt]
  /// How long from now the receipt of `providerMessageID` can be read; nil if there is none.
  public let receiptAfter: Nanoseconds?

  /// - Parameters:
  ///   - lease: that of `delivery` if not given.
  ///   - place: that of `delivery` if not given.
  public init(
    _ delivery: Delivery, lease: DeliveryLease? = nil, place: DeliveryPlace? = nil, outcome: DeliveryOutcome,
    attempts: Int32, status: UInt16 = 0,
    reason: String? = nil, providerMessageID: String? = nil, sentAt: Instant? = nil, answeredAt: Instant? = nil,
    failures: [FailedAttempt] = [], receiptAfter: Nanoseconds? = nil
  ) {
    self.delivery = delivery
    self.lease = lease ?? delivery.lease
    self.place = place ?? delivery.place
    self.outcome = outcome
    self.attempts = attempts
    self.status = status
    self.reason = reason
    self.providerMessageID = providerMessageID
    self.sentAt = sentAt
    self.answeredAt = answeredAt
    self.failures = failures
    self.receiptAfter = receiptAfter
  }
}

/// A delivery whose next try is too far away to keep it in memory.
public struct Parking: Sendable {
  public var lease: DeliveryLease
  public var attempts: Int32
  /// When to try again, from now.
  public var delay: Nanoseconds
  /// Why the last attempt failed.
  public var reason: String
  /// The tries made under this lease, all of which failed.
  public var failures: [FailedAttempt]

  public init(
    lease: DeliveryLease, attempts: Int32, delay: Nanoseconds, reason: String, failures: [FailedAttempt] = []
  ) {
    self.lease = lease
    self.attempts = attempts
    self.delay = delay
    self.reason = reason
    self.failures = failures
  }
}

/// A token that its provider called dead.
public struct TokenInvalidation: Sendable {
  /// `push.lane.id`: which app's token at which provider.
  public var lane: Int16
  public var token: ArraySlice<UInt8>
  /// When it died according to the provider, in milliseconds since 1970. A token registered later is not affected.
  public var since: Int64?
  public var reason: String

  public init(lane: Int16, token: ArraySlice<UInt8>, since: Int64?, reason: String) {
    self.lane = lane
    self.token = token
    self.since = since
    self.reason = reason
  }
}

/// An APNs token that was registered for the wrong environment.
public struct EnvironmentCorrection: Sendable {
  /// `push.lane.id`.
  public var lane: Int16
  public var token: ArraySlice<UInt8>
  /// The environment it works in.
  public var environment: PushEnvironment

  public init(lane: Int16, token: ArraySlice<UInt8>, environment: PushEnvironment) {
    self.lane = lane
    self.token = token
    self.environment = environment
  }
}

/// A lane whose provider suddenly calls so many tokens dead that they are quarantined instead of deleted.
public struct InvalidationHold: Sendable {
  /// `push.lane.id`.
  public var lane: Int16
  /// Tokens of the lane that were marked dead within this time live again.
  public var window: Nanoseconds
  /// What the gateway saw, for ops.
  public var note: String

  public init(lane: Int16, window: Nanoseconds, note: String) {
    self.lane = lane
    self.window = window
    self.note = note
  }
}

/// Why a call of the store failed.
public struct OutboxError: Error, Sendable, CustomStringConvertible {
  public enum Code: Sendable, Equatable {
    /// The statement was not sent: nothing was changed.
    case unavailable
    /// The connection broke, or no answer came in time. The statement may have been executed or not.
    case answerLost
    /// Another transaction held a lock for longer than `lock_timeout` (SQLSTATE 55P03), usually on one of the rows. Nothing was
    /// changed.
    case locked
    /// The statement reached its time limit, or someone cancelled it (SQLSTATE 57014). Nothing was changed. With fewer rows it may
    /// end in time.
    case tooSlow
    /// The server refused the statement for another temporary reason (deadlock, restart, read-only server). Nothing was changed.
    case transient
    /// The server refused the data of the statement (SQLSTATE class 22, 23 or 54). It would refuse the same rows again.
    case refusedRows
    /// The server refused the statement for another permanent reason, such as a missing privilege. No row is at fault.
    case refused
  }

  public var code: Code
  public var description: String

  public init(_ code: Code, _ description: String) {
    self.code = code
    self.description = description
  }
}

/// What the store reports to its owner, on the store's loop.
public enum OutboxEvent: Sendable {
  /// Something may be ready to be claimed. A hint: polling is the guarantee.
  case bell
  /// The connections that claim and settle are up now. The owner should beat.
  case available
  /// The store cannot be reached; calls fail until `available`.
  case unavailable(reason: String)
  /// A hint that these calls have ended. The owner must look it up.
  case mayHaveEnded([Int64])
  /// A hint that many calls have ended. The owner must look it up.
  case manyMayHaveEnded
  /// Whether hints are heard from now on.
  case listening(Bool)
  /// Ops have resumed the lane's invalidation: dead tokens are deleted again. A hint, for a counter.
  case invalidationResumed(lane: Int16)
}

/// The answer to a beat.
public struct Beat: Sendable, Equatable {
  /// False if this gateway was declared dead. Its claims are free for others then, and it must register again.
  public var isAlive: Bool
  /// Whether the server may have lost commits since the last reclaim; see `OutboxStore.reclaim`.
  public var mustReclaim: Bool

  public init(isAlive: Bool, mustReclaim: Bool) {
    self.isAlive = isAlive
    self.mustReclaim = mustReclaim
  }
}

/// The result of a claim.
public struct Claimed: Sendable {
  public var deliveries: [Delivery]
  /// Rows that this version cannot read, such as those of an unknown kind. They are ours and must be returned.
  public var unreadable: [DeliveryLease]
  /// Rows whose call was deleted by a transaction that did not see them. They are ours, and are deleted once they are returned.
  public var orphans: [DeliveryLease]

  public init(deliveries: [Delivery], unreadable: [DeliveryLease] = [], orphans: [DeliveryLease] = []) {
    self.deliveries = deliveries
    self.unreadable = unreadable
    self.orphans = orphans
  }
}

/// The identity of a delivery: the call's row, the number of the push within the call, and when the delivery's row was made. The
/// numbers alone may repeat: after an asynchronous fail-over, a restore or a TRUNCATE a sequence may return them for another call.
public struct DeliveryKey: Hashable, Sendable {
  public var outboxID: Int64
  public var pushNumber: Int32
  /// `push.delivery.created_at`: microseconds since 1970 on the database's clock.
  public var createdAtMicroseconds: Int64

  public init(outboxID: Int64, pushNumber: Int32, createdAtMicroseconds: Int64 = 0) {
    self.outboxID = outboxID
    self.pushNumber = pushNumber
    self.createdAtMicroseconds = createdAtMicroseconds
  }

  /// Hashes the two numbers as one word, because keys are hashed several times for each delivery. They seldom repeat.
  public func hash(into hasher: inout Hasher) { hasher.combine(outboxID &* 1_000_003 &+ Int64(pushNumber)) }
}

/// One page of the rows that are claimed in our name.
public struct ClaimedPage: Sendable {
  public var leases: [DeliveryLease]
  /// Where the next page begins; nil after the last page.
  public var next: Int64?

  public init(leases: [DeliveryLease], next: Int64?) {
    self.leases = leases
    self.next = next
  }
}

/// A delivery that is ours again.
public struct Reclaimed: Sendable, Equatable {
  /// Its index among the keys that were asked for.
  public var index: Int
  public var place: DeliveryPlace

  public init(index: Int, place: DeliveryPlace) {
    self.index = index
    self.place = place
  }
}

/// Claims and settles deliveries for one gateway, which is one life of one process. Every call takes a batch. A claimed delivery is
/// ours until it is settled, parked, released or forgotten, or until this gateway is declared dead.
public protocol OutboxStore: Sendable {
  /// Registers a new gateway: a new owner of claims. The numbers of its claims start again.
  func register() async throws(OutboxError)
  /// Confirms that this gateway lives.
  /// - Parameter mayReap: whether to declare gateways dead that were silent for too long, and free their claims.
  func beat(mayReap: Bool) async throws(OutboxError) -> Beat

  /// Claims at most the allowed number of each lane, earliest deadline first. Lanes with rings come before lanes without; otherwise
  /// lanes come in the order of the allowances. Deliveries whose deadline is too near are not claimed.
  /// - Parameter number: the number of the claim, which is written as the lease of each row.
  func claim(_ number: Int32, _ allowances: [LaneAllowance], within limits: ClaimLimits) async throws(OutboxError)
    -> Claimed
  /// Forgets a claim whose answer was lost: bars it if it has not begun, waits for it if it runs, and returns what it took.
  /// Returns how many rows went back.
  func forget(_ number: Int32) async throws(OutboxError) -> Int
  /// Claims these deliveries again after a crash or a fail-over of the server, as far as they exist and no other gateway has them.
  /// May be repeated.
  /// - Parameter number: a new claim number, which becomes the lease of each row.
  func reclaim(_ number: Int32, _ keys: [DeliveryKey]) async throws(OutboxError) -> [Reclaimed]
  /// Reports that everything was reclaimed. Claims continue when all gateways have reported that.
  func confirmReclaimed() async throws(OutboxError)
  /// A page of the rows claimed in our name, from the start or where the previous page ended.
  func claimed(from page: Int64?) async throws(OutboxError) -> ClaimedPage

  /// Writes outcomes. Returns how many deliveries were still ours.
  func settle(_ settlements: [Settlement]) async throws(OutboxError) -> Int
  /// Which of these this gateway has written lately: for a batch of which `settle` wrote only a part, or whose answer was lost.
  func settled(among settlements: [Settlement]) async throws(OutboxError) -> Set<DeliveryKey>
  /// Returns deliveries to the outbox to be tried later. Returns how many were still ours.
  func park(_ parkings: [Parking]) async throws(OutboxError) -> Int
  /// Returns deliveries to the outbox without counting the attempt. Returns how many were still ours.
  func release(_ leases: [DeliveryLease]) async throws(OutboxError) -> Int
  /// Which of these calls have ended, or no longer exist.
  func ended(among outboxIDs: [Int64]) async throws(OutboxError) -> [Int64]
  /// Waits until everything that was answered before is on the server's disk. Claims and settlements themselves do not wait for the
  /// disk.
  func sync() async throws(OutboxError)

  /// Marks tokens dead unless they were registered since. If the lane is on hold, they are quarantined instead. Returns how many
  /// are newly dead.
  func invalidate(_ tokens: [TokenInvalidation]) async throws(OutboxError) -> Int
  /// Puts lanes on hold: their dead tokens are quarantined from now on, and those of the past window as well, until ops resume
  /// invalidation. Returns how many tokens live again.
  func hold(_ holds: [InvalidationHold]) async throws(OutboxError) -> Int
  /// Corrects the environments of registered tokens. Returns how many were wrong.
  func correct(_ environments: [EnvironmentCorrection]) async throws(OutboxError) -> Int
  /// Reports the conditions of this gateway's lanes, for ops. Called every second.
  func report(_ conditions: [LaneCondition]) async throws(OutboxError)

  /// The job of this kind that is due, if any. The gateway that asks first runs it.
  func claimJob(_ kind: JobKind) async throws(OutboxError) -> String?
  /// Runs one bounded step of a job. Returns what SQL did without a gateway, if that is the job.
  func run(_ kind: JobKind, job name: String) async throws(OutboxError) -> [Tally]
}
