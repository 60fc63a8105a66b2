// A request of a push on its way: the first one, or its hedge.

internal import Runtime

/// A request that a pool of connections has. Confined to its sender.
final class PushFlight {
  let request: PushRequest
  /// Whose connections it is on.
  var connections: CredentialConnections
  /// The token it was last written with.
  var token: ProviderToken?
  var resends = 0
  /// When it was first handed to a connection.
  var dispatchedAt: Instant?
  /// Its number among the candidates for a hedge; nil: it is not to be hedged.
  var candidate: Int?
  /// The slot of the other flight of the same push, while that is under way.
  var other: Int?
  /// What it is sent besides left at this time; nil: it is no hedge.
  let hedges: Instant?
  /// The other flight left, and has been lost for this reason.
  var loss: String?
  /// A hedge of it has left, or it is one.
  var isHedged = false
  /// The push has its outcome: what becomes of this flight means nothing.
  var isSettled = false

  init(_ request: PushRequest, _ connections: CredentialConnections, hedges: Instant? = nil) {
    self.request = request
    self.connections = connections
    self.hedges = hedges
  }
}
