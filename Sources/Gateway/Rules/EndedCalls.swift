// Calls that ended a moment ago. Pure.

import Runtime

/// Remembers ended calls for as long as a claim that was under way when they ended may take to come back: the news of the end
/// and the claim's answer travel on two connections.
struct EndedCalls: Sendable {
  private static let memory = Nanoseconds.seconds(10)

  private var recent: Set<Int64> = []
  private var previous: Set<Int64> = []
  private var turn = Instant(nanoseconds: .min)

  /// A call ended. It is remembered for 10 to 20 s.
  mutating func insert(_ outboxID: Int64, _ now: Instant) {
    if now >= turn {
      previous = turn + Self.memory > now ? recent : []
      recent = []
      turn = now + Self.memory
    }
    recent.insert(outboxID)
  }

  func contains(_ outboxID: Int64) -> Bool {
    recent.contains(outboxID) || previous.contains(outboxID)
  }
}
