// When and from where each key was used last, kept until it is written down.

internal import Runtime
internal import Settings
internal import Synchronization

/// Remembers uses of keys. There are as many as there are good keys at most.
final class APIKeyUses: Sendable {
  /// How often the use of one key is written.
  static let writtenEvery = Nanoseconds.seconds(60)

  private struct Use {
    var at: Instant
    var peer: IPAddress
  }

  /// What is to be written, an element a key.
  struct Batch: Equatable {
    var ids: [Int32] = []
    /// How long ago, in milliseconds.
    var ages: [Int32] = []
    /// Nil: not known.
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

  /// Takes what is due.
  ///
  /// - Parameter all: also what was written less than a minute ago: the gateway stops.
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
