// The scope of a provider's reason. Every row of the reason tables has one, and the reaction to a reason never affects more than
// this scope: one phone that gets too many pushes must not stop pushes to others.

/// What a reason concerns, from the narrowest to the widest.
enum ReasonScope: Int, Comparable, Sendable {
  /// One device token, or the push to it.
  case token
  /// The tokens of one platform, for example if the credentials that FCM or Expo holds for Apple are wrong.
  case platform
  /// One project or topic of the account.
  case project
  /// Every push of the app to this provider, or to this push service of browsers.
  case lane

  static func < (left: ReasonScope, right: ReasonScope) -> Bool { left.rawValue < right.rawValue }
}

extension PushOutcome {
  /// The scope of the gateway's reaction. An outcome that stops the lane or slows it down has the scope `lane`.
  var reach: ReasonScope {
    switch self {
    case .throttled(_, _, isLaneWide: true), .unauthorized, .unavailable: .lane
    case .accepted, .tokenInvalid, .rejected, .throttled, .refused, .deferred, .unknown, .expired: .token
    }
  }
}
