// One claimed delivery, as the outbox hands it to the gateway.

public import PushModel
public import Runtime

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

/// The lease on one claimed row: its key, and the number of the claim that took it. A settlement changes the row only while it is
/// claimed by this gateway under that number.
public struct DeliveryLease: Hashable, Sendable {
  public var outboxID: Int64
  /// The number of the push within its call.
  public var pushNumber: Int32
  /// The number of the gateway's claim.
  public var lease: Int32
  /// When the row was made, as in `DeliveryKey`.
  public var createdAtMicroseconds: Int64

  public var key: DeliveryKey {
    DeliveryKey(outboxID: outboxID, pushNumber: pushNumber, createdAtMicroseconds: createdAtMicroseconds)
  }

  public init(outboxID: Int64, pushNumber: Int32, lease: Int32, createdAtMicroseconds: Int64 = 0) {
    self.outboxID = outboxID
    self.pushNumber = pushNumber
    self.lease = lease
    self.createdAtMicroseconds = createdAtMicroseconds
  }

  /// A lease on the row of this key.
  public init(_ key: DeliveryKey, lease: Int32) {
    self.init(
      outboxID: key.outboxID, pushNumber: key.pushNumber, lease: lease,
      createdAtMicroseconds: key.createdAtMicroseconds)
  }
}

/// Where a row was last seen (Postgres' `ctid`). Settling finds the row there without an index, or by its key if it has moved.
public struct DeliveryPlace: Hashable, Sendable {
  public var block: UInt32
  public var offset: UInt16

  /// No place is known: the row is found by its key.
  public static let unknown = DeliveryPlace(block: 0, offset: 0)

  public init(block: UInt32, offset: UInt16) {
    self.block = block
    self.offset = offset
  }
}

/// What all deliveries of a call have in common. The deliveries that one claim brings share one object.
public final class CallData: Sendable {
  /// Where the texts lie in `bytes`, as UTF-8.
  public struct Texts: Sendable {
    /// `push.outbox.kind`: `incoming_call`, `video_call`, ….
    public var callKind: Range<Int>
    public var callID: Range<Int>
    /// Why the call ended, in the backend's word. Nil while it rings, and when the backend gave no reason.
    public var endReason: Range<Int>?
    /// `push.outbox.traceparent`, which SQL has checked; nil for none.
    public var traceparent: Range<Int>?
    /// baseCallData as JSON text.
    public var payload: Range<Int>

    public init(
      callKind: Range<Int>, callID: Range<Int>, endReason: Range<Int>?, traceparent: Range<Int>?, payload: Range<Int>
    ) {
      self.callKind = callKind
      self.callID = callID
      self.endReason = endReason
      self.traceparent = traceparent
      self.payload = payload
    }
  }

  public let texts: Texts
  public let bytes: [UInt8]
  /// The call had ended when its row was read.
  public let isOver: Bool

  public init(texts: Texts, bytes: [UInt8], isOver: Bool) {
    self.texts = texts
    self.bytes = bytes
    self.isOver = isOver
  }

  /// Creates a call from separate texts.
  public convenience init(
    callKind: [UInt8], callID: [UInt8], payload: [UInt8], endReason: [UInt8]? = nil, traceparent: [UInt8]? = nil,
    isOver: Bool = false
  ) {
    var bytes: [UInt8] = []
    func add(_ text: [UInt8]) -> Range<Int> {
      bytes += text
      return bytes.count - text.count..<bytes.count
    }
    let texts = Texts(
      callKind: add(callKind), callID: add(callID), endReason: endReason.map(add), traceparent: traceparent.map(add),
      payload: add(payload))
    self.init(texts: texts, bytes: bytes, isOver: isOver)
  }
}

/// A claimed push to one device.
///
/// Its own texts are UTF-8 in one buffer, and `texts` has their ranges. The texts of its call are in `call`, which the deliveries
/// of the call share.
public final class Delivery: Sendable {
  public let lease: DeliveryLease
  public let place: DeliveryPlace
  /// `push.lane.id`: app and provider.
  public let lane: Int16
  /// Attempts so far, this one included.
  public let attempt: Int32
  /// How many gateways died while they held it. With two or more it is claimed alone.
  public let crashes: UInt8
  public let kind: PushKind
  public let environment: PushEnvironment
  public let platform: DevicePlatform
  /// When the call was enqueued: microseconds since 1970 on the database's clock.
  public let createdAtMicroseconds: Int64
  /// The deadline: microseconds since 1970 on the database's clock.
  public let deadlineAtMicroseconds: Int64
  /// The same deadline on our own monotonic clock, never later than the database's.
  public let deadline: Instant
  public let call: CallData

  /// Where the delivery's own texts lie in `bytes`.
  public struct Texts: Sendable {
    public var userID: Range<Int>
    public var token: Range<Int>
    /// BCP 47, nil when unknown.
    public var locale: Range<Int>?
    /// The recipient's own values for templates: a JSON object of texts. Usually nil.
    public var data: Range<Int>?

    public init(userID: Range<Int>, token: Range<Int>, locale: Range<Int>?, data: Range<Int>? = nil) {
      self.userID = userID
      self.token = token
      self.locale = locale
      self.data = data
    }
  }

