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

/// A claimed push to one device, with the call's payload joined in.
///
/// All its texts lie in one buffer, as UTF-8, and are named by where they lie: a claimed row costs two allocations, and what is
/// rendered from it is copied once.
public final class Delivery: Sendable {
  public let lease: DeliveryLease
  /// `push.lane.id`: app and provider.
  public let lane: Int16
  /// Attempts so far, this one included.
  public let attempt: Int32
  public let kind: DeliveryKind
  /// 0 production, 1 sandbox (APNs).
  public let environment: UInt8
  /// 0 unknown, 1 iOS, 2 Android.
  public let platform: UInt8
  /// When the call was enqueued: microseconds since 1970 on the database's clock.
  public let createdAtMicroseconds: Int64
  /// The deadline: microseconds since 1970 on the database's clock.
  public let deadlineAtMicroseconds: Int64
  /// The same deadline on our own monotonic clock, never later than the database's.
  public let deadline: Instant

  /// Where the texts lie in `bytes`.
  public struct Texts: Sendable {
    public var userID: Range<Int>
    public var token: Range<Int>
    /// BCP 47, nil when unknown.
    public var locale: Range<Int>?
    /// `push.outbox.kind`: `incoming_call`, `video_call`, ….
    public var callKind: Range<Int>
    public var callID: Range<Int>
    /// Why the call ended, as the backend said it; nil while it rings, and where nobody said.
    public var endReason: Range<Int>?
    /// `push.outbox.traceparent`, checked there; nil for none.
    public var traceparent: Range<Int>?
    /// baseCallData as JSON text.
    public var payload: Range<Int>
  }

  public let texts: Texts
  public let bytes: [UInt8]

  public var userID: ArraySlice<UInt8> { bytes[texts.userID] }
  public var token: ArraySlice<UInt8> { bytes[texts.token] }
  public var locale: ArraySlice<UInt8>? { texts.locale.map { bytes[$0] } }
  public var callKind: ArraySlice<UInt8> { bytes[texts.callKind] }
  public var callID: ArraySlice<UInt8> { bytes[texts.callID] }
  public var endReason: ArraySlice<UInt8>? { texts.endReason.map { bytes[$0] } }
  public var traceparent: ArraySlice<UInt8>? { texts.traceparent.map { bytes[$0] } }
  public var payload: ArraySlice<UInt8> { bytes[texts.payload] }

  /// When the push was enqueued, on our own monotonic clock: as early as `deadline` is.
  public var enqueuedAt: Instant {
    deadline - .microseconds(deadlineAtMicroseconds - createdAtMicroseconds)
  }

  /// More than ten minutes before its deadline, as no ring is: it counts among a claim's background. `push.claim` counts with the
  /// same ten minutes (`v_near`), which are the longest ring window (`push.apps.ring_seconds`).
  public func isBackground(_ now: Instant) -> Bool { deadline - now > .seconds(600) }

  public init(
    lease: DeliveryLease, lane: Int16, attempt: Int32, kind: DeliveryKind, environment: UInt8, platform: UInt8,
    createdAtMicroseconds: Int64, deadlineAtMicroseconds: Int64, deadline: Instant, texts: Texts, bytes: [UInt8]
  ) {
    self.lease = lease
    self.lane = lane
    self.attempt = attempt
    self.kind = kind
    self.environment = environment
    self.platform = platform
    self.createdAtMicroseconds = createdAtMicroseconds
    self.deadlineAtMicroseconds = deadlineAtMicroseconds
    self.deadline = deadline
    self.texts = texts
    self.bytes = bytes
  }

  /// A delivery of which each text comes by itself.
  public convenience init(
    lease: DeliveryLease, lane: Int16, attempt: Int32, kind: DeliveryKind, environment: UInt8, platform: UInt8,
    userID: [UInt8], token: [UInt8], locale: [UInt8]?, callKind: [UInt8], callID: [UInt8], payload: [UInt8],
    createdAtMicroseconds: Int64, deadlineAtMicroseconds: Int64, deadline: Instant,
    endReason: [UInt8]? = nil, traceparent: [UInt8]? = nil
  ) {
    var bytes: [UInt8] = []
    func add(_ text: [UInt8]) -> Range<Int> {
      bytes += text
      return bytes.count - text.count..<bytes.count
    }
    let texts = Texts(
      userID: add(userID), token: add(token), locale: locale.map(add), callKind: add(callKind), callID: add(callID),
      endReason: endReason.map(add), traceparent: traceparent.map(add), payload: add(payload))
    self.init(
      lease: lease, lane: lane, attempt: attempt, kind: kind, environment: environment, platform: platform,
      createdAtMicroseconds: createdAtMicroseconds, deadlineAtMicroseconds: deadlineAtMicroseconds, deadline: deadline,
      texts: texts, bytes: bytes)
  }
}
