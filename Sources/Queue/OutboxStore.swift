// The outbox as the dispatcher sees it. `PostgresOutbox` is the real one; a simulation brings its own.

public import PushModel
public import Runtime

/// How many deliveries of one lane may be claimed now.
public struct LaneAllowance: Sendable, Equatable {
  /// `push.lane.id`.
  public var lane: Int16
  /// At least 1.
  public var limit: Int32
  /// How many of these may have more than ten minutes; at most `limit`.
  public var background: Int32

  /// - Parameter background: as many as `limit` when not given.
  public init(lane: Int16, limit: Int32, background: Int32? = nil) {
    self.lane = lane
    self.limit = limit
    self.background = background ?? limit
  }
}

/// How much one claim may bring.
public struct ClaimLimits: Sendable, Equatable {
  /// Rows of all lanes together, which are looked into in the order of their allowances until that many are found.
  public var inAll: Int32
  /// Those among them whose deadline is more than ten minutes away, as no ring's is.
  public var background: Int32

  public init(inAll: Int32 = .max, background: Int32 = .max) {
    self.inAll = inAll
    self.background = background
  }
}

/// What became of one delivery, to be written down. A class, since it passes through several queues.
public final class Settlement: Sendable {
  public let delivery: Delivery
  /// The claim under which it is written: that of `delivery`, or a later one by which it was reclaimed.
  public let lease: DeliveryLease
  /// Where its row was last seen.
  public let place: DeliveryPlace
  public let outcome: DeliveryOutcome
  /// Attempts made in all, those in memory included.
  public let attempts: Int32
  /// HTTP status of the last answer; 0 for none.
  public let status: UInt16
  /// Why, in the provider's word or ours; nil for plain success.
  public let reason: String?
  public let providerMessageID: String?
  /// When the last request left; nil if none did.
  public let sentAt: Instant?
  /// When its answer came; nil if none did.
  public let answeredAt: Instant?
  /// The tries before the last, as far as they were made under this lease.
  public let failures: [FailedAttempt]
  /// How long from now the receipt of `providerMessageID` can be read; nil where there is none to read.
  public let receiptAfter: Nanoseconds?

  /// - Parameters:
  ///   - lease: that of `delivery` when not given.
  ///   - place: that of `delivery` when not given.
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

/// A delivery to be tried again later than is worth keeping it in memory.
public struct Parking: Sendable {
  public var lease: DeliveryLease
  public var attempts: Int32
  /// How long from now.
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
  /// When it died, by the provider's word, in milliseconds since 1970; a token registered later is not meant.
  public var since: Int64?
  public var reason: String

  public init(lane: Int16, token: ArraySlice<UInt8>, since: Int64?, reason: String) {
    self.lane = lane
    self.token = token
    self.since = since
    self.reason = reason
  }
}

/// An APNs token that works in the other environment than the one it was registered for.
public struct EnvironmentCorrection: Sendable {
  /// `push.lane.id`.
  public var lane: Int16
  public var token: ArraySlice<UInt8>
  /// The one it works in.
  public var environment: PushEnvironment

  public init(lane: Int16, token: ArraySlice<UInt8>, environment: PushEnvironment) {
    self.lane = lane
    self.token = token
    self.environment = environment
  }
}

/// A lane whose provider suddenly calls so many tokens dead that it is not to be believed.
public struct InvalidationHold: Sendable {
  /// `push.lane.id`.
  public var lane: Int16
  /// How far back tokens of the lane live again.
  public var window: Nanoseconds
  /// What was seen, for ops.
  public var note: String

  public init(lane: Int16, window: Nanoseconds, note: String) {
    self.lane = lane
    self.window = window
    self.note = note
  }
}

/// Why the store could not do what it was asked.
public struct OutboxError: Error, Sendable, CustomStringConvertible {
  public enum Code: Sendable, Equatable {
    /// The statement never left: nothing was changed.
    case unavailable
    /// The connection broke, or no answer came in time: the statement may have been executed or not.
    case answerLost
    /// Another transaction held a lock for longer than one is waited for (SQLSTATE 55P03), as a rule on one of the rows: nothing
    /// was changed.
    case locked
    /// The server refused the statement for another reason that will pass (deadlock, restart, read-only server): nothing was
    /// changed.
    case transient
    /// The server refused what is in the statement (SQLSTATE class 22, 23 or 54): the same rows would be refused again.
    case refusedRows
    /// The server refused the statement for any other lasting reason, such as a missing right: no row is to blame.
    case refused
  }

  public var code: Code
  public var description: String

  public init(_ code: Code, _ description: String) {
    self.code = code
    self.description = description
  }
}

/// What the store tells its owner, on the store's loop.
public enum OutboxEvent: Sendable {
  /// Something may be ready to be claimed. A hint: polling is the guarantee.
  case bell
  /// The connections that claim and settle are up (again), since this moment: ask for a beat.
  case available
  /// The store cannot be reached; calls fail until `available`.
  case unavailable(reason: String)
  /// Somebody says that these calls have ended. A hint: look it up.
  case mayHaveEnded([Int64])
  /// Somebody says that many calls have ended. A hint: look it up.
  case manyMayHaveEnded
  /// From now on hints are heard, or (false) not.
  case listening(Bool)
  /// Ops believe the lane's provider again when it calls tokens dead. A hint for a counter.
  case invalidationResumed(lane: Int16)
}

/// The answer to a beat.
public struct Beat: Sendable, Equatable {
  /// False: this gateway was declared dead, its claims are others' now, and it must register anew.
  public var isAlive: Bool
  /// The server may have lost commits since the last reclaim: see `OutboxStore.reclaim`.
  public var mustReclaim: Bool