  public let texts: Texts
  public let bytes: [UInt8]

  public var userID: ArraySlice<UInt8> { bytes[texts.userID] }
  public var token: ArraySlice<UInt8> { bytes[texts.token] }
  public var locale: ArraySlice<UInt8>? { texts.locale.map { bytes[$0] } }
  public var callKind: ArraySlice<UInt8> { call.bytes[call.texts.callKind] }
  public var callID: ArraySlice<UInt8> { call.bytes[call.texts.callID] }
  public var endReason: ArraySlice<UInt8>? { call.texts.endReason.map { call.bytes[$0] } }
  public var traceparent: ArraySlice<UInt8>? { call.texts.traceparent.map { call.bytes[$0] } }
  public var payload: ArraySlice<UInt8> { call.bytes[call.texts.payload] }

  public var key: DeliveryKey { lease.key }

  /// Whether it is a missed call whose phone also gets a cancel of the same call. `push.announce_missed` gives those the push
  /// numbers from `firstAfterCancel`.
  public var followsCancel: Bool { kind == .missedCall && lease.pushNumber >= Self.firstAfterCancel }

  /// The number of a call's first missed call that follows a cancel.
  public static let firstAfterCancel: Int32 = 40_000

  /// Whether it is a cancel whose phone is also told of the missed call, before or after it. `push.announce_missed` gives those the
  /// push numbers from `firstBeforeMissedCall`.
  public var precedesMissedCall: Bool { kind == .cancel && lease.pushNumber >= Self.firstBeforeMissedCall }

  /// The number of a call's first cancel that a missed call follows.
  public static let firstBeforeMissedCall: Int32 = 30_000

  /// When the push was enqueued, on our own monotonic clock. It is early by as much as `deadline` is.
  public var enqueuedAt: Instant {
    deadline - .microseconds(deadlineAtMicroseconds - createdAtMicroseconds)
  }

  /// Whether its deadline is more than ten minutes away. No ring's is, so it counts as background of a claim. `push.claim` uses the
  /// same ten minutes (`v_near`), which are the longest ring window (`push.apps.ring_seconds`).
  public func isBackground(_ now: Instant) -> Bool { deadline - now > .seconds(600) }

  public init(
    lease: DeliveryLease, place: DeliveryPlace = .unknown, lane: Int16, attempt: Int32, crashes: UInt8 = 0,
    kind: PushKind, environment: PushEnvironment, platform: DevicePlatform, createdAtMicroseconds: Int64,
    deadlineAtMicroseconds: Int64, deadline: Instant, call: CallData, texts: Texts, bytes: [UInt8]
  ) {
    self.lease = lease
    self.place = place
    self.lane = lane
    self.attempt = attempt
    self.crashes = crashes
    self.kind = kind
    self.environment = environment
    self.platform = platform
    self.createdAtMicroseconds = createdAtMicroseconds
    self.deadlineAtMicroseconds = deadlineAtMicroseconds
    self.deadline = deadline
    self.call = call
    self.texts = texts
    self.bytes = bytes
  }

  /// Creates a delivery and its call from separate texts.
  public convenience init(
    lease: DeliveryLease, lane: Int16, attempt: Int32, kind: PushKind, environment: PushEnvironment,
    platform: DevicePlatform,
    userID: [UInt8], token: [UInt8], locale: [UInt8]?, callKind: [UInt8], callID: [UInt8], payload: [UInt8],
    createdAtMicroseconds: Int64, deadlineAtMicroseconds: Int64, deadline: Instant,
    endReason: [UInt8]? = nil, traceparent: [UInt8]? = nil, data: [UInt8]? = nil
  ) {
    self.init(
      lease: lease, lane: lane, attempt: attempt, kind: kind, environment: environment, platform: platform,
      userID: userID, token: token, locale: locale, data: data, createdAtMicroseconds: createdAtMicroseconds,
      deadlineAtMicroseconds: deadlineAtMicroseconds, deadline: deadline,
      call: CallData(
        callKind: callKind, callID: callID, payload: payload, endReason: endReason, traceparent: traceparent))
  }

  /// Creates a delivery of `call` from separate texts.
  public convenience init(
    lease: DeliveryLease, place: DeliveryPlace = .unknown, lane: Int16, attempt: Int32, crashes: UInt8 = 0,
    kind: PushKind, environment: PushEnvironment, platform: DevicePlatform, userID: [UInt8], token: [UInt8],
    locale: [UInt8]?,
    data: [UInt8]? = nil, createdAtMicroseconds: Int64, deadlineAtMicroseconds: Int64, deadline: Instant, call: CallData
  ) {
    var bytes: [UInt8] = []
    func add(_ text: [UInt8]) -> Range<Int> {
      bytes += text
      return bytes.count - text.count..<bytes.count
    }
    let texts = Texts(
      userID: add(userID), token: add(token), locale: locale.map(add), data: data.map(add))
    self.init(
      lease: lease, place: place, lane: lane, attempt: attempt, crashes: crashes, kind: kind, environment: environment,
      platform: platform, createdAtMicroseconds: createdAtMicroseconds, deadlineAtMicroseconds: deadlineAtMicroseconds,
      deadline: deadline, call: call, texts: texts, bytes: bytes)
  }
}
