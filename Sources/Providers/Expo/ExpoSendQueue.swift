// Divides messages into requests. No I/O.
//
// A request is made as soon as another may be under way. With few messages waiting it is small and is sent at once. While the
// maximum number of requests is under way, messages queue up, and the next request contains as many as allowed.
//
// A request that Expo refuses because of its combination of messages returns to the queue in parts. Every part is smaller than the
// request. Splitting therefore ends, with single messages at the latest, whatever Expo answers.

internal import Runtime

/// The waiting messages, and the batches into which they are divided.
struct ExpoSendQueue {
  let messagesMax: Int
  let requestsMax: Int
  /// The current maximum number of messages in a request. Less than `messagesMax` after Expo refused a request as too long.
  private(set) var messagesAtOnce: Int
  private var waiting: [PushRequest] = []
  /// Parts of refused requests. They are sent first.
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

  /// Returns the messages of a refused request to the queue, divided by project. Each message that Expo did not name is sent in a
  /// request of its own. If the projects do not divide the messages, every message is sent in a request of its own.
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

  /// Returns the messages of a request that was too long for Expo to the queue, in two halves. From now on requests are shorter.
  mutating func append(halvesOf batch: [PushRequest]) {
    guard !batch.isEmpty else { return }
    let half = (batch.count + 1) / 2
    messagesAtOnce = Swift.min(messagesAtOnce, half)
    for part in [batch[..<half], batch[half...]] where !part.isEmpty { parts.append(Array(part)) }
  }

  /// Expo accepted a request with this number of messages. If that was the current maximum, the maximum grows by one.
  mutating func noteTaken(_ count: Int) {
    if count >= messagesAtOnce { messagesAtOnce = Swift.min(messagesMax, messagesAtOnce + 1) }
  }

  /// The messages of the next request; nil if none wait or if the maximum number of requests is under way.
  mutating func next() -> [PushRequest]? {
    guard requestsUnderWay < requestsMax, !isEmpty else { return nil }
    requestsUnderWay += 1
    if let part = parts.popLast() { return part }
    let batch = Array(waiting.prefix(messagesAtOnce))
    waiting.removeFirst(batch.count)
    return batch
  }

  /// Called when a request returned by `next` has ended.
  mutating func finishOne() {
    precondition(requestsUnderWay > 0, "more requests were finished than started")
    requestsUnderWay -= 1
  }

  /// Removes and returns the waiting messages whose deadline has passed.
  mutating func removeExpired(at now: Instant) -> [PushRequest] {
    guard let earliest = earliestDeadline, earliest <= now else { return [] }
    return remove { $0.deadline <= now }
  }

  /// Removes and returns the waiting messages whose permit has lapsed.
  mutating func removeWithheld(at now: Instant) -> [PushRequest] {
    remove { $0.permit.map { !$0.allows(now) } ?? false }
  }

  /// Removes and returns the waiting messages with these tags.
  mutating func remove(_ tags: Set<UInt64>) -> [PushRequest] { remove { tags.contains($0.tag) } }

  /// Removes and returns all waiting messages.
  mutating func removeAll() -> [PushRequest] { remove { _ in true } }

  private mutating func remove(_ isRemoved: (PushRequest) -> Bool) -> [PushRequest] {
    let removed = waiting.filter(isRemoved) + parts.joined().filter(isRemoved)
    waiting.removeAll(where: isRemoved)
    parts = parts.map { $0.filter { !isRemoved($0) } }.filter { !$0.isEmpty }
    return removed
  }
}

/// The earlier of two instants; nil counts as later than any instant.
private func min(_ left: Instant?, _ right: Instant?) -> Instant? {
  guard let left, let right else { return left ?? right }
  return Swift.min(left, right)
}
