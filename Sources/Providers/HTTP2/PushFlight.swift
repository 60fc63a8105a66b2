// A request of a push on its way: the first request or its hedge.

internal import Runtime

/// A request in a pool of connections. Confined to its sender.
final class PushFlight {
  let request: PushRequest
  /// The connections it uses.
  var connections: CredentialConnections
  /// The token it was last written with.
  var token: ProviderToken?
  var resends = 0
  /// When it was first handed to a connection.
  var dispatchedAt: Instant?
  /// Its number among the candidates for a hedge; nil if it is no candidate.
  var candidate: Int?
  /// The slot of the other flight of the same push while that flight is under way.
  var other: Int?
  /// When the hedged request was first handed to a connection; nil if this flight is not a hedge.
  let hedges: Instant?
  /// Why the other flight was lost after it had been sent; nil if it was not lost.
  var loss: String?
  /// Whether a hedge of this push was handed to a connection.
  var isHedged = false
  /// Whether it only shows whether credentials are accepted. Nobody waits for its outcome.
  let isTrial: Bool
  /// Whether it was withdrawn. It is not sent again.
  var isWithdrawn = false
  /// Whether the push has its outcome. The result of this flight is then ignored.
  var isSettled: Bool

  init(_ request: PushRequest, _ connections: CredentialConnections, hedges: Instant? = nil, isTrial: Bool = false) {
    self.isTrial = isTrial
    isSettled = isTrial
    self.request = request
    self.connections = connections
    self.hedges = hedges
  }
}
