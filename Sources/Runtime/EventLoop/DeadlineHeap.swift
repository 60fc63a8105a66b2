// A binary heap of things that become due, earliest first. Pure; used by the event loop's timers.

/// A min-heap ordered by `Instant`. Elements with equal instants have no particular order.
public struct DeadlineHeap<Element> {
  private var entries: [(at: Instant, element: Element)] = []

  public init() {}

  public var count: Int { entries.count }
  public var isEmpty: Bool { entries.isEmpty }

  /// When the earliest element is due; nil if there is none.
  public var earliest: Instant? { entries.first?.at }

  /// Adds an element. O(log n).
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
  public mutating func popDue(_ now: Instant) -> Element? {
    guard let first = entries.first, first.at <= now else { return nil }
    return removeEarliest()
  }

  /// Removes and returns the earliest element, due or not.
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
  public mutating func compact(keeping isKept: (Element) -> Bool) {
    let kept = entries.filter { isKept($0.element) }
    entries.removeAll(keepingCapacity: true)
    for entry in kept { insert(entry.element, at: entry.at) }
  }

  private mutating func siftDown() {
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
