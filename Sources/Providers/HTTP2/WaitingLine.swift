// What waits for its turn: requests for a stream, invites for a hedge.

/// A queue that takes elements at both ends in constant time.
struct WaitingLine<Element> {
  /// Elements put at the front, in reverse order: the first of the queue is the last element.
  private var front: [Element] = []
  private var back: [Element] = []
  private var backStart = 0

  var count: Int { front.count + back.count - backStart }
  var isEmpty: Bool { count == 0 }
  var first: Element? { front.last ?? (backStart < back.count ? back[backStart] : nil) }

  mutating func append(_ element: Element) { back.append(element) }
  mutating func prepend(_ element: Element) { front.append(element) }

  mutating func popFirst() -> Element? {
    if let element = front.popLast() { return element }
    guard backStart < back.count else { return nil }
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
}
