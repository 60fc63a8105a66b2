// Why a provider refuses a lane's credentials, as a replica reports it. Ops read it in push.lanes and push.health.

/// Credentials that a provider does not accept.
public struct LaneRefusal: Sendable, Equatable {
  /// What is not sent because of it. The words are those of SQL and metrics.
  public enum Extent: String, Sendable, CaseIterable {
    /// Every push of the lane.
    case allPushes = "all"
    /// Some pushes: those of one environment or platform, or of too few phones to say more.
    case somePushes = "some"
    /// Nothing: new credentials are refused, and the former ones are still used.
    case newCredentials = "new"
  }

  public var extent: Extent
  /// The provider's reason, such as `InvalidProviderToken`.
  public var reason: String
  /// One sentence for people: who refuses what, and what to check. Names files and ids, and has no secrets.
  public var sentence: String

  public init(extent: Extent, reason: String, sentence: String) {
    self.extent = extent
    self.reason = reason
    self.sentence = sentence
  }
}
