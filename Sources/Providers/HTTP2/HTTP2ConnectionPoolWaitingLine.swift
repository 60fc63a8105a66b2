// The queue of requests that wait for a stream.

/// A queue of requests that takes requests at both ends in constant time.
struct HTTP2ConnectionPoolWaitingLine {
  /// Requests put at the front, in reverse order: the first of the queue is the last element.
  private var front: [Int] = []
  private var back: [Int] = []
  private var backStart = 0

  var count: Int { front.count + back.count - backStart }
  var isEmpty: Bool { count == 0 }
  var first: Int? { front.last ?? (backStart < back.count ? back[backStart] : nil) }

  mutating func append(_ request: Int) { back.append(request) }
  mutating func prepend(_ request: Int) { front.append(request) }

  mutating func popFirst() -> Int? {
    if let request = front.popLast() { return request }
    guard backStart < back.count else { return nil }
    let request = back[backStart]
    backStart += 1
    if backStart == back.count {
      back.removeAll(keepingCapacity: true)
      backStart = 0
    } else if backStart >= 1024, backStart * 2 > back.count {
      back.removeFirst(backStart)
      backStart = 0
    }
    return request
  }
}
