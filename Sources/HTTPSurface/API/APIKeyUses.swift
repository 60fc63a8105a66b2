// When and from which address each key was last used, kept until it is written to the database.

internal import Runtime
internal import Settings
internal import Synchronization

/// Collects the last use of each key. It has at most one entry for each good key.
final class APIKeyUses: Sendable {
  /// The minimum time between two writes of one key's use.
  static let writtenEvery = Nanoseconds.seconds(60)

  private struct Use {
    var at: Instant
    var peer: IPAddress
  }

  /// The uses to write. The arrays have one element for each key.
  struct Batch: Equatable {
    var ids: [Int32] = []
    /// Time since the use, in milliseconds.
    var ages: [Int32] = []
    /// The address; nil if unknown.
    var peers: [String?] = []
  }

  private struct State {
    var pending: [Int32: Use] = [:]
    var writtenAt: [Int32: Instant] = [:]
  }

  private let clock: any GatewayClock
  private let state = Mutex(State())

  init(clock: any GatewayClock = SystemClock()) {
    self.clock = clock
  }

  func note(_ keyID: Int32, from peer: IPAddress) {
    let now = clock.now()
    state.withLock { $0.pending[keyID] = Use(at: now, peer: peer) }
  }

  /// Removes and returns the uses that are due.
  ///
  /// - Parameter all: includes keys whose use was written less than a minute ago. Set when the gateway stops.
  func drain(all: Bool = false) -> Batch {
    let now = clock.now()
    return state.withLock { state in
      state.writtenAt = state.writtenAt.filter { now < $0.value + Self.writtenEvery }
      var batch = Batch()
      for (id, use) in state.pending.sorted(by: { $0.key < $1.key }) where all || state.writtenAt[id] == nil {
        batch.ids.append(id)
        batch.ages.append(Int32(clamping: (now - use.at).milliseconds))
        batch.peers.append(use.peer == .unknown ? nil : use.peer.description)
        state.pending[id] = nil
        state.writtenAt[id] = now
      }
      return batch
    }
  }
}
