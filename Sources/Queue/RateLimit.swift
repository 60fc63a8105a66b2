// A token bucket: how many may go now if so many may go a second. Pure.

public import Runtime

/// A limit on the rate of a lane. What was saved up is at most a tenth of a second's worth.
public struct RateLimit: Sendable {
  private static let saved = Nanoseconds.milliseconds(100)

  private let perSecond: Double
  private var tokens: Double
  private var at: Instant?

  /// - Parameter perSecond: at least 1.
  public init(perSecond: Int) {
    precondition(perSecond >= 1, "a lane that may send nothing is not a lane")
    self.perSecond = Double(perSecond)
    tokens = max(1, self.perSecond * Self.saved.seconds)
  }

  /// How many may go at `now`.
  public mutating func available(_ now: Instant) -> Int {
    if let at, now > at {
      tokens = min(max(1, perSecond * Self.saved.seconds), tokens + (now - at).seconds * perSecond)
    }
    at = max(at ?? now, now)
    return max(0, Int(tokens))
  }

  /// How many of these may be spent on what can wait: half of what is saved at most is kept for rings.
  public mutating func availableToBackground(_ now: Instant) -> Int {
    max(0, available(now) - Int(max(1, perSecond * Self.saved.seconds)) / 2)
  }

  /// So many went; more than were available is a debt.
  public mutating func spend(_ count: Int) {
    tokens -= Double(count)
  }
}
