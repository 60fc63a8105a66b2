// Estimates the database's clock from our own monotonic clock. Pure.

internal import Runtime

/// Maps instants to the database's time, so that one clock dates everything in the tables.
///
/// The answer to each claim has the database's time and arrives a little later. The answer with the largest difference between the
/// two clocks within a window of time travelled fastest, so its difference is the best estimate.
struct DatabaseClock: Sendable {
  private static let window = Nanoseconds.seconds(10)
  /// A change of the difference by this much means that the clock was set, not that the network was slow.
  private static let jumpMicroseconds: Int64 = 1_000_000

  private var current: Int64?
  private var previous: Int64?
  private var windowEnd = Instant(nanoseconds: .min)

  /// The database said it was `microseconds` (since 1970), and we heard of it at `now`.
  mutating func observe(microseconds: Int64, _ now: Instant) {
    let offset = microseconds - now.nanoseconds / 1_000
    if let best, abs(best - offset) > Self.jumpMicroseconds {
      current = nil
      previous = nil
    }
    if now >= windowEnd {
      previous = current
      current = nil
      windowEnd = now + Self.window
    }
    current = max(current ?? offset, offset)
  }

  /// Microseconds since 1970 on the database's clock; nil before the first observation.
  func microseconds(at instant: Instant) -> Int64? {
    best.map { $0 + instant.nanoseconds / 1_000 }
  }

  private var best: Int64? {
    guard let current else { return previous }
    return max(current, previous ?? current)
  }
}
