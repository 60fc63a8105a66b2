// The settings of hedging: when an invite is sent a second time over another connection, and how many are.

public import Runtime

/// The hedging limits of one lane.
public struct HedgingSettings: Sendable, Equatable {
  /// Minimum time that an invite waits before it is hedged. At least 1 ms.
  public var delayMin = Nanoseconds.milliseconds(300)
  /// The wait while fewer than ten answers are known. `delayMin` applies if it is longer.
  public var delayAtFirst = Nanoseconds.milliseconds(500)
  /// Maximum number of hedges for each hundred pushes of the lane, 1 to 100.
  public var percentMax = 2
  /// Maximum number of unearned hedges, because a lane with few calls never earns one. Used ones are replaced at a rate of one per
  /// `loneInterval`.
  public var loneMax = 10
  public var loneInterval = Nanoseconds.seconds(6)
  /// Maximum number of earned hedges that are saved.
  public var savedMax = 500
  /// The wait after a hedge that got no answer, like its request.
  public var patience = Nanoseconds.milliseconds(3_500)
  /// Maximum pause of hedging, even if the provider asks for a longer one.
  public var longestPause = Nanoseconds.seconds(60)

  public init() {}
}
