// The rows of `MemoryOutbox`: the contents of the tables of schema push that gateways and the rules of calls use.

public import PushModel
public import Queue

/// A time on the database's clock: microseconds since 1970.
public typealias DatabaseTime = Int64

/// `push.apps`.
public struct MemoryApp: Sendable {
  public var name: String
  /// Whether visible pushes with an unknown result are repeated.
  public var isAtLeastOnce: Bool

  public init(name: String, isAtLeastOnce: Bool = false) {
    self.name = name
    self.isAtLeastOnce = isAtLeastOnce
  }
}

/// `push.lane`.
public struct MemoryLane: Sendable {
  public var id: Int16
  public var app: String
  /// `apns`, `fcm` or `expo`.
  public var provider: String
  public var isPaused = false

  public init(id: Int16, app: String, provider: String) {
    self.id = id
    self.app = app
    self.provider = provider
  }
}

/// A way to reach a device: a token in a lane.
public struct MemoryChannel: Sendable, Hashable {
  public var lane: Int16
  public var token: String

  public init(lane: Int16, token: String) {
    self.lane = lane
    self.token = token
  }
}

/// One entry of `push.outbox.recipients`.
public struct MemoryRecipient: Sendable {
  public var userID: String
  /// The channels by which its phone rings: the first, and after a permanent failure the next, and so on.
  public var channels: [MemoryChannel]
  /// The channel for a missed call; nil: none.
  public var missedCall: MemoryChannel?

  public init(userID: String, channels: [MemoryChannel], missedCall: MemoryChannel?) {
    self.userID = userID
    self.channels = channels
    self.missedCall = missedCall
  }
}

/// `push.outbox`.
public struct MemoryCall: Sendable {
  public enum State: Sendable, Equatable {
    case ringing, answered, ended, missed
  }

  public var id: Int64
  public var app: String
  public var kind: String
  public var callID: String
  public var payload: String
  public var recipients: [MemoryRecipient]
  /// All its pushes so far, owed and finished, in the order of their numbers.
  public var pushes: [DeliveryKey] = []
  public var state: State
  public var answeredBy: String?
  public var endReason: String?
  /// Who has declined, and whether the user was busy: `declined` or `busy`.
  public var declined: [String: String] = [:]
  public var createdAt: DatabaseTime
  public var deadlineAt: DatabaseTime

  /// Whether it still rings for this user.
  public func rings(for userID: String) -> Bool { state == .ringing && declined[userID] == nil }
}

/// `push.delivery`.
public struct MemoryDelivery: Sendable {
  public enum State: Int16, Sendable, Equatable {
    case ready = 0
    case claimed = 1
    case waiting = 2
  }

  public var key: DeliveryKey
  /// A number, because a later version may have more kinds than `PushKind`.
  public var kind: UInt8
  public var lane: Int16
  public var userID: String
  public var token: String
  public var dueAt: DatabaseTime
  public var deadlineAt: DatabaseTime
  /// Whether the same phone is told of the call's end by a cancel and by a missed call.
  public var isPaired = false
  public var state = State.ready
  public var owner: Int32?
  /// The number of the claim that took it last.
  public var lease: Int32 = 0
  public var attempt: Int32 = 0
  /// Whether the claim that took this invite found that its call no longer rings for its user.
  public var hasFoundEnded = false
  public var crashes: Int16 = 0
  /// The gateways that have handed it on since one of them last did so for the second time. They do not claim it before it is due.
  public var handedOnBy: [Int32] = []
  public var handedOnAt: DatabaseTime = 0
  /// While it is claimed: when the provider accepted it from another gateway.
  public var acceptedAt: DatabaseTime?
  public var lastReason: String?
  /// Number of tries that the provider has refused for certain.
  public var refusals: Int32 = 0

