// How much may go at once, and how much in the long run. Pure.

internal import Runtime

/// A token bucket: full at first, emptied by what goes, filled again by time.
struct TokenBucket: Sendable {
  let saved: Double
  let perSecond: Double
  private var tokens: Double
  private var at: Instant?

  /// - Parameters:
  ///   - saved: the most that may go at once, at least 1.
  ///   - perSecond: what may go in the long run, above 0.
  init(saved: Double, perSecond: Double) {
    self.saved = saved
    self.perSecond = perSecond
    tokens = saved
  }

  /// Consumes one token. False when there is none.
  mutating func consume(_ now: Instant) -> Bool {
    guard hasAny(now) else { return false }
    tokens -= 1
    return true
  }

  /// Whether there is one to take.
  mutating func hasAny(_ now: Instant) -> Bool {
    fill(now)
    return tokens >= 1
  }

  /// Whether nothing is missing in it.
  mutating func isFull(_ now: Instant) -> Bool {
    fill(now)
    return tokens >= saved
  }

  private mutating func fill(_ now: Instant) {
    if let at, now > at { tokens = min(saved, tokens + (now - at).seconds * perSecond) }
    at = max(at ?? now, now)
  }
}