  public init(isAlive: Bool, mustReclaim: Bool) {
    self.isAlive = isAlive
    self.mustReclaim = mustReclaim
  }
}

/// What a claim brought.
public struct Claimed: Sendable {
  public var deliveries: [Delivery]
  /// Rows this version cannot read (a kind it does not know): they are ours and must be given back.
  public var unreadable: [DeliveryLease]
  /// Rows whose call was deleted by a transaction that did not see them: they are ours, and go once they are given back.
  public var orphans: [DeliveryLease]

  public init(deliveries: [Delivery], unreadable: [DeliveryLease] = [], orphans: [DeliveryLease] = []) {
    self.deliveries = deliveries
    self.unreadable = unreadable
    self.orphans = orphans
  }
}

/// A delivery by its key: the call's row and the number of the push within it.
public struct DeliveryKey: Hashable, Sendable {
  public var outboxID: Int64
  public var pushNumber: Int32

  public init(outboxID: Int64, pushNumber: Int32) {
    self.outboxID = outboxID
    self.pushNumber = pushNumber
  }

  /// Both numbers in one word, for keys are hashed several times a delivery.
  public func hash(into hasher: inout Hasher) { hasher.combine(outboxID &* 1_000_003 &+ Int64(pushNumber)) }
}

/// A bounded part of the rows that are claimed in our name.
public struct ClaimedPage: Sendable {
  public var leases: [DeliveryLease]
  /// Where the next part begins; nil after the last one.
  public var next: Int64?

  public init(leases: [DeliveryLease], next: Int64?) {
    self.leases = leases
    self.next = next
  }
}

/// A delivery that is ours again.
public struct Reclaimed: Sendable, Equatable {
  /// Its index in what was asked for.
  public var index: Int
  public var place: DeliveryPlace

  public init(index: Int, place: DeliveryPlace) {
    self.index = index
    self.place = place
  }
}

/// Claims and settles deliveries for one gateway, that is one life of one process. Every call is a batch; a claim is ours until
/// settled, parked, released or forgotten, or until this gateway is declared dead.
public protocol OutboxStore: Sendable {
  /// Becomes a new gateway: a new owner of claims, whose numbers begin anew.
  func register() async throws(OutboxError)
  /// Says that this gateway lives.
  /// - Parameter mayReap: declare others dead that were silent for too long, and free what they had claimed.
  func beat(mayReap: Bool) async throws(OutboxError) -> Beat

  /// Claims up to the allowed number a lane, earliest deadline first, lanes with rings before lanes without, else in the order
  /// of the allowances. In no lane anything whose deadline is too near.
  /// - Parameter number: counts this gateway's claims; it is written as the lease of each row.
  func claim(_ number: Int32, _ allowances: [LaneAllowance], within limits: ClaimLimits) async throws(OutboxError)
    -> Claimed
  /// The answer to a claim was lost: bars it if it has not begun, waits for it if it runs, and gives back what it took.
  /// Returns how many rows went back.
  func forget(_ number: Int32) async throws(OutboxError) -> Int
  /// After a crash or a fail-over of the server: makes these deliveries ours again, as far as they exist and are ours or
  /// nobody's. Repeating it does no harm.
  /// - Parameter number: a new number of ours, which becomes the lease of each row.
  func reclaim(_ number: Int32, _ keys: [DeliveryKey]) async throws(OutboxError) -> [Reclaimed]
  /// Everything was reclaimed: claims may go on once all gateways have said so.
  func confirmReclaimed() async throws(OutboxError)
  /// A part of the rows claimed in our name, from the start or where the part before ended.
  func claimed(from page: Int64?) async throws(OutboxError) -> ClaimedPage

  /// Writes down what became of deliveries; returns how many were still ours.
  func settle(_ settlements: [Settlement]) async throws(OutboxError) -> Int
  /// Which of these have been written down by this gateway lately: for a batch of which `settle` took only a part, or of
  /// which the answer was lost.
  func settled(among settlements: [Settlement]) async throws(OutboxError) -> Set<DeliveryKey>
  /// Puts deliveries back to be tried later; returns how many were still ours.
  func park(_ parkings: [Parking]) async throws(OutboxError) -> Int
  /// Gives claims back with the attempt uncounted; returns how many were still ours.
  func release(_ leases: [DeliveryLease]) async throws(OutboxError) -> Int
  /// Which of these calls have ended.
  func ended(among outboxIDs: [Int64]) async throws(OutboxError) -> [Int64]
  /// Returns when a crash of the server can lose nothing any more that was answered before: claims and settlements do not wait
  /// for the disk.
  func sync() async throws(OutboxError)

  /// Marks tokens dead unless they were registered since, or quarantines them where the lane is on hold; returns how many
  /// are newly dead.
  func invalidate(_ tokens: [TokenInvalidation]) async throws(OutboxError) -> Int
  /// Puts lanes on hold: from now on, and back to the start of the window, their dead tokens are quarantined until ops say
  /// otherwise. Returns how many live again.
  func hold(_ holds: [InvalidationHold]) async throws(OutboxError) -> Int
  /// Notes the environments that tokens really belong to; returns how many were noted otherwise.
  func correct(_ environments: [EnvironmentCorrection]) async throws(OutboxError) -> Int
  /// Says how this gateway's lanes are, for ops; to be called every second.
  func report(_ conditions: [LaneCondition]) async throws(OutboxError)

  /// The maintenance job that is due, if any: whoever asks first does it.
  func takeJob() async throws(OutboxError) -> String?
  /// Does one bounded bite of a job; returns what SQL did by itself, where that is the job.
  func run(job name: String) async throws(OutboxError) -> [Tally]
}
