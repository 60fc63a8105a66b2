// Ctrl-C: the first stops enqueueing and waits shortly, the second reports at once.

internal import Runtime
internal import Synchronization

/// Number of stop requests, and the time of the first.
final class LoadStop: Sendable {
  private let state = Mutex((count: 0, since: Instant?.none))

  func request(at now: Instant) {
    state.withLock { state in
      state.count += 1
      state.since = state.since ?? now
    }
  }

  var isRequested: Bool { state.withLock { $0.count > 0 } }
  var isUrgent: Bool { state.withLock { $0.count > 1 } }
  /// The time of the first stop request.
  var since: Instant? { state.withLock { $0.since } }
}
