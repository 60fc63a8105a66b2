// The log lines about API requests: which key did what, from which address. They contain no token, payload or user.

internal import Logging
internal import Runtime
internal import Settings
internal import Synchronization

/// Logs each request that changed something. Refused and failed requests are logged as sums, so that they cannot fill
/// the disk.
final class APIAudit: Sendable {
  /// One request.
  struct Entry: Sendable {
    /// Nil if no operation has this path.
    var operation: APIOperation?
    var status: Int
    /// The key that was shown, whether it was good or not; nil if its number is not known.
    var keyID: Int32?
    var peer: IPAddress
    /// Nil if the request was not refused because of its key, rate or address.
    var refusal: APIRefusal.Reason?
    /// The call that the request changed; nil if there is none.
    var callID: String?
    /// Number of tokens for which a path of another push server did nothing, although it answers 200.
    var refusedTokens = 0
  }

  /// Requests that are equal in these values are counted together.
  private struct Kind: Hashable {
    var operation: APIOperation?
    var status: Int
    var keyID: Int32?
    /// An IPv4 address, or an IPv6 network.
    var peer: IPRange
    var refusal: APIRefusal.Reason?
  }

  /// The sums of requests without a key, or of those with one, and the limit of their log lines.
  private struct Sums {
    let max: Int
    var lines: TokenBucket
    /// The oldest first.
    var kinds: [Kind] = []
    var counts: [Kind: Int] = [:]
    /// Number of requests that are not counted in `counts`, because `max` kinds are there already.
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

    /// Removes and returns the sums that may be logged now. `others` comes first: while it grows, the kinds alone would
    /// use up the limit.
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
    /// Anyone in the network can cause these. Two lines a second in the long run are 40 MB a day.
    var unauthenticated = Sums(max: 64, lines: TokenBucket(saved: 60, perSecond: 2))
    /// Only the holder of a key can cause these.
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
      if entry.refusedTokens > 0 { metadata["refused_tokens"] = .stringConvertible(entry.refusedTokens) }
      guard entry.keyID != nil else { return logger.info("A path without a key was used", metadata: metadata) }
      return logger.info("A key was used", metadata: metadata)
    }
    let kind = Kind(
      operation: entry.operation, status: entry.status, keyID: entry.keyID, peer: entry.peer.network,
      refusal: entry.refusal)
    state.withLock { state in
      if entry.refusal?.isUnauthenticated ?? (entry.keyID == nil) {
        state.unauthenticated.note(kind)
      } else {
        state.keys.note(kind)
      }
    }
  }

  /// Logs the sums. Called once a second.
  func flush() {
    let now = clock.now()
    let taken = state.withLock { [$0.unauthenticated.drain(now), $0.keys.drain(now)] }
    for (sums, others) in taken {
      for (kind, count) in sums { write(kind, count) }
      if others > 0 {
        logger.notice(
          "More requests were refused, with too many peers or keys to list",
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
