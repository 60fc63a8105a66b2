// Whether a lane's provider refuses its credentials, from its answers. Pure.
//
// The circuit decides whether a reason that concerns the lane is true of all its pushes (`LaneCircuit`). A reason that concerns some
// of them, such as those of one APNs environment, is true for a while after it was last given: nothing says when it has ended.

public import Runtime

/// What the answers say of a lane's credentials.
public struct RefusedCredentials: Sendable {
  /// How long a reason counts that does not stop the lane.
  static let memory = Nanoseconds.seconds(300)

  /// The reason of the last answer that concerned the lane, and when it came; nil since the provider has looked further than
  /// at the credentials.
  private var ofLane: (reason: String, at: Instant)?
  private var ofSome: (reason: String, at: Instant)?

  /// Nothing is known yet.
  public init() {}

  /// An answer has come.
  ///
  /// - Parameter concernsLane: whether the answer says something about other tokens.
  public mutating func didHear(_ outcome: PushOutcome, concernsLane: Bool, _ now: Instant) {
    switch outcome {
    case .unauthorized(let reason) where concernsLane: ofLane = (reason, now)
    case .unauthorized(let reason), .rejected(let reason):
      if ProviderReasons.ofSomeCredentials.contains(reason) { ofSome = (reason, now) }
    case .accepted, .tokenInvalid: ofLane = nil
    case .unavailable: if concernsLane { ofLane = nil }  // now something else is wrong
    case .unknown: if let ofLane, ofLane.at + Self.memory <= now { self.ofLane = nil }
    case .throttled, .refused, .deferred, .expired: break
    }
  }

  /// Nothing is known of the credentials that are used from now on.
  public mutating func forget() { self = RefusedCredentials() }

  /// Why they are refused, and whether that concerns every push; nil if they are not.
  ///
  /// - Parameter isWell: whether the lane's circuit is closed.
  public func reason(isWell: Bool, _ now: Instant) -> (text: String, concernsAll: Bool)? {
    if let ofLane, !isWell || ofLane.at + Self.memory > now { return (ofLane.reason, !isWell) }
    guard let ofSome, ofSome.at + Self.memory > now else { return nil }
    return (ofSome.reason, false)
  }
}
