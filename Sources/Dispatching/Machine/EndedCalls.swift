// Calls that may have ended, as hints say. Pure.
//
// A notification is only a hint: anybody may send one, and it may get lost. Nothing is dropped before the database confirms the end.

/// Collects hints.
struct EndedCalls: Sendable {
  /// Maximum number of calls kept by id. Above it any call may have ended.
  private static let countMax = 10_000

  private var calls: Set<Int64> = []
  private var isAny = false

  var isEmpty: Bool { calls.isEmpty && !isAny }

  mutating func clear() {
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
    clear()
    isAny = true
  }

  /// Whether a hint is about this call.
  func contains(_ outboxID: Int64) -> Bool { isAny || calls.contains(outboxID) }
}
