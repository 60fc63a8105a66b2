// Which messages go into which request. Pure.
//
// A request is made whenever one may be made: with few messages waiting it is small and leaves at once; while all
// requests are under way messages pile up, and the next request takes as many as it may hold.

internal import Runtime

/// Messages that wait, cut into batches.
struct ExpoSendQueue {
  /// The messages of one request.
  struct Batch {
    var requests: [PushRequest]
    /// Made of a batch that Expo refused for mixing projects; not to be split once more.
    var isSplit: Bool
  }

  let messagesMax: Int
  let requestsMax: Int
  private var waiting: [PushRequest] = []
  private var split: [[PushRequest]] = []
  private(set) var requestsUnderWay = 0

  init(messagesMax: Int, requestsMax: Int) {
    self.messagesMax = messagesMax
    self.requestsMax = requestsMax
  }

  var isEmpty: Bool { waiting.isEmpty && split.isEmpty }

  /// When the first waiting message expires; nil when none waits.
  var earliestDeadline: Instant? {
    min(waiting.lazy.map(\.deadline).min(), split.joined().lazy.map(\.deadline).min())
  }

  mutating func append(_ requests: [PushRequest]) {
    waiting.append(contentsOf: requests)
  }

  /// Takes the messages of a refused batch back, by project. Those Expo did not name go by themselves, one a request.
  mutating func append(_ batch: Batch, splitBy projects: [[[UInt8]]]) {
    var left = batch.requests
    for tokens in projects {
      let tokens = Set(tokens)
      let group = left.filter { tokens.contains($0.token) }
      guard !group.isEmpty else { continue }
      left.removeAll { tokens.contains($0.token) }
      split.append(group)
    }
    split.append(contentsOf: left.map { [$0] })
  }

  /// The next request to make, or nil when nothing waits or no more may be under way.
  mutating func next() -> Batch? {
    guard requestsUnderWay < requestsMax, !isEmpty else { return nil }
    requestsUnderWay += 1
    if let group = split.popLast() { return Batch(requests: group, isSplit: true) }
    let count = min(waiting.count, messagesMax)
    let batch = Batch(requests: Array(waiting[..<count]), isSplit: false)
    waiting.removeFirst(count)
    return batch
  }

  /// A request that `next` gave is over.
  mutating func finishOne() {
    precondition(requestsUnderWay > 0, "a request was finished that never began")
    requestsUnderWay -= 1
  }

  /// Takes out what has waited past its deadline.
  mutating func removeExpired(at now: Instant) -> [PushRequest] {
    guard let earliest = earliestDeadline, earliest <= now else { return [] }
    return remove { $0.deadline <= now }
  }

  /// Takes out everything that waits.
  mutating func removeAll() -> [PushRequest] { remove { _ in true } }

  private mutating func remove(_ isRemoved: (PushRequest) -> Bool) -> [PushRequest] {
    let removed = waiting.filter(isRemoved) + split.joined().filter(isRemoved)
    waiting.removeAll(where: isRemoved)
    split = split.map { $0.filter { !isRemoved($0) } }.filter { !$0.isEmpty }
    return removed
  }
}

/// The lesser of two that may be missing.
private func min(_ left: Instant?, _ right: Instant?) -> Instant? {
  guard let left, let right else { return left ?? right }
  return Swift.min(left, right)
}
