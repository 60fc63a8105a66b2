// The settlements of the last half minute, so that what a crash of the database undid is settled again and not sent again. Pure.

internal import Queue
internal import Runtime

/// Remembers what was settled, by position. Its clock stops while the store is away; when there is too much, what people do not
/// see is forgotten first.
struct SettledMemory {
  struct Limits {
    var time = Nanoseconds.seconds(30)
    var count = 200_000
    var bytes = 40 << 20
  }

  /// Where a settlement is, until it is forgotten.
  struct Position: Equatable {
    fileprivate let isVisible: Bool
    fileprivate let number: Int
  }

  /// Settlements in the order in which they came.
  private struct Line {
    private var entries: [SettledDelivery?] = []
    private var stamps: [Nanoseconds] = []
    private var head = 0
    /// The number of the first element of the arrays.
    private var base = 0

    var firstStamp: Nanoseconds? { head < stamps.count ? stamps[head] : nil }
    var nextNumber: Int { base + entries.count }

    mutating func append(_ entry: SettledDelivery, at stamp: Nanoseconds) {
      entries.append(entry)
      stamps.append(stamp)
    }

    /// Takes the oldest out; nil if it was taken before.
    mutating func popFirst() -> SettledDelivery? {
      let entry = entries[head]
      entries[head] = nil
      head += 1
      if head > 1024, head * 2 > entries.count {
        entries.removeFirst(head)
        stamps.removeFirst(head)
        base += head
        head = 0
      }
      return entry
    }

    subscript(number: Int) -> SettledDelivery? {
      let index = number - base
      return entries.indices.contains(index) ? entries[index] : nil
    }

    mutating func remove(_ number: Int) -> SettledDelivery? {
      let index = number - base
      guard entries.indices.contains(index) else { return nil }
      defer { entries[index] = nil }
      return entries[index]
    }
  }

  private let limits: Limits
  private var unseen = Line()
  private var visible = Line()
  private(set) var count = 0
  private(set) var bytes = 0
  /// The settlement remembered last.
  private var newest: SettledDelivery?
  /// The time that passed while the store could be reached.
  private var age = Nanoseconds.zero
  private var countedUntil: Instant?

  init(limits: Limits = Limits()) {
    self.limits = limits
  }

  /// Lets the clock go on, or (false) stand still from now on.
  mutating func advance(_ now: Instant, isStoreAvailable: Bool) {
    if let countedUntil, now > countedUntil { age = age + (now - countedUntil) }
    countedUntil = isStoreAvailable ? now : nil
  }

  /// Remembers a settlement from now on.
  mutating func insert(_ settlement: Settlement, lane: Int, _ now: Instant) -> Position {
    let entry = SettledDelivery(settlement, lane: lane, neighbour: newest, now)
    newest = entry
    count += 1
    bytes += entry.bytes
    defer { if entry.kind.isVisible { visible.append(entry, at: age) } else { unseen.append(entry, at: age) } }
    return Position(
      isVisible: entry.kind.isVisible, number: entry.kind.isVisible ? visible.nextNumber : unseen.nextNumber)
  }

  subscript(position: Position) -> SettledDelivery? {
    position.isVisible ? visible[position.number] : unseen[position.number]
  }

  /// Forgets one settlement.
  @discardableResult
  mutating func remove(_ position: Position) -> SettledDelivery? {
    let entry = position.isVisible ? visible.remove(position.number) : unseen.remove(position.number)
    if let entry { uncount(entry) }
    return entry
  }

  /// Forgets the next settlement whose time is over, or that there is no room for; nil when there is none.
  mutating func forgetNext() -> DeliveryKey? {
    while true {
      let entry: SettledDelivery?
      if isOver(unseen.firstStamp) || (isFull && unseen.firstStamp != nil) {
        entry = unseen.popFirst()
      } else if isOver(visible.firstStamp) || (isFull && visible.firstStamp != nil) {
        entry = visible.popFirst()
      } else {
        return nil
      }
      guard let entry else { continue }
      uncount(entry)
      return entry.key
    }
  }

  private func isOver(_ stamp: Nanoseconds?) -> Bool {
    guard let stamp else { return false }
    return stamp + limits.time <= age
  }

  private var isFull: Bool { count > limits.count || bytes > limits.bytes }

  private mutating func uncount(_ entry: SettledDelivery) {
    count -= 1
    bytes -= entry.bytes
  }
}
