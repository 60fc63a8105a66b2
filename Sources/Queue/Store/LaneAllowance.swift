// What a claim may bring from one lane.

/// How many deliveries of one lane may be claimed now.
public struct LaneAllowance: Sendable, Equatable {
  /// `push.lane.id`.
  public var lane: Int16
  /// At least 1.
  public var limit: Int32
  /// How many of these may have more than ten minutes left; at most `limit`.
  public var background: Int32
  /// Whether the other gateways come first: it takes only what they have left for a while.
  public var isLast: Bool
  /// Whether it takes nothing that was handed on: that may have failed here, and would show nothing.
  public var takesOnlyNew: Bool

  /// - Parameter background: `limit` if not given.
  public init(lane: Int16, limit: Int32, background: Int32? = nil, isLast: Bool = false, takesOnlyNew: Bool = false) {
    self.lane = lane
    self.limit = limit
    self.background = background ?? limit
    self.isLast = isLast
    self.takesOnlyNew = takesOnlyNew
  }
}
