// A queue in which owners take turns, however many elements one of them has.

/// Waiting elements by owner, usually an app.
///
/// Owners take turns; the elements of one owner keep their order. A full queue drops the last element of the owner who has
/// the most, so that no owner is refused because of another.
public struct FairQueue<Owner: Hashable & Sendable, Element> {
  private let countMax: Int
  private var queues: [Owner: [Element]] = [:]
  /// Owners with elements, the next to serve first.
  private var turns: [Owner] = []
  public private(set) var count = 0

  /// - Parameter countMax: maximum number of elements of all owners together.
  public init(countMax: Int) {
    self.countMax = countMax
  }

  public var isEmpty: Bool { count == 0 }

  /// Adds an element at the end of its owner's.
  ///
  /// - Returns: the element that found no place: this one, or the last of the owner who has the most waiting.
  public mutating func append(_ element: Element, of owner: Owner) -> Element? {
    var displaced: Element?
    if count >= countMax {
      guard let largest = queues.max(by: { $0.value.count < $1.value.count }), largest.key != owner,
        largest.value.count > queues[owner, default: []].count + 1
      else { return element }
      displaced = removeLast(of: largest.key)
    }
    if queues[owner] == nil { turns.append(owner) }
    queues[owner, default: []].append(element)
    count += 1
    return displaced
  }

  /// Takes the next element whose owner may be served.
  public mutating func popFirst(where mayServe: (Owner) -> Bool = { _ in true }) -> (owner: Owner, element: Element)? {
    guard let index = turns.firstIndex(where: mayServe) else { return nil }
    let owner = turns.remove(at: index)
    guard var queue = queues[owner], !queue.isEmpty else { return nil }
    let element = queue.removeFirst()
    count -= 1
    queues[owner] = queue.isEmpty ? nil : queue
    if !queue.isEmpty { turns.append(owner) }
    return (owner, element)
  }

  /// Removes an owner's first element that matches.
  public mutating func remove(of owner: Owner, where matches: (Element) -> Bool) -> Element? {
    guard let index = queues[owner]?.firstIndex(where: matches) else { return nil }
    return remove(at: index, of: owner)
  }

  private mutating func removeLast(of owner: Owner) -> Element? {
    guard let queue = queues[owner], !queue.isEmpty else { return nil }
    return remove(at: queue.count - 1, of: owner)
  }

  private mutating func remove(at index: Int, of owner: Owner) -> Element? {
    guard let element = queues[owner]?.remove(at: index) else { return nil }
    count -= 1
    if queues[owner]?.isEmpty == true {
      queues[owner] = nil
      turns.removeAll { $0 == owner }
    }
    return element
  }
}
