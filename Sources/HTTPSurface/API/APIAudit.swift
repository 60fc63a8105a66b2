// The lines that requests leave in the log: who asked for what from where. Never a token, a payload or a user.

internal import Logging
internal import Runtime
internal import Settings
internal import Synchronization

/// Writes a line for each request that changed something, and sums up those that were refused or failed, so that nobody
/// fills the disk with them.
final class APIAudit: Sendable {
  /// One request.
  struct Entry: Sendable {
    /// Nil: nothing is at its path.
    var operation: APIOperation?
    var status: Int
    /// The key that opened the API, or was meant to; nil: none is known.
    var keyID: Int32?
    var peer: IPAddress
    /// Nil where it was let in.
    var refusal: APIRefusal.Reason?
    /// Of a call that there is.
    var callID: String?
  }

  /// What is summed up.
  private struct Kind: Hashable {
    var operation: APIOperation?
    var status: Int
    var keyID: Int32?
    /// An address, or a network of IPv6.
    var peer: IPRange
    var refusal: APIRefusal.Reason?
  }

  /// Sums of one sort, those of strangers or those of keys, and how fast they may be written.
  private struct Sums {
    let max: Int
    var lines: TokenBucket
    /// In the order in which they began.
    var kinds: [Kind] = []
    var counts: [Kind: Int] = [:]
    /// What found no room among them.
    var others = 0

    mutating func note(_ kind: Kind) {
      if counts[kind] != nil {
        counts[kind]? += 1
      } else if kinds.count < max {
        kinds.append(kind)
        counts[kind] = 1
      } else {
        others += 1
      }
    }

    /// Takes what may be written now. What has no name goes first, for there are always sums while it grows.
    mutating func drain(_ now: Instant) -> (sums: [(kind: Kind, count: Int)], others: Int) {
      var taken: [(Kind, Int)] = []
      let unnamed = others > 0 && lines.consume(now) ? others : 0
      others -= unnamed
      while taken.count < kinds.count, lines.consume(now) {
        let kind = kinds[taken.count]
        taken.append((kind, counts.removeValue(forKey: kind) ?? 0))
      }
      kinds.removeFirst(taken.count)
      return (taken, unnamed)
    }
  }

  private struct State {
    /// Whoever is in the network may cause these: two lines a second in the long run are 40 MB a day.
    var strangers = Sums(max: 64, lines: TokenBucket(saved: 60, perSecond: 2))
    /// These take a key.
    var keys = Sums(max: 256, lines: TokenBucket(saved: 300, perSecond: 20))
  }

  private let logger: Logger
  private let clock: any GatewayClock
  private let state = Mutex(State())

  init(logger: Logger, clock: any GatewayClock = SystemClock()) {
    self.logger = logger
    self.clock = clock
  }

  func note(_ entry: Entry) {
    if 200..<300 ~= entry.status {
      guard let operation = entry.operation, !operation.isReading else { return }
      var metadata: Logger.Metadata = [
        "operation": "\(operation.rawValue)", "status": .stringConvertible(entry.status), "peer": "\(entry.peer)",
      ]
      if let keyID = entry.keyID { metadata["key_id"] = .stringConvertible(keyID) }
      if let callID = entry.callID { metadata["call_id"] = "\(callID)" }
      return logger.info("A key was used", metadata: metadata)
    }
    let kind = Kind(
      operation: entry.operation, status: entry.status, keyID: entry.keyID, peer: entry.peer.network,
      refusal: entry.refusal)
    state.withLock { state in
      if entry.refusal?.isOfStranger ?? (entry.keyID == nil) {
        state.strangers.note(kind)
      } else {
        state.keys.note(kind)
      }
    }
  }

  /// Writes the sums down; to be called once a second.
  func flush() {
    let now = clock.now()
    let taken = state.withLock { [$0.strangers.drain(now), $0.keys.drain(now)] }
    for (sums, others) in taken {
      for (kind, count) in sums { write(kind, count) }
      if others > 0 {
        logger.notice(
          "More requests were refused, of too many peers or keys to name",
          metadata: ["count": .stringConvertible(others)])
      }
    }
  }

  private func write(_ kind: Kind, _ count: Int) {
    var metadata: Logger.Metadata = [
      "status": .stringConvertible(kind.status), "peer": "\(kind.peer)", "count": .stringConvertible(count),
    ]
    if let operation = kind.operation { metadata["operation"] = "\(operation.rawValue)" }
    if let keyID = kind.keyID { metadata["key_id"] = .stringConvertible(keyID) }
    if let refusal = kind.refusal {
      metadata["reason"] = "\(refusal.rawValue)"
      logger.notice("Requests were refused", metadata: metadata)
    } else {
      logger.info("Requests failed", metadata: metadata)
    }
  }
}
