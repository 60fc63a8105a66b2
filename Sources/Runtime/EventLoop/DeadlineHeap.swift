// A binary heap of things that become due, earliest first. Pure; used by the event loop's timers.

/// A min-heap ordered by `Instant`. Elements with equal instants have no particular order.
///
/// It is inlinable because each ring passes through one: generic code of another module took a tenth of the gateway's time.
public struct DeadlineHeap<Element> {
  @usableFromInline
  var entries: [(at: Instant, element: Element)] = []

  @inlinable
  public init() {}

  @inlinable
  public var count: Int { entries.count }
  @inlinable
  public var isEmpty: Bool { entries.isEmpty }

  /// When the earliest element is due; nil if there is none.
  @inlinable
  public var earliest: Instant? { entries.first?.at }

  /// Adds an element. O(log n).
  @inlinable
  public mutating func insert(_ element: Element, at instant: Instant) {
    entries.append((instant, element))
    var child = entries.count - 1
    while child > 0 {
      let parent = (child - 1) / 2
      guard entries[child].at < entries[parent].at else { break }
      entries.swapAt(child, parent)
      child = parent
    }
  }

  /// Removes and returns the earliest element if it is due at `now`. O(log n).
  @inlinable
  public mutating func popDue(_ now: Instant) -> Element? {
    guard let first = entries.first, first.at <= now else { return nil }
    return removeEarliest()
  }

  /// Removes and returns the earliest element, due or not.
  @inlinable
  public mutating func removeEarliest() -> Element? {
    guard let first = entries.first else { return nil }
    let last = entries.removeLast()
    if !entries.isEmpty {
      entries[0] = last
      siftDown()
    }
    return first.element
  }

  /// Removes every element that does not satisfy `isKept`. O(n).
  @inlinable
  public mutating func compact(keeping isKept: (Element) -> Bool) {
    let kept = entries.filter { isKept($0.element) }
    entries.removeAll(keepingCapacity: true)
    for entry in kept { insert(entry.element, at: entry.at) }
  }

  @inlinable
  mutating func siftDown() {
    var parent = 0
    while true {
      let left = 2 * parent + 1
      guard left < entries.count else { return }
      let right = left + 1
      let child = right < entries.count && entries[right].at < entries[left].at ? right : left
      guard entries[child].at < entries[parent].at else { return }
      entries.swapAt(child, parent)
      parent = child
    }
  }
}