  public var createdAt: DatabaseTime { key.createdAtMicroseconds }
  public var channel: MemoryChannel { MemoryChannel(lane: lane, token: token) }
  /// Whether it is left to others. Where its lane is sick, others come first. Of those that are sick, too, the one comes first that had it
  /// longest ago.
  func avoids(_ gateway: Int32, _ allowance: LaneAllowance?, at now: DatabaseTime) -> Bool {
    let isLast = allowance?.isLast ?? false
    guard !handedOnBy.isEmpty || isLast else { return false }
    if !handedOnBy.isEmpty, attempt > 0, allowance?.takesOnlyNew ?? false { return true }
    let from = handedOnBy.isEmpty || handedOnBy.contains(gateway) ? dueAt : min(handedOnAt, dueAt)
    let place = (handedOnBy.firstIndex(of: gateway) ?? 0) + 1
    return from > now - (isLast ? MemoryOutbox.Limits.othersFirst * Int64(place) : 0)
  }
  /// Whether it may have reached the phone.
  public var mayHaveArrived: Bool { attempt > (hasFoundEnded ? 1 : 0) }
  public var isInvite: Bool { kind == PushKind.invite.rawValue }
  /// Whether it is visible to people, who would see it twice if it were sent twice.
  public var isVisible: Bool {
    kind == PushKind.missedCall.rawValue || kind == PushKind.notification.rawValue
  }
  /// Whether two gateways died while they had it: it is then claimed alone.
  public var isSuspect: Bool { crashes >= 2 }
}

/// `push.history`.
public struct MemoryHistory: Sendable {
  public var key: DeliveryKey
  public var kind: UInt8
  public var lane: Int16
  public var userID: String
  public var token: String
  public var outcome: DeliveryOutcome
  /// The gateway that settled it; nil: SQL did.
  public var owner: Int32?
  public var attempts: Int32
  /// Number of tries that the provider has refused for certain. The phone may have got the others.
  public var refusals: Int32
  public var reason: String?
  public var wasSent: Bool
  public var deadlineAt: DatabaseTime
  public var finishedAt: DatabaseTime
}

/// One push of a call, owed or finished, as `push.pushes_of` has it.
public struct MemoryPush: Sendable {
  public var key: DeliveryKey
  public var kind: PushKind?
  public var channel: MemoryChannel
  public var userID: String
  /// Nil: it is still owed.
  public var outcome: DeliveryOutcome?
  public var reason: String?
  /// Whether its phone may have got it, as far as the database knows.
  public var mayHaveArrived: Bool
  public var deadlineAt: DatabaseTime

  /// Whether it is a cancel that has not shown the missed call it stood for.
  public var hasShownNothing: Bool { kind == .cancel && (outcome == .expired || outcome == .dead && !mayHaveArrived) }
}

/// `push.follow_ups`: something has happened to a call from which more follows.
public struct MemoryNote: Sendable {
  public enum Cause: Sendable, Equatable {
    /// The call has ended.
    case ended
    /// A user has declined.
    case declined
    /// An invite has failed for good.
    case failed
    /// A cancel that would have shown the missed call has expired or was refused.
    case untold
  }

  public var outboxID: Int64
  public var cause: Cause
  public var dueAt: DatabaseTime
  public var isUrgent: Bool { cause == .failed }
}

/// `push.gateways`.
public struct MemoryGateway: Sendable {
  public var id: Int32
  public var name: String
  public var isAlive = true
  public var heartbeatAt: DatabaseTime
  /// Time since which its heartbeats have had no gap.
  public var steadySince: DatabaseTime
  /// When another gateway first found it silent; nil: it is not silent.
  public var doubtedAt: DatabaseTime?
  public var endedReason: String?
  /// Whether it has ended and a running claim of it may still take deliveries that must be freed.
  public var isFreeDue = false
  /// Whether it had a suspect when it ended.
  public var hadSuspect = false
  /// Claims with lower numbers are barred.
  public var claimsFrom: Int32 = 0
}

/// `push.job`.
public struct MemoryJob: Sendable {
  public var name: String
  public var everyMicroseconds: Int64
  public var dueAt: DatabaseTime
}

/// A notification from Postgres to all listeners; only a hint.
public enum MemoryNotification: Sendable, Equatable {
  case bell
  case ended(Int64)
}

/// The effect of a row on the statement that settles it.
public enum MemoryPoison: Sendable, Equatable {
  /// Its settlement is refused unless it is reduced to codes (reason `SettlementRefused`).
  case details
  /// Its settlement is always refused.
  case everything
}
