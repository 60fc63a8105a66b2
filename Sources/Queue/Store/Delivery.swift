// One claimed delivery, as the outbox hands it to the gateway.

public import PushModel
public import Runtime

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
  /// Whether its phone is told of the call's end twice: by a cancel and by a missed call.
  public let isPaired: Bool
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

  /// Whether it is an invite whose call no longer rang for its user when its row was read.
  public var isEndedInvite: Bool {
    guard kind == .invite else { return false }
    return call.isOver || !call.decliners.isEmpty && call.decliners.contains(Array(userID))
  }

  /// Whether it is a missed call whose phone also gets a cancel of the same call.
  public var followsCancel: Bool { kind == .missedCall && isPaired }

  /// Whether it is a cancel whose phone is also told of the missed call, before or after it.
  public var precedesMissedCall: Bool { kind == .cancel && isPaired }

  /// When the push was enqueued, on our own monotonic clock. It is early by as much as `deadline` is.
  public var enqueuedAt: Instant {
    deadline - (.microseconds(deadlineAtMicroseconds) - .microseconds(createdAtMicroseconds))
  }

  /// The trace id of its call; nil if the call has none.
  public var traceID: String? {
    guard let traceparent, traceparent.count >= 35 else { return nil }
    return String(decoding: traceparent.dropFirst(3).prefix(32), as: UTF8.self)
  }

  /// The token as `push.delivery_history.device` shows it: its first four and last four characters.
  public var maskedToken: String {
    let token = String(decoding: token, as: UTF8.self)
    return token.count > 12 ? "\(token.prefix(4))…\(token.suffix(4))" : "…"
  }

  /// Whether its deadline is more than ten minutes away. No ring's is, so it counts as background of a claim. `push.claim` uses the
  /// same ten minutes (`v_near`), which are the longest ring window (`push.apps.ring_seconds`).
  public func isBackground(_ now: Instant) -> Bool { deadline - now > .seconds(600) }

  public init(
    lease: DeliveryLease, place: DeliveryPlace = .unknown, lane: Int16, attempt: Int32, crashes: UInt8 = 0,
    kind: PushKind, environment: PushEnvironment, platform: DevicePlatform, createdAtMicroseconds: Int64,
    deadlineAtMicroseconds: Int64, deadline: Instant, isPaired: Bool = false, call: CallData, texts: Texts,
    bytes: [UInt8]
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
    self.isPaired = isPaired
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
    data: [UInt8]? = nil, createdAtMicroseconds: Int64, deadlineAtMicroseconds: Int64, deadline: Instant,
    isPaired: Bool = false, call: CallData
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
      deadline: deadline, isPaired: isPaired, call: call, texts: texts, bytes: bytes)
  }
}
