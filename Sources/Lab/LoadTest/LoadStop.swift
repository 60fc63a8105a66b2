// Ctrl-C: once for no more calls and a short wait, twice for the report at once.

internal import Runtime
internal import Synchronization

/// How often the run was asked to stop, and when first.
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
  /// When it was first asked.
  var since: Instant? { state.withLock { $0.since } }
}
