// Calls that may have ended while a claim was under way. Pure.

internal import Runtime

/// Remembers the hints that came since the claim under way was sent. A hint and the claim's answer come over two connections, so
/// the answer may be older than the hint. A claim that was sent after the hint has read the end itself.
struct EndedCalls: Sendable {
  /// Maximum number of calls kept by id. Above it any call may have ended.
  private static let countMax = 10_000

  private var calls: Set<Int64> = []
  private var isAny = false

  /// A claim begins. It reads the ends of earlier hints itself.
  mutating func beginClaim() {
    calls.removeAll(keepingCapacity: true)
    isAny = false
  }

  /// A hint, or the answer to a look-up, that these calls have ended.
  mutating func note(_ outboxIDs: some Sequence<Int64>) {
    guard !isAny else { return }
    calls.formUnion(outboxIDs)
    if calls.count > Self.countMax { noteAny() }
  }

  /// A hint that unknown calls have ended; or hints may have been missed.
  mutating func noteAny() {
    isAny = true
    calls.removeAll(keepingCapacity: true)
  }

  /// Whether an invite of the claim must be looked up before it is sent.
  func contains(_ outboxID: Int64) -> Bool { isAny || calls.contains(outboxID) }
}
