// How far a provider's reason reaches. Every row of the reason tables has one, and nothing that is done about a reason
// acts wider: one phone that gets too many pushes must not silence the others.

/// What a reason says something about, from the narrowest to the widest.
enum ReasonScope: Int, Comparable, Sendable {
  /// One device token, or the push to it.
  case token
  /// The tokens of one platform: the credentials that FCM or Expo holds for Apple, say.
  case platform
  /// One project or topic of the account.
  case project
  /// Every push of the app to this provider.
  case lane

  static func < (left: ReasonScope, right: ReasonScope) -> Bool { left.rawValue < right.rawValue }
}

extension PushOutcome {
  /// How far the gateway's reaction reaches: what stops the lane or slows it down reaches as far as the lane.
  var reach: ReasonScope {
    switch self {
    case .throttled(_, _, isLaneWide: true), .unauthorized, .unavailable: .lane
    case .accepted, .tokenInvalid, .rejected, .throttled, .refused, .unknown, .expired: .token
    }
  }
}
