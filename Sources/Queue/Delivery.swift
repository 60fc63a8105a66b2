// One claimed delivery, as the outbox hands it to the gateway.

public import Runtime

/// What a delivery is for; the raw values are the codes of `push.delivery.kind`.
public enum DeliveryKind: UInt8, CaseIterable, Sendable {
  case invite = 0
  case cancel = 1
  case missedCall = 2
  case notification = 3

  /// As `push.deliveries.kind` has it.
  public var word: String {
    switch self {
    case .invite: "invite"
    case .cancel: "cancel"
    case .missedCall: "missed_call"
    case .notification: "notification"
    }
  }
}

/// How a delivery ended; the raw values are the codes of `push.history.outcome`.
public enum DeliveryOutcome: UInt8, CaseIterable, Sendable {
  case delivered = 0
  case deliveredLate = 1
  case void = 2
  case expired = 3
  case dead = 4

  /// As `push.delivery_history.outcome` has it.
  public var word: String {
    switch self {
    case .delivered: "delivered"
    case .deliveredLate: "delivered_late"
    case .void: "void"
    case .expired: "expired"
    case .dead: "dead"
    }
  }
}

/// The lease on one claimed row: its key, and the fence that lets a settlement through only while the claim is still ours.
public struct DeliveryLease: Hashable, Sendable {
  public var outboxID: Int64
  /// The number of the push within its call.
  public var number: Int32
  /// Counts the claims of this row; only the latest may settle it.
  public var lease: Int32

  public init(outboxID: Int64, number: Int32, lease: Int32) {
    self.outboxID = outboxID
    self.number = number
    self.lease = lease
  }
}

/// A claimed push to one device, with the call's payload joined in. Texts are UTF-8 as Postgres sent them.
public struct Delivery: Sendable {
  public var lease: DeliveryLease
  /// `push.lane.id`: app and provider.
  public var lane: Int16
  /// Attempts so far, this one included.
  public var attempt: Int32
  public var kind: DeliveryKind
  /// 0 production, 1 sandbox (APNs).
  public var environment: UInt8
  /// 0 unknown, 1 iOS, 2 Android.
  public var platform: UInt8
  public var userID: [UInt8]
  public var token: [UInt8]
  /// BCP 47, nil when unknown.
  public var locale: [UInt8]?
  /// `push.outbox.kind`: `incoming_call`, `video_call`.
  public var callKind: [UInt8]
  public var callID: [UInt8]
  /// baseCallData as JSON text.
  public var payload: [UInt8]
  /// When the call was enqueued: microseconds since 1970 on the database's clock.
  public var createdAtMicroseconds: Int64
  /// The deadline: microseconds since 1970 on the database's clock.
  public var deadlineAtMicroseconds: Int64
  /// The same deadline on our own monotonic clock, never later than the database's.
  public var deadline: Instant
  /// Why the call ended, as the backend said it; nil while it rings, and where nobody said.
  public var endReason: [UInt8]?
  /// `push.outbox.traceparent`, checked there; nil for none.
  public var traceparent: [UInt8]?

  /// When the push was enqueued, on our own monotonic clock: as early as `deadline` is.
  public var enqueuedAt: Instant {
    deadline - .microseconds(deadlineAtMicroseconds - createdAtMicroseconds)
  }

  public init(
    lease: DeliveryLease, lane: Int16, attempt: Int32, kind: DeliveryKind, environment: UInt8, platform: UInt8,
    userID: [UInt8], token: [UInt8], locale: [UInt8]?, callKind: [UInt8], callID: [UInt8], payload: [UInt8],
    createdAtMicroseconds: Int64, deadlineAtMicroseconds: Int64, deadline: Instant,
    endReason: [UInt8]? = nil, traceparent: [UInt8]? = nil
  ) {
    self.lease = lease
    self.lane = lane
    self.attempt = attempt
    self.kind = kind
    self.environment = environment
    self.platform = platform
    self.userID = userID
    self.token = token
    self.locale = locale
    self.callKind = callKind
    self.callID = callID
    self.payload = payload
    self.createdAtMicroseconds = createdAtMicroseconds
    self.deadlineAtMicroseconds = deadlineAtMicroseconds
    self.deadline = deadline
    self.endReason = endReason
    self.traceparent = traceparent
  }
}
