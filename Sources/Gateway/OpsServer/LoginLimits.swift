// How often one address may show wrong keys. Whoever guesses is slowed down, and nobody else is. Pure.

internal import Queue
internal import Runtime

/// Tries to log in, counted by who makes them.
struct LoginLimits {
  /// Tries of one address.
  static let triesPerSecond = 5
  /// Wrong tries of one address whose answers are held back at a time.
  static let heldMax = 4
  /// Answers of all addresses together that are held back: each has a connection of the listener.
  static let heldInAllMax = 16
  /// Addresses that are remembered. Of more, whoever has been silent for longest is forgotten.
  static let peersMax = 1_024
  /// An address that has been silent for so long is as any other.
  static let memory = Nanoseconds.seconds(15 * 60)

  private struct Record {
    var rate = RateLimit(perSecond: triesPerSecond)
    var failures = 0
    var held = 0
    var lastAt: Instant
  }

  private var records: [IPRange: Record] = [:]
  private var heldInAll = 0

  /// Whether the answer to a wrong try may be held back; else it is refused at once.
  var mayHold: Bool { heldInAll <= Self.heldInAllMax }

  var count: Int { records.count }

  /// How long the answer to the n-th wrong try in a row is held back: 0.25 s, 0.5 s, 1 s, 2 s, then 4 s.
  static func delay(failures: Int) -> Nanoseconds { .milliseconds(250 << Int64(min(max(failures, 1), 5) - 1)) }

  /// Whether an address may try now; if so, the try counts.
  mutating func tries(_ peer: IPAddress, _ now: Instant) -> Bool {
    let who = peer.network
    if records[who] == nil { makeRoom(now) }
    var record = current(who, now)
    record.lastAt = now
    let isAdmitted = record.held < Self.heldMax && record.rate.available(now) > 0
    if isAdmitted { record.rate.spend(1) }
    records[who] = record
    return isAdmitted
  }

  /// Whether an address that shows a key with each request may do so now. Without a wrong one lately it always may.
  mutating func mayShow(_ peer: IPAddress, _ now: Instant) -> Bool {
    let who = peer.network
    guard records[who]?.failures ?? 0 > 0 else { return true }
    var record = current(who, now)
    defer { records[who] = record }
    return record.held < Self.heldMax && record.rate.available(now) > 0
  }

  /// The address has shown a wrong key, and waits for its answer until `answered`.
  ///
  /// - Returns: how many in a row.
  mutating func failed(_ peer: IPAddress, _ now: Instant) -> Int {
    let who = peer.network
    if records[who] == nil { makeRoom(now) }
    var record = current(who, now)
    record.failures += 1
    record.held += 1
    heldInAll += 1
    record.lastAt = now
    records[who] = record
    return record.failures
  }

  /// The address has its answer.
  mutating func answered(_ peer: IPAddress) {
    heldInAll = max(0, heldInAll - 1)
    let who = peer.network
    guard let held = records[who]?.held else { return }
    records[who]?.held = max(0, held - 1)
  }

  /// A wrong key that came with a request: a try without an answer that is held back.
  mutating func showed(_ peer: IPAddress, _ now: Instant) -> Int {
    let failures = failed(peer, now)
    answered(peer)
    records[peer.network]?.rate.spend(1)
    return failures
  }

  /// The address has shown a good key: its try does not count.
  mutating func succeeded(_ peer: IPAddress) {
    records[peer.network]?.failures = 0
    records[peer.network]?.rate.spend(-1)
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
