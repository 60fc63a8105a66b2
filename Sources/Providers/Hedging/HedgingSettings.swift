// When an invite is sent once more over another connection, and how many are.

public import Runtime

/// The rule of hedging for one lane.
public struct HedgingSettings: Sendable, Equatable {
  /// No invite is hedged that has waited for less. At least 1 ms.
  public var delayMin = Nanoseconds.milliseconds(300)
  /// The wait while fewer than ten answers are known, if `delayMin` is not longer.
  public var delayAtFirst = Nanoseconds.milliseconds(500)
  /// Maximum number of hedges for each hundred pushes of the lane, 1 to 100.
  public var percentMax = 2
  /// Hedges that a lane may have without having earned them, for lone calls never earn one: this many at once, and one more each
  /// `loneInterval`.
  public var loneMax = 10
  public var loneInterval = Nanoseconds.seconds(6)
  /// Maximum number of hedges that may be saved up.
  public var savedMax = 500
  /// A provider's word stops hedges for this long at most.
  public var longestPause = Nanoseconds.seconds(60)

  public init() {}
}
