// Numbered places for things in flight: constant-time insert, look-up and removal without hashing.

/// A table whose elements keep their number until they are removed; numbers of removed elements are used again.
///
/// Inlinable, so that other modules get code made for their element.
///
/// An element that holds more than a few words or any reference is better a class: reading a slot copies it.
public struct SlotTable<Element> {
  @usableFromInline var slots: [Element?] = []
  @usableFromInline var free: [Int] = []

  @inlinable
  public init() {}

  /// How many elements there are.
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

  /// Takes the element with this number out; nil when there is none.
  @discardableResult
  @inlinable
  public mutating func remove(_ slot: Int) -> Element? {
    guard slots.indices.contains(slot), let element = slots[slot] else { return nil }
    slots[slot] = nil
    free.append(slot)
    return element
  }

  /// The element with this number, to be changed in place (`table[slot]?.field = …`); setting nil is not a removal.
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
