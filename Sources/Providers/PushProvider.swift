// The seam between the gateway and the providers: batches go down, outcomes come back in batches.

public import PushModel
public import Runtime

/// One push to one device, ready to be sent but for the provider's own envelope. An object, as it is handed on several times
/// and holds several buffers.
// @unchecked: whoever makes it may change it until it is handed to a provider; nobody does afterwards.
public final class PushRequest: @unchecked Sendable {
  /// The caller's handle; comes back in the `PushResult`. Unique among requests in flight.
  public let tag: UInt64
  /// The delivery's UUID (16 bytes), the same at every attempt: `apns-id`.
  public let deliveryID: DeliveryID
  public let kind: PushKind
  /// Push type, urgency, how long it is kept.
  public let manner: PushManner
  public var environment: PushEnvironment
  /// The device token, as its provider writes it (ASCII).
  public let token: ArraySlice<UInt8>
  /// What the dialect rendered (UTF-8 JSON): APNs: the whole payload; FCM: the `data` object;
  /// Expo: the message object without `to`, `ttl`, `expiration` and `priority`, never empty.
  public let body: [UInt8]
  /// FCM: what the message has beside `data`.
  public let fcm: FCMMessageMembers
  /// Collapse id (`apns-collapse-id`, FCM `collapse_key`); at most 64 bytes, nil for none.
  public let collapseID: ArraySlice<UInt8>?
  /// Nothing may leave after this instant. An answer to what has left is waited for a little longer, for it may say that the
  /// deadline was missed.
  public var deadline: Instant
  /// The deadline on the wall, in milliseconds since 1970 (from the database's clock).
  public let expiresAtMilliseconds: Int64
  /// `PushResult.connection` of a try that met a provider in trouble: another connection is taken, if one has room.
  public var avoidedConnection: Int?

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

  /// A request whose texts come by themselves.
  /// - Parameter manner: nil for the standard of its kind.
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

/// 128 bits that name a delivery to the outside: (outbox id, push number), so every attempt and replica derives the same.
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
  /// Outcomes, in any order; each request handed to `send` gets exactly one.
  case results([PushResult])
  /// How many requests may usefully be in flight now. 0 while no connection is usable: leave rows in the outbox.
  case capacity(Int)
  /// How many invites were sent once more, over another connection: requests beyond those handed to `send`.
  case hedged(Int)
  /// The provider's clock minus ours, from the `date` of an answer: accurate to about a second. Told of at the first
  /// answer of a connection, and at most once a minute after that.
  case clockSkew(Nanoseconds)
  /// Other credentials are in use, its own or those of its proxy: what failed before may succeed now.
  case renewed
}

/// One provider account of one app: connections, credentials, request format. An actor on an event loop.
///
/// `send` never blocks and never throws; every request comes back as one result, a few seconds after its deadline
/// at the latest.
public protocol PushProvider: Actor {
  /// The loop the provider runs on.
  nonisolated var loop: EventLoop { get }
  /// Connects, fetches credentials, and from now on reports through `report`, on the provider's loop, batched by turn.
  func start(report: @escaping @Sendable (PushProviderEvent) -> Void)
  /// Takes a batch over.
  func send(_ batch: [PushRequest])
  /// Takes back those of these requests that have not left: each comes back `refused`, with the reason `Withdrawn`.
  func withdraw(_ tags: Set<UInt64>)
  /// Connects at once if it waits to: the credentials of its proxy have changed.
  func retryConnections()
  /// How its connections are, and what happened to them.
  var condition: ProviderCondition { get }
  /// Finishes what is in flight, says goodbye to the peer (GOAWAY) and closes. Requests not sent yet come back `refused`;
  /// whatever has no answer at `deadline` comes back `unknown`. Returns when everything has been reported.
  func shutDown(by deadline: Instant) async
}
