// A table with numbered slots: constant-time insertion, look-up and removal without hashing.

/// A table whose elements keep their number until they are removed. Numbers of removed elements are used again.
///
/// It is inlinable, so that other modules get code specialised for their element.
///
/// An element with more than a few words, or with references, should be a class, because reading a slot copies the element.
public struct SlotTable<Element> {
  @usableFromInline var slots: [Element?] = []
  @usableFromInline var free: [Int] = []

  @inlinable
  public init() {}

  /// Number of elements.
  @inlinable
  public var count: Int { slots.count - free.count }
  @inlinable
  public var isEmpty: Bool { count == 0 }

  /// Stores an element and returns its number.
  @inlinable
  public mutating func insert(_ element: Element) -> Int {
    if let slot = free.popLast() {
      slots[slot] = element
      return slot
    }
    slots.append(element)
    return slots.count - 1
  }

  /// Removes and returns the element with this number; nil if there is none.
  @discardableResult
  @inlinable
  public mutating func remove(_ slot: Int) -> Element? {
    guard slots.indices.contains(slot), let element = slots[slot] else { return nil }
    slots[slot] = nil
    free.append(slot)
    return element
  }

  /// The element with this number, which may be changed in place (`table[slot]?.field = …`). Setting nil does not remove it.
  @inlinable
  public subscript(slot: Int) -> Element? {
    get { slots.indices.contains(slot) ? slots[slot] : nil }
    _modify {
      precondition(slots.indices.contains(slot), "no such slot")
      yield &slots[slot]
    }
  }

  /// The numbers in use, in ascending order. O(n).
  public var occupied: [Int] { slots.indices.filter { slots[$0] != nil } }
}
