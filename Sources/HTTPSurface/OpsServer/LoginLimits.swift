// How often one address may show wrong keys. A good key is subject to no limit, whoever else guesses from wherever. Pure.

internal import Runtime
internal import Settings

/// Wrong keys, counted by who shows them.
struct LoginLimits {
  /// Wrong keys of one address that are not refused at once.
  static let triesPerSecond = 5.0
  /// Answers to one address that are held back at a time.
  static let heldMax = 4
  /// Answers of all addresses together that are held back: each has a connection of the listener.
  static let heldInAllMax = 16
  /// Addresses that are remembered. Of more, whoever has been silent for longest is forgotten.
  static let peersMax = 1_024
  /// An address that has been silent for so long is as any other.
  static let memory = Nanoseconds.seconds(15 * 60)

  private struct Record {
    var rate = TokenBucket(saved: 1, perSecond: triesPerSecond)
    var failures = 0
    var held = 0
    var lastAt: Instant
  }

  private var records: [IPRange: Record] = [:]
  private var heldInAll = 0

  var count: Int { records.count }

  /// How long the answer to the n-th wrong try in a row is held back: 0.25 s, 0.5 s, 1 s, 2 s, then 4 s.
  static func delay(failures: Int) -> Nanoseconds { .milliseconds(250 << Int64(min(max(failures, 1), 5) - 1)) }

  /// The address has shown a wrong key.
  ///
  /// - Returns: how many in a row, if its answer is to be held back until `answered`; nil: it is refused at once.
  mutating func failed(_ peer: IPAddress, _ now: Instant) -> Int? {
    let who = peer.network
    if records[who] == nil { makeRoom(now) }
    var record = current(who, now)
    record.lastAt = now
    defer { records[who] = record }
    guard record.held < Self.heldMax, record.rate.consume(now) else { return nil }
    record.failures += 1
    guard heldInAll < Self.heldInAllMax else { return nil }
    record.held += 1
    heldInAll += 1
    return record.failures
  }

  /// The address has its answer.
  mutating func answered(_ peer: IPAddress) {
    heldInAll -= 1
    records[peer.network]?.held -= 1
  }

  /// The address has shown a good key.
  mutating func succeeded(_ peer: IPAddress) {
    records[peer.network]?.failures = 0
  }

  private func current(_ who: IPRange, _ now: Instant) -> Record {
    guard let record = records[who], now - record.lastAt < Self.memory || record.held > 0 else {
      return Record(lastAt: now)
    }
    return record
  }

  private mutating func makeRoom(_ now: Instant) {
    guard records.count >= Self.peersMax else { return }
    records = records.filter { now - $0.value.lastAt < Self.memory || $0.value.held > 0 }
    while records.count >= Self.peersMax, let oldest = records.min(by: { $0.value.lastAt < $1.value.lastAt }) {
      records[oldest.key] = nil
    }
  }
}
