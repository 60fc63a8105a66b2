// The settlements of the last half minute, so that what a crash of the database undid is settled again and not sent again. Pure.
//
// Every delivery is inserted here, and almost none is ever looked up. So settlements are packed one behind the other, in blocks
// that are used again. They are found by chains: a table has the newest settlement of each hash, and each settlement refers to
// the one before it with the same hash. Only the oldest settlement is removed. It ends a chain, so removing it touches no index.

internal import PushModel
internal import Queue
internal import Runtime

/// Remembers settlements by key. Its clock stops while the store cannot be reached. Above the limits, settlements of pushes that
/// people do not see are forgotten first.
struct SettledMemory {
  struct Limits {
    var time = Nanoseconds.seconds(30)
    var count = 200_000
    var bytes = 40 << 20
  }

  private let limits: Limits
  private var unseen = SettledLine()
  private var visible = SettledLine()
  /// The time during which the store could be reached.
  private var age = Nanoseconds.zero
  private var countedUntil: Instant?

  init(limits: Limits = Limits()) {
    self.limits = limits
  }

  /// Number of remembered settlements.
  var count: Int { unseen.count + visible.count }
  /// The approximate memory they take, in bytes.
  var bytes: Int { unseen.bytes + visible.bytes }
  /// The keys of all remembered settlements. O(n).
  var keys: [DeliveryKey] { unseen.keys + visible.keys }

  /// Advances the clock to `now`. From then on it runs or, if the store is not available, stands still.
  mutating func advance(_ now: Instant, isStoreAvailable: Bool) {
    if let countedUntil, now > countedUntil { age = age + (now - countedUntil) }
    countedUntil = isStoreAvailable ? now : nil
  }

  /// Remembers a settlement. Its key must not be remembered yet.
  mutating func insert(_ settlement: Settlement, lane: Int, _ now: Instant) {
    if settlement.delivery.kind.isVisible {
      visible.append(settlement, lane: lane, writtenAt: now, stamp: age)
    } else {
      unseen.append(settlement, lane: lane, writtenAt: now, stamp: age)
    }
  }

  /// The remembered settlement of a delivery; nil if there is none.
  subscript(key: DeliveryKey) -> SettledDelivery? { unseen[key] ?? visible[key] }

  /// Forgets one settlement. Returns whether it was remembered.
  @discardableResult
  mutating func remove(_ key: DeliveryKey) -> Bool { unseen.remove(key) || visible.remove(key) }

  /// Forgets the next settlement that is too old or exceeds the limits, and returns its key; nil if there is none.
  mutating func forgetNext() -> DeliveryKey? {
    if mustForget(unseen) { return unseen.removeFirst() }
    if mustForget(visible) { return visible.removeFirst() }
    return nil
  }

  private func mustForget(_ line: SettledLine) -> Bool {
    guard let stamp = line.firstStamp else { return false }
    return stamp + limits.time <= age || count > limits.count || bytes > limits.bytes
  }
}

/// Settlements in the order in which they came.
private struct SettledLine {
  /// A settlement without its texts. It stores only integers, so copying it touches no reference counts.
  private struct Entry {
    var outboxID: Int64
    var createdAtMicroseconds: Int64
    var sentAt: Instant
    var answeredAt: Instant
    var writtenAt: Instant
    var stamp: Nanoseconds
    var receiptAfter: Nanoseconds
    /// The number of the settlement before it with the same hash.
    var previous: Int
    var pushNumber: Int32
    var attempts: Int32
    var lane: Int32
    /// The offset of its texts in those of its block, and the length of each; -1 for none.
    var texts: Int32
    var callIDLength: Int32
    var messageIDLength: Int32
    var reasonLength: Int32
    var laneID: Int16
    var status: UInt16
    var kind: PushKind
    var outcome: DeliveryOutcome
    var hasFailures: Bool
    var isTaken: Bool

