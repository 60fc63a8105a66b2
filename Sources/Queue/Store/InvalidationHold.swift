// The quarantine of a lane's dead tokens.

public import Runtime

/// A lane whose provider suddenly calls so many tokens dead that they are quarantined instead of deleted.
public struct InvalidationHold: Sendable {
  /// `push.lane.id`.
  public var lane: Int16
  /// Tokens of the lane that were marked dead within this time live again.
  public var window: Nanoseconds
  /// What the gateway saw, for ops.
  public var note: String

  public init(lane: Int16, window: Nanoseconds, note: String) {
    self.lane = lane
    self.window = window
    self.note = note
  }
}
