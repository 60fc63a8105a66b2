// What the outbox reports on its own.

/// What the store reports to its owner, on the store's loop.
public enum OutboxEvent: Sendable {
  /// Something may be ready to be claimed. A hint: polling is the guarantee.
  case bell
  /// All connections are up now, apart from a listener that rests. The owner should beat.
  case available
  /// The store cannot be reached; calls fail until `available`.
  case unavailable(reason: String)
  /// A hint that these calls have ended, or that some of their users have declined. The owner must look it up.
  case mayHaveEnded([Int64])
  /// The same hint about many calls.
  case manyMayHaveEnded
  /// Whether hints are heard from now on.
  case listening(Bool)
  /// A hint that ops have resumed the lane's invalidation: dead tokens are deleted again.
  case invalidationResumed(lane: Int16)
}
