// A token bucket: how many pushes may leave now, for a maximum rate a second. Pure.

public import Runtime

/// Limits the rate of a lane. At most the tokens of a tenth of a second are saved.
public struct RateLimit: Sendable {
  private static let saved = Nanoseconds.milliseconds(100)

  private let perSecondInAll: Double
  private var perSecond: Double
  private var tokens: Double
  private var at: Instant?

  /// - Parameter perSecond: at least 1.
  public init(perSecond: Int) {
    precondition(perSecond >= 1, "a lane that may send nothing is not a lane")
    perSecondInAll = Double(perSecond)
    self.perSecond = Double(perSecond)
    tokens = max(1, self.perSecond * Self.saved.seconds)
  }

  /// How many pushes may leave at `now`.
  public mutating func available(_ now: Instant) -> Int {
    if let at, now > at {
      tokens = min(max(1, perSecond * Self.saved.seconds), tokens + (now - at).seconds * perSecond)
    }
    at = max(at ?? now, now)
    return max(0, Int(tokens))
  }

  /// How many of these may be background. At most half of the saved tokens are reserved for calls.
  public mutating func availableToBackground(_ now: Instant) -> Int {
    max(0, available(now) - Int(max(1, perSecond * Self.saved.seconds)) / 2)
  }

  /// From now on, this is one of so many equal parts of the rate. Saved tokens are kept within the new limit.
  public mutating func divide(among parts: Int) {
    perSecond = max(1, perSecondInAll / Double(parts))
    tokens = min(tokens, max(1, perSecond * Self.saved.seconds))
  }

  /// `count` pushes left. More than were available is a debt that later tokens pay.
  public mutating func spend(_ count: Int) {
    tokens -= Double(count)
  }
}
