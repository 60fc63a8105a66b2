// The interface between the gateway and the providers: the gateway passes batches of pushes, and outcomes return in batches.

public import PushModel
public import Runtime

/// One push to one device, complete except for the provider's own envelope. A class, because it has several buffers and is passed
/// on several times.
// @unchecked: the creator may change it until it is passed to a provider. After that only the provider changes `leftAt` and `batch`, on
// the loop that both share.
public final class PushRequest: @unchecked Sendable {
  /// The caller's number for the request; returned in the `PushResult`. Unique among requests in flight.
  public let tag: UInt64
  /// The delivery's UUID (16 bytes), the same at every attempt: `apns-id`.
  public let deliveryID: DeliveryID
  public let kind: PushKind
  /// Push type, priority, and how long the provider keeps it.
  public let manner: PushManner
  public var environment: PushEnvironment
  /// The device token in the provider's format (ASCII).
  public let token: ArraySlice<UInt8>
  /// The rendered content (UTF-8 JSON). APNs: the whole payload. FCM: the `data` object. Expo: the message object without `to`,
  /// `ttl`, `expiration` and `priority`, never empty. Web push: the content before its encryption.
  public let body: [UInt8]
  /// FCM: the members of the message other than `data`.
  public let fcm: FCMMessageMembers
  /// The collapse ID (`apns-collapse-id`, FCM `collapse_key`, the topic of web push): at most 64 bytes; nil for none.
  public let collapseID: ArraySlice<UInt8>?
  /// The request is not sent after this instant. An answer to a sent request is accepted a few seconds longer, because it may say
  /// that the deadline was missed.
  public var deadline: Instant
  /// The deadline as wall time, in milliseconds since 1970 (from the database's clock).
  public let expiresAtMilliseconds: Int64
  /// Whether the request may be written; nil: always. Its owner sets it before it passes the request to a provider.
  public var permit: SendPermit?
  /// `PushResult.connection` of an earlier attempt that failed at the provider. Another connection is used if one has room.
  public var avoidedConnection: Int?
  /// Whether the push was sent before, by whomever. First tries come first.
  public var isRepeat = false
  /// When its provider wrote it last; nil while it waits. What was not written shows nothing of the provider.
  public var leftAt: Instant? { didSet { original?.leftAt = leftAt } }
  /// The request of which this is the encrypted form; nil if there is none. It has left when this one has.
  var original: PushRequest?
  /// The number of the request that carries it together with others; nil if it goes alone. What such a request shows is shown once.
  public var batch: Int?

  public init(
    tag: UInt64, deliveryID: DeliveryID, kind: PushKind, environment: PushEnvironment, token: ArraySlice<UInt8>,
    body: [UInt8], collapseID: ArraySlice<UInt8>?, deadline: Instant, expiresAtMilliseconds: Int64,
    manner: PushManner? = nil, fcm: FCMMessageMembers = FCMMessageMembers(), avoidedConnection: Int? = nil
  ) {
    self.tag = tag
    self.deliveryID = deliveryID
    self.kind = kind
    self.environment = environment
    self.token = token
    self.body = body
    self.collapseID = collapseID
    self.deadline = deadline
    self.expiresAtMilliseconds = expiresAtMilliseconds
    self.manner = manner ?? .standard(for: kind)
    self.fcm = fcm
    self.avoidedConnection = avoidedConnection
  }

  /// A request whose texts are whole arrays rather than slices.
  /// - Parameter manner: nil for the default of the kind.
  public convenience init(
    tag: UInt64, deliveryID: DeliveryID, kind: PushKind, environment: PushEnvironment, token: [UInt8], body: [UInt8],
    collapseID: [UInt8]?, deadline: Instant, expiresAtMilliseconds: Int64, manner: PushManner? = nil,
    fcm: FCMMessageMembers = FCMMessageMembers()
  ) {
    self.init(
      tag: tag, deliveryID: deliveryID, kind: kind, environment: environment, token: token[...], body: body,
      collapseID: collapseID?[...], deadline: deadline, expiresAtMilliseconds: expiresAtMilliseconds, manner: manner,
      fcm: fcm)
  }
}

