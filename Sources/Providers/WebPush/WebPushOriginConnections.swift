// The connections, the VAPID token and the health of one origin.

internal import Runtime

/// What a provider keeps about one origin. Confined to the provider's loop.
final class WebPushOriginConnections {
  /// Connection numbers of different origins differ in these bits and above.
  private static let numberBits = 32

  let origin: WebPushOrigin
  let sender: HTTP2Sender
  var health: WebPushOriginHealth
  /// Number of requests without a result.
  var inFlight = 0
  /// Hashes of the endpoints of these requests, by tag.
  var subscriptions: [UInt64: Int] = [:]
  var lastUsedAt: Instant
  /// Requests of this turn that are to be sent.
  var outgoing: [PushRequest] = []
  /// Whether a new token was asked for because the origin refused the current one.
  var isReplacingToken = false
  /// Which of all the origins opened so far it is: 1, 2, …
  let generation: Int

  /// - Parameter generation: distinguishes the connection numbers from those of other origins.
  init(_ origin: WebPushOrigin, _ sender: HTTP2Sender, generation: Int, seed: UInt64, _ now: Instant) {
    self.origin = origin
    self.sender = sender
    self.generation = generation
    health = WebPushOriginHealth(seed: seed)
    lastUsedAt = now
  }

  /// The number of a connection for the provider's owner: unique among all origins.
  func publicNumber(of connection: Int) -> Int { generation << Self.numberBits | connection }

  /// The number of a connection within this origin; nil if it belongs to another.
  func ownNumber(of connection: Int) -> Int? {
    connection >> Self.numberBits == generation ? connection & (1 << Self.numberBits - 1) : nil
  }
}