    var key: DeliveryKey {
      DeliveryKey(outboxID: outboxID, pushNumber: pushNumber, createdAtMicroseconds: createdAtMicroseconds)
    }

    static let none = Instant(nanoseconds: .min)
    static let never = Nanoseconds(.min)
  }

  private struct Block {
    var entries: [Entry] = []
    var texts: [UInt8] = []
  }

  /// Number of settlements in a block.
  private static let blockSize = 1 << 10
  /// The number of hashes is 2 to this power.
  private static let hashBits = 18
  private static let bytesOfFailure = 64

  /// The blocks. Those before `firstBlock` are empty.
  private var blocks: [Block] = []
  private var firstBlock = 0
  /// Empty blocks whose memory is used again.
  private var spare: [Block] = []
  /// The number of the first settlement of `blocks[0]`.
  private var base = 0
  /// The numbers of the oldest settlement and of the next.
  private var oldest = 0
  private var next = 0
  /// The number of the newest settlement of each hash; -1 for none.
  private var newest: [Int] = []
  /// The failed tries by number of the settlement. Few settlements have some.
  private var failures: [Int: [FailedAttempt]] = [:]

  private(set) var count = 0
  private(set) var bytes = 0

  /// When the oldest was remembered.
  var firstStamp: Nanoseconds? { oldest < next ? self[oldest].stamp : nil }

  var keys: [DeliveryKey] {
    (oldest..<next).lazy.map { self[$0] }.filter { !$0.isTaken }.map(\.key)
  }

  private subscript(number: Int) -> Entry {
    blocks[(number - base) / Self.blockSize].entries[(number - base) % Self.blockSize]
  }

  /// Deliveries of one call, and of calls with neighbouring ids, have neighbouring hashes, because claims bring them together.
  private static func hash(_ key: DeliveryKey) -> Int {
    let word = key.outboxID &* 4 &+ Int64(key.pushNumber & 3) &+ Int64(key.pushNumber >> 2) &* 40_503_004
    return Int(truncatingIfNeeded: word) & (1 << hashBits - 1)
  }

  // MARK: - In

  mutating func append(_ settlement: Settlement, lane: Int, writtenAt: Instant, stamp: Nanoseconds) {
    if newest.isEmpty { newest = Array(repeating: -1, count: 1 << Self.hashBits) }
    let key = settlement.delivery.key
    let hash = Self.hash(key)
    if next - base == blocks.count * Self.blockSize { addBlock() }
    let block = blocks.count - 1
    let texts = blocks[block].texts.count
    let callID = settlement.delivery.callID
    blocks[block].texts.append(contentsOf: callID)
    let messageIDLength = Self.append(settlement.providerMessageID, to: &blocks[block].texts)
    let reasonLength = Self.append(settlement.reason, to: &blocks[block].texts)
    let entry = Entry(
      outboxID: key.outboxID, createdAtMicroseconds: key.createdAtMicroseconds, sentAt: settlement.sentAt ?? Entry.none,
      answeredAt: settlement.answeredAt ?? Entry.none,
      writtenAt: writtenAt, stamp: stamp, receiptAfter: settlement.receiptAfter ?? Entry.never, previous: newest[hash],
      pushNumber: key.pushNumber, attempts: settlement.attempts, lane: Int32(lane), texts: Int32(texts),
      callIDLength: Int32(callID.count), messageIDLength: messageIDLength, reasonLength: reasonLength,
      laneID: settlement.delivery.lane, status: settlement.status, kind: settlement.delivery.kind,
      outcome: settlement.outcome, hasFailures: !settlement.failures.isEmpty, isTaken: false)
    blocks[block].entries.append(entry)
    if entry.hasFailures { failures[next] = settlement.failures }
    newest[hash] = next
    next += 1
    count += 1
    bytes += size(entry, next - 1)
  }

  private mutating func addBlock() {
    if let block = spare.popLast() { return blocks.append(block) }
    var block = Block()
    block.entries.reserveCapacity(Self.blockSize)
    blocks.append(block)
  }