/// The 128-bit external ID of a delivery. Derived from outbox ID and push number, so every attempt and replica derives the same.
public struct DeliveryID: Hashable, Sendable {
  public var high: UInt64
  public var low: UInt64

  public init(high: UInt64, low: UInt64) {
    self.high = high
    self.low = low
  }
}

/// What a provider reports to its owner.
public enum PushProviderEvent: Sendable {
  /// Outcomes in any order. Each request passed to `send` gets exactly one.
  case results([PushResult])
  /// The current maximum number of requests in flight. 0 while no connection is usable: rows should then stay in the outbox.
  case capacity(Int)
  /// The tags of invites that were sent a second time over another connection. These requests are in addition to those passed to
  /// `send`.
  case hedged([UInt64])
  /// From now on its capacity and its rate are divided among this many owners. A provider with one owner never reports it.
  case divided(Int)
  /// The provider's clock minus ours, from the `date` of an answer; accurate to about a second. Reported at the first answer of a
  /// connection, and at most once a minute after that.
  case clockSkew(Nanoseconds)
  /// The credentials of the provider or of its proxy have changed. Requests that failed before may succeed now.
  case renewed
}

/// One provider account of one app: connections, credentials, request format. An actor on an event loop.
///
/// `send` never blocks and never throws. Every request gets one result, at the latest a few seconds after its deadline.
public protocol PushProvider: Actor {
  /// The loop the provider runs on.
  nonisolated var loop: EventLoop { get }
  /// Connects and fetches credentials. From now on `report` is called on the provider's loop, with the events of a turn in
  /// batches.
  func start(report: @escaping @Sendable (PushProviderEvent) -> Void)
  /// Accepts a batch of requests.
  func send(_ batch: [PushRequest])
  /// Withdraws the given requests that have not been sent. Each ends as `refused` with the reason `Withdrawn`. Those that have been sent
  /// are not sent again, whatever is answered.
  func withdraw(_ tags: Set<UInt64>)
  /// Withdraws the given requests, because they have waited too long for their answers.
  func giveUp(on tags: Set<UInt64>)
  /// Ends the wait before the next connection, because the credentials of the proxy have changed.
  func retryConnections()
  /// The request that would be sent for a push; nil if this provider cannot tell. Sends nothing. The token appears in it, so callers that
  /// show it give a masked one.
  func preview(_ request: PushRequest) -> PushPreview?
  /// The state of the connections and their history.
  var condition: ProviderCondition { get }
  /// Finishes the requests in flight, sends GOAWAY and closes. Requests not sent yet end as `refused`. Requests without an answer
  /// at `deadline` end as `unknown`. Returns when all results have been reported.
  func shutDown(by deadline: Instant) async
}

extension PushProvider {
  public func preview(_ request: PushRequest) -> PushPreview? { nil }

  public func giveUp(on tags: Set<UInt64>) { withdraw(tags) }

  /// Its condition. Must be called on its loop.
  public nonisolated var conditionOnLoop: ProviderCondition { assumeIsolated { $0.condition } }

  /// Takes back requests that have not been sent. May be called from any loop.
  ///
  /// - Parameter areOverdue: because they have waited too long for their answers.
  public nonisolated func withdrawOnLoop(_ tags: Set<UInt64>, areOverdue: Bool) {
    onLoop { if areOverdue { $0.giveUp(on: tags) } else { $0.withdraw(tags) } }
  }

  /// Hands over a batch. May be called from any loop.
  public nonisolated func sendOnLoop(_ batch: [PushRequest]) { onLoop { $0.send(batch) } }

  private nonisolated func onLoop(_ body: @escaping @Sendable (isolated Self) -> Void) {
    if loop.isCurrent { assumeIsolated(body) } else { loop.execute { self.assumeIsolated(body) } }
  }
}
