// Limits how often something may happen: at once, and in the long run. Pure.

internal import Runtime

/// A token bucket. It begins full, and is refilled as time passes.
struct TokenBucket: Sendable {
  let saved: Double
  let perSecond: Double
  private var tokens: Double
  private var at: Instant?

  /// - Parameters:
  ///   - saved: maximum number of tokens, at least 1.
  ///   - perSecond: number of tokens added each second, above 0.
  init(saved: Double, perSecond: Double) {
    self.saved = saved
    self.perSecond = perSecond
    tokens = saved
  }

  /// Removes one token. Returns false if there is none.
  mutating func consume(_ now: Instant) -> Bool {
    guard hasAny(now) else { return false }
    tokens -= 1
    return true
  }

  /// Whether there is at least one token.
  mutating func hasAny(_ now: Instant) -> Bool {
    fill(now)
    return tokens >= 1
  }

  /// Whether the bucket is full.
  mutating func isFull(_ now: Instant) -> Bool {
    fill(now)
    return tokens >= saved
  }

  private mutating func fill(_ now: Instant) {
    if let at, now > at { tokens = min(saved, tokens + (now - at).seconds * perSecond) }
    at = max(at ?? now, now)
  }
}