  /// Returns the length in bytes; -1 for nil.
  private static func append(_ text: String?, to texts: inout [UInt8]) -> Int32 {
    guard let text else { return -1 }
    let before = texts.count
    texts.append(contentsOf: text.utf8)
    return Int32(texts.count - before)
  }

  private func size(_ entry: Entry, _ number: Int) -> Int {
    MemoryLayout<Entry>.stride + Int(entry.callIDLength + max(0, entry.messageIDLength) + max(0, entry.reasonLength))
      + (entry.hasFailures ? failures[number, default: []].count * Self.bytesOfFailure : 0)
  }

  // MARK: - Found

  subscript(key: DeliveryKey) -> SettledDelivery? { number(of: key).map(settled) }

  private func number(of key: DeliveryKey) -> Int? {
    guard count > 0 else { return nil }
    var number = newest[Self.hash(key)]
    while number >= oldest {
      let entry = self[number]
      if entry.key == key { return entry.isTaken ? nil : number }
      number = entry.previous
    }
    return nil
  }

  private func settled(_ number: Int) -> SettledDelivery {
    let entry = self[number]
    let texts = blocks[(number - base) / Self.blockSize].texts
    var end = Int(entry.texts)
    func next(_ length: Int32) -> ArraySlice<UInt8>? {
      guard length >= 0 else { return nil }
      end += Int(length)
      return texts[end - Int(length)..<end]
    }
    let callID = next(entry.callIDLength)
    let messageID = next(entry.messageIDLength)
    let reason = next(entry.reasonLength)
    return SettledDelivery(
      key: entry.key, lane: Int(entry.lane), laneID: entry.laneID,
      kind: entry.kind, outcome: entry.outcome, status: entry.status, attempts: entry.attempts,
      reason: reason.map { String(decoding: $0, as: UTF8.self) },
      providerMessageID: messageID.map { String(decoding: $0, as: UTF8.self) }, callID: Array(callID ?? []),
      sentAt: entry.sentAt == Entry.none ? nil : entry.sentAt,
      answeredAt: entry.answeredAt == Entry.none ? nil : entry.answeredAt,
      failures: failures[number, default: []],
      receiptAfter: entry.receiptAfter == Entry.never ? nil : entry.receiptAfter, writtenAt: entry.writtenAt)
  }

  // MARK: - Out

  /// Forgets a settlement. Returns whether it was remembered.
  mutating func remove(_ key: DeliveryKey) -> Bool {
    guard let number = number(of: key) else { return false }
    uncount(number)
    // Its place is freed when it is the oldest.
    blocks[(number - base) / Self.blockSize].entries[(number - base) % Self.blockSize].isTaken = true
    dropTaken()
    return true
  }

  /// Forgets the oldest settlement. There must be one.
  mutating func removeFirst() -> DeliveryKey {
    let entry = self[oldest]
    uncount(oldest)
    dropFirst()
    dropTaken()
    return entry.key
  }

  private mutating func uncount(_ number: Int) {
    bytes -= size(self[number], number)
    count -= 1
    failures[number] = nil
  }

  /// Drops entries that were removed, so that the oldest entry is a remembered one.
  private mutating func dropTaken() {
    while oldest < next, self[oldest].isTaken { dropFirst() }
  }

  private mutating func dropFirst() {
    oldest += 1
    guard (oldest - base) % Self.blockSize == 0 else { return }
    var block = Block()
    swap(&block, &blocks[firstBlock])
    block.entries.removeAll(keepingCapacity: true)
    block.texts.removeAll(keepingCapacity: true)
    if spare.count < 2 { spare.append(block) }
    firstBlock += 1
    // The places of emptied blocks are removed together.
    if firstBlock == blocks.count || firstBlock >= 64 {
      blocks.removeFirst(firstBlock)
      base += firstBlock * Self.blockSize
      firstBlock = 0
    }
  }
}
