// What a claim may bring from one lane.

/// How many deliveries of one lane may be claimed now.
public struct LaneAllowance: Sendable, Equatable {
  /// `push.lane.id`.
  public var lane: Int16
  /// At least 1.
  public var limit: Int32
  /// How many of these may have more than ten minutes left; at most `limit`.
  public var background: Int32

  /// - Parameter background: `limit` if not given.
  public init(lane: Int16, limit: Int32, background: Int32? = nil) {
    self.lane = lane
    self.limit = limit
    self.background = background ?? limit
  }
}
