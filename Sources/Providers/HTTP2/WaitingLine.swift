// What waits for its turn: requests for a stream, invites for a hedge.

/// A queue that takes elements at both ends in constant time. Some wait behind all others.
struct WaitingLine<Element> {
  /// Elements put at the front, in reverse order: the first of the queue is the last element.
  private var front: [Element] = []
  private var back: [Element] = []
  private var backStart = 0
  /// Those behind all others.
  private var last: ArraySlice<Element> = []

  var count: Int { front.count + back.count - backStart + last.count }
  var isEmpty: Bool { count == 0 }
  /// Whether some do not wait behind all others.
  var hasFirst: Bool { count > last.count }
  var first: Element? { front.last ?? (backStart < back.count ? back[backStart] : last.first) }

  mutating func append(_ element: Element) { back.append(element) }
  mutating func appendLast(_ element: Element) { last.append(element) }
  mutating func prepend(_ element: Element) { front.append(element) }

  mutating func popFirst() -> Element? {
    if let element = front.popLast() { return element }
    guard backStart < back.count else { return last.popFirst() }
    let element = back[backStart]
    backStart += 1
    if backStart == back.count {
      back.removeAll(keepingCapacity: true)
      backStart = 0
    } else if backStart >= 1024, backStart * 2 > back.count {
      back.removeFirst(backStart)
      backStart = 0
    }
    return element
  }

  /// Removes those that satisfy a condition, and returns them in their order.
  mutating func remove(where isGone: (Element) -> Bool) -> [Element] {
    let gone = (front.reversed() + back[backStart...] + last).filter(isGone)
    front.removeAll(where: isGone)
    (back, backStart) = (back[backStart...].filter { !isGone($0) }, 0)
    last.removeAll(where: isGone)
    return gone
  }
}
