// Limits how often one address may show wrong keys. Good keys have no limit, even if others guess from the same
// address. Pure.

internal import Runtime
internal import Settings

/// Counts the wrong keys of each address.
struct LoginLimits {
  /// Maximum number of wrong keys a second from one address. More are refused at once.
  static let triesPerSecond = 5.0
  /// Maximum number of delayed answers for one address at a time.
  static let heldMax = 4
  /// Maximum number of delayed answers at a time. Each occupies a connection of the listener.
  static let heldInAllMax = 16
  /// Maximum number of addresses in memory. Above it, the one that has been silent the longest is removed.
  static let peersMax = 1_024
  /// After this time without a wrong key, an address is treated as a new one.
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

  /// The delay of the answer to the n-th wrong key in a row: 0.25 s, 0.5 s, 1 s, 2 s, then 4 s.
  static func delay(failures: Int) -> Nanoseconds { .milliseconds(250 << Int64(min(max(failures, 1), 5) - 1)) }

  /// The address has shown a wrong key.
  ///
  /// - Returns: the number of wrong keys in a row, if the answer must be delayed until `answered` is called; nil if it
  ///   is refused at once.
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

  /// The delayed answer was sent.
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
