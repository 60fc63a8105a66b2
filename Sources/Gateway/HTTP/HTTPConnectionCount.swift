// How many connections a listener has, so that nobody can take the descriptors that the pushes need.

internal import Synchronization

/// Counts connections.
final class HTTPConnectionCount: Sendable {
  enum Admission: Equatable {
    case served
    /// One too many: told so, and closed.
    case refused
    /// So many too many that there is no room to tell them.
    case dropped
  }

  private struct Counts {
    var served = 0
    var refused = 0
  }

  /// Connections that may be on their way out at a time.
  static let refusedMax = 64

  private let servedMax: Int
  private let counts = Mutex(Counts())

  init(max: Int) {
    servedMax = max
  }

  func admit() -> Admission {
    counts.withLock { counts in
      if counts.served < servedMax {
        counts.served += 1
        return .served
      }
      guard counts.refused < Self.refusedMax else { return .dropped }
      counts.refused += 1
      return .refused
    }
  }

  func leave(_ admission: Admission) {
    counts.withLock { counts in
      switch admission {
      case .served: counts.served -= 1
      case .refused: counts.refused -= 1
      case .dropped: break
      }
    }
  }
}
