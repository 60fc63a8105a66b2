// The settlements of the last half minute, so that what a crash of the database undid is settled again and not sent again. Pure.
//
// Every delivery passes through here, and hardly one is ever asked for. So a settlement is packed behind the one before it, in
// blocks that are used again, and is found by a chain: a table has the newest settlement of each hash, and each settlement the one
// before it. What is forgotten is the oldest, which ends a chain, so that forgetting touches no index.

internal import PushModel
internal import Queue
internal import Runtime

/// Remembers what was settled, by key. Its clock stops while the store is away; when there is too much, what people do not see is
/// forgotten first.
struct SettledMemory {
  struct Limits {
    var time = Nanoseconds.seconds(30)
    var count = 200_000
    var bytes = 40 << 20
  }

  private let limits: Limits
  private var unseen = SettledLine()
  private var visible = SettledLine()
  /// The time that passed while the store could be reached.
  private var age = Nanoseconds.zero
  private var countedUntil: Instant?

  init(limits: Limits = Limits()) {
    self.limits = limits
  }

  /// How many settlements are remembered.
  var count: Int { unseen.count + visible.count }
  /// About how much memory they take.
  var bytes: Int { unseen.bytes + visible.bytes }
  /// The keys of all that is remembered. O(n).
  var keys: [DeliveryKey] { unseen.keys + visible.keys }

  /// Lets the clock go on, or (false) stand still from now on.
  mutating func advance(_ now: Instant, isStoreAvailable: Bool) {
    if let countedUntil, now > countedUntil { age = age + (now - countedUntil) }
    countedUntil = isStoreAvailable ? now : nil
  }

  /// Remembers a settlement from now on, under a key that is not remembered yet.
  mutating func insert(_ settlement: Settlement, lane: Int, _ now: Instant) {
    if settlement.delivery.kind.isVisible {
      visible.append(settlement, lane: lane, writtenAt: now, stamp: age)
    } else {
      unseen.append(settlement, lane: lane, writtenAt: now, stamp: age)
    }
  }

  /// What is remembered of a delivery; nil where nothing is.
  subscript(key: DeliveryKey) -> SettledDelivery? { unseen[key] ?? visible[key] }

  /// Forgets one settlement. Returns whether it was remembered.
  @discardableResult
  mutating func remove(_ key: DeliveryKey) -> Bool { unseen.remove(key) || visible.remove(key) }

  /// Forgets the next settlement whose time is over, or that there is no room for; nil when there is none.
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
  /// What is kept of one beside its texts: plain numbers.
  private struct Entry {
    var outboxID: Int64
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
    /// Where its texts begin among those of its block, and how long each is; -1 for none.
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

    static let none = Instant(nanoseconds: .min)
    static let never = Nanoseconds(.min)
  }

  private struct Block {
    var entries: [Entry] = []
    var texts: [UInt8] = []
  }

  /// Settlements of a block.
  private static let blockSize = 1 << 10
  /// Hashes that are told apart, as a power of two.
  private static let hashBits = 18
  private static let bytesOfFailure = 64

  /// The blocks; those before `firstBlock` are empty.
  private var blocks: [Block] = []
  private var firstBlock = 0
  /// Blocks to be used again, with their memory.
  private var spare: [Block] = []
  /// The number of the first settlement of `blocks[0]`.
  private var base = 0
  /// The numbers of the oldest settlement and of the next.
  private var oldest = 0
  private var next = 0
  /// The number of the newest settlement of each hash; -1 for none.
  private var newest: [Int] = []
  /// The failed tries of the few that have some, by their numbers.
  private var failures: [Int: [FailedAttempt]] = [:]

  private(set) var count = 0
  private(set) var bytes = 0

  /// When the oldest was remembered.
  var firstStamp: Nanoseconds? { oldest < next ? self[oldest].stamp : nil }

  var keys: [DeliveryKey] {
    (oldest..<next).lazy.map { self[$0] }.filter { !$0.isTaken }.map {
      DeliveryKey(outboxID: $0.outboxID, pushNumber: $0.pushNumber)
    }
  }

  private subscript(number: Int) -> Entry {
    blocks[(number - base) / Self.blockSize].entries[(number - base) % Self.blockSize]
  }

  /// Four deliveries of a call, and calls that follow one another, lie side by side: claims bring them together.
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
      outboxID: key.outboxID, sentAt: settlement.sentAt ?? Entry.none, answeredAt: settlement.answeredAt ?? Entry.none,
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
      if entry.outboxID == key.outboxID, entry.pushNumber == key.pushNumber { return entry.isTaken ? nil : number }
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
      key: DeliveryKey(outboxID: entry.outboxID, pushNumber: entry.pushNumber), lane: Int(entry.lane),
      laneID: entry.laneID,
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
    // Its place is given back when its turn comes.
    blocks[(number - base) / Self.blockSize].entries[(number - base) % Self.blockSize].isTaken = true
    dropTaken()
    return true
  }

  /// Forgets the oldest, which there must be.
  mutating func removeFirst() -> DeliveryKey {
    let entry = self[oldest]
    uncount(oldest)
    dropFirst()
    dropTaken()
    return DeliveryKey(outboxID: entry.outboxID, pushNumber: entry.pushNumber)
  }

  private mutating func uncount(_ number: Int) {
    bytes -= size(self[number], number)
    count -= 1
    failures[number] = nil
  }

  /// The oldest is always one that is remembered.
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
    // The places of the blocks that are gone are given up together.
    if firstBlock == blocks.count || firstBlock >= 64 {
      blocks.removeFirst(firstBlock)
      base += firstBlock * Self.blockSize
      firstBlock = 0
    }
  }
}
