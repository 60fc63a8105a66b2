// The outbox as the dispatcher sees it. `PostgresOutbox` is the real one; a simulation brings its own.

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

  public var lease: DeliveryLease { delivery.lease }

  public init(
    _ delivery: Delivery, outcome: DeliveryOutcome, attempts: Int32, status: UInt16 = 0,
    reason: String? = nil, providerMessageID: String? = nil, sentAt: Instant? = nil, answeredAt: Instant? = nil,
    failures: [FailedAttempt] = [], receiptAfter: Nanoseconds? = nil
  ) {
    self.delivery = delivery
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
  /// 0 production, 1 sandbox.
  public var environment: UInt8

  public init(lane: Int16, token: ArraySlice<UInt8>, environment: UInt8) {
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

/// The store could not do what it was asked; nothing was changed unless the connection broke on the way.
public struct OutboxError: Error, Sendable, CustomStringConvertible {
  /// Worth trying again by itself, as when the database restarts.
  public var isTransient: Bool
  public var description: String

  public init(isTransient: Bool, description: String) {
    self.isTransient = isTransient
    self.description = description
  }
}

/// What the store tells its owner, on the store's loop.
public enum OutboxEvent: Sendable {
  /// Something may be ready to be claimed. A hint: polling is the guarantee.
  case bell
  /// The store can be used (again).
  case available
  /// The store cannot be reached; calls fail until `available`.
  case unavailable(reason: String)
  /// A call has ended: nothing of its invites may leave any more.
  case void(outboxID: Int64)
  /// So many calls have ended at once that they were not named.
  case voidAny
  /// From now on the end of a call is heard of, or (false) not: what is sent again must ask the store first.
  case listening(Bool)
  /// This replica leads, and has taken over what SQL noted down of its own doing: it counts once.
  case tallied([Tally])
  /// Ops believe the lane's provider again when it calls tokens dead.
  case invalidationResumed(lane: Int16)
  /// This replica was declared dead and has registered anew: its claims are others' now. Drop everything unsent.
  case fenced
}

/// Claims and settles deliveries. Every call is a batch; a claim is ours until settled, parked, released, or until this
/// replica is declared dead.
public protocol OutboxStore: Sendable {
  /// Claims up to the allowed number a lane, earliest deadline first, lanes with rings before lanes without, else in the order
  /// of the allowances. In no lane anything whose deadline is too near.
  func claim(_ allowances: [LaneAllowance], within limits: ClaimLimits) async throws(OutboxError) -> [Delivery]
  /// Writes down what became of deliveries; returns how many were still ours.
  func settle(_ settlements: [Settlement]) async throws(OutboxError) -> Int
  /// Which of these have been written down by this replica, lately: for a batch of which `settle` took only a part, or of
  /// which the answer was lost.
  func settled(among settlements: [Settlement]) async throws(OutboxError) -> Set<DeliveryLease>
  /// Puts deliveries back to be tried later; returns how many were still ours.
  func park(_ parkings: [Parking]) async throws(OutboxError) -> Int
  /// Gives claims back with the attempt uncounted; returns how many were still ours.
  func release(_ leases: [DeliveryLease]) async throws(OutboxError) -> Int
  /// Marks tokens dead unless they were registered since, or quarantines them where the lane is on hold; returns how many
  /// are newly dead.
  func invalidate(_ tokens: [TokenInvalidation]) async throws(OutboxError) -> Int
  /// Puts lanes on hold: from now on, and back to the start of the window, their dead tokens are quarantined until ops say
  /// otherwise. Returns how many live again.
  func hold(_ holds: [InvalidationHold]) async throws(OutboxError) -> Int
  /// Says how this replica's lanes are, for ops; to be called every second.
  func report(_ conditions: [LaneCondition]) async throws(OutboxError)
  /// Notes the environments that tokens really belong to; returns how many were noted otherwise.
  func correct(_ environments: [EnvironmentCorrection]) async throws(OutboxError) -> Int
}

extension OutboxStore {
  /// Claims up to the allowed number a lane.
  public func claim(_ allowances: [LaneAllowance]) async throws(OutboxError) -> [Delivery] {
    try await claim(allowances, within: ClaimLimits())
  }
}
