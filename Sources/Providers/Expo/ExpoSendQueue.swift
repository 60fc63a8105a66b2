// Which messages go into which request. Pure.
//
// A request is made whenever one may be made: with few messages waiting it is small and leaves at once; while all
// requests are under way messages pile up, and the next request takes as many as it may hold.
//
// A request that Expo refuses for what it puts together comes back in parts. Every part is smaller than the whole, so
// this ends, with single messages at the latest, whatever Expo says.

internal import Runtime

/// Messages that wait, cut into batches.
struct ExpoSendQueue {
  let messagesMax: Int
  let requestsMax: Int
  /// How many messages a request holds at most now: fewer than `messagesMax` after Expo found a request too long.
  private(set) var messagesAtOnce: Int
  private var waiting: [PushRequest] = []
  /// Parts of requests that were refused; they go first.
  private var parts: [[PushRequest]] = []
  private(set) var requestsUnderWay = 0

  init(messagesMax: Int, requestsMax: Int) {
    self.messagesMax = messagesMax
    self.requestsMax = requestsMax
    messagesAtOnce = messagesMax
  }

  var isEmpty: Bool { waiting.isEmpty && parts.isEmpty }

  /// When the first waiting message expires; nil when none waits.
  var earliestDeadline: Instant? {
    min(waiting.lazy.map(\.deadline).min(), parts.joined().lazy.map(\.deadline).min())
  }

  mutating func append(_ requests: [PushRequest]) {
    waiting.append(contentsOf: requests)
  }

  /// Takes the messages of a refused request back, by project. Those Expo did not name go by themselves, one a request;
  /// so do all of them when what it named does not part them.
  mutating func append(_ batch: [PushRequest], splitBy projects: [[[UInt8]]]) {
    var groups: [[PushRequest]] = []
    var left = batch
    for tokens in projects {
      let tokens = Set(tokens.lazy.map { $0[...] })
      let group = left.filter { tokens.contains($0.token) }
      guard !group.isEmpty else { continue }
      left.removeAll { tokens.contains($0.token) }
      groups.append(group)
    }
    if groups.count == 1, left.isEmpty { (groups, left) = ([], batch) }
    parts.append(contentsOf: groups)
    parts.append(contentsOf: left.map { [$0] })
  }

  /// Takes the messages of a request back that was too long for Expo. From now on requests are shorter.
  mutating func append(halvesOf batch: [PushRequest]) {
    guard !batch.isEmpty else { return }
    let half = (batch.count + 1) / 2
    messagesAtOnce = Swift.min(messagesAtOnce, half)
    for part in [batch[..<half], batch[half...]] where !part.isEmpty { parts.append(Array(part)) }
  }

  /// A request with this number of messages was not too long: the next one may have one message more.
  mutating func noteTaken(_ count: Int) {
    if count >= messagesAtOnce { messagesAtOnce = Swift.min(messagesMax, messagesAtOnce + 1) }
  }

  /// The messages of the next request to make, or nil when nothing waits or no more may be under way.
  mutating func next() -> [PushRequest]? {
    guard requestsUnderWay < requestsMax, !isEmpty else { return nil }
    requestsUnderWay += 1
    if let part = parts.popLast() { return part }
    let batch = Array(waiting.prefix(messagesAtOnce))
    waiting.removeFirst(batch.count)
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

  /// Takes out what waits of these.
  mutating func remove(_ tags: Set<UInt64>) -> [PushRequest] { remove { tags.contains($0.tag) } }

  /// Takes out everything that waits.
  mutating func removeAll() -> [PushRequest] { remove { _ in true } }

  private mutating func remove(_ isRemoved: (PushRequest) -> Bool) -> [PushRequest] {
    let removed = waiting.filter(isRemoved) + parts.joined().filter(isRemoved)
    waiting.removeAll(where: isRemoved)
    parts = parts.map { $0.filter { !isRemoved($0) } }.filter { !$0.isEmpty }
    return removed
  }
}

/// The lesser of two that may be missing.
private func min(_ left: Instant?, _ right: Instant?) -> Instant? {
  guard let left, let right else { return left ?? right }
  return Swift.min(left, right)
}
