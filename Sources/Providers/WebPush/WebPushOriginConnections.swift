// The connections and the VAPID token of one origin.

internal import Runtime

/// What a provider keeps about one origin. Confined to the provider's loop.
final class WebPushOriginConnections {
  /// Connection numbers of different origins differ in these bits and above.
  private static let numberBits = 32

  let origin: WebPushOrigin
  let sender: HTTP2Sender
  /// Number of requests without a result.
  var inFlight = 0
  var lastUsedAt: Instant
  /// Requests of this turn that are to be sent.
  var outgoing: [PushRequest] = []
  /// Which of all the origins opened so far it is: 1, 2, …
  let generation: Int

  /// - Parameter generation: distinguishes the connection numbers from those of other origins.
  init(_ origin: WebPushOrigin, _ sender: HTTP2Sender, generation: Int, _ now: Instant) {
    self.origin = origin
    self.sender = sender
    self.generation = generation
    lastUsedAt = now
  }

  /// The number of a connection for the provider's owner: unique among all origins.
  func publicNumber(of connection: Int) -> Int { generation << Self.numberBits | connection }

  /// The number of a connection within this origin; nil if it belongs to another.
  func ownNumber(of connection: Int) -> Int? {
    connection >> Self.numberBits == generation ? connection & (1 << Self.numberBits - 1) : nil
  }
}
