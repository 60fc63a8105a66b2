// Calls that may have ended while a claim was under way. Pure.

internal import Runtime

/// Remembers the hints that came since the claim under way was asked: the news of an end and the claim's answer travel on two
/// connections, so the answer may be older. A claim asked after the hint has read the end itself.
struct EndedCalls: Sendable {
  /// More are taken for all.
  private static let countMax = 10_000

  private var calls: Set<Int64> = []
  private var isAny = false

  /// A claim is asked for: whatever was hinted at before, it will read.
  mutating func beginClaim() {
    calls.removeAll(keepingCapacity: true)
    isAny = false
  }

  /// Somebody says that these calls have ended.
  mutating func note(_ outboxIDs: [Int64]) {
    guard !isAny else { return }
    calls.formUnion(outboxIDs)
    if calls.count > Self.countMax { noteAny() }
  }

  /// Somebody says that calls have ended, and not which; or nobody would say.
  mutating func noteAny() {
    isAny = true
    calls.removeAll(keepingCapacity: true)
  }

  /// Whether an invite that the claim brings must be looked up before it is sent.
  func contains(_ outboxID: Int64) -> Bool { isAny || calls.contains(outboxID) }
}
