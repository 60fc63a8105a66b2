// Divides messages into requests. No I/O.
//
// A request is made as soon as another may be under way. With few messages waiting it is small and is sent at once. While the
// maximum number of requests is under way, messages queue up, and the next request contains as many as allowed.
//
// A request that Expo refuses as a whole returns to the queue in parts. Every part is smaller than the request. Splitting therefore
// ends, with single messages at the latest, whatever Expo answers.
//
// A request may also fail without a refusal: it hangs, or Expo fails at it. One of its messages may be the cause, but nobody knows
// which. `ExpoSuspects` remembers its tokens: their next requests are smaller. Who travels alone has one request at a time. A token
// whose requests fail although others work is sent last, and such requests, and those that hang alone, never take more than half of the
// places. More messages to it are not taken while it has one.

internal import Runtime

/// The waiting messages, and the batches into which they are divided.
struct ExpoSendQueue {
  let messagesMax: Int
  let requestsMax: Int
  /// The current maximum number of messages in a request. Less than `messagesMax` after Expo refused a request as too long.
  private(set) var messagesAtOnce: Int
  private var waiting: [PushRequest] = []
  /// Parts of refused requests, and messages of failed ones. They are sent first.
  private var parts: [[PushRequest]] = []
  /// Messages that travel alone.
  private var alone: [PushRequest] = []
  private var suspects = ExpoSuspects()
  /// The tokens of the requests of `alone` that are under way, and whether they are suspects.
  private var aloneUnderWay: [ArraySlice<UInt8>: Bool] = [:]
  private(set) var requestsUnderWay = 0

  init(messagesMax: Int, requestsMax: Int) {
    self.messagesMax = messagesMax
    self.requestsMax = requestsMax
    messagesAtOnce = messagesMax
  }

  var isEmpty: Bool { waiting.isEmpty && parts.isEmpty && alone.isEmpty }

  /// When the first waiting message expires; nil when none waits.
  var earliestDeadline: Instant? {
    [waiting.lazy.map(\.deadline).min(), parts.joined().lazy.map(\.deadline).min(), alone.lazy.map(\.deadline).min()]
      .compactMap(\.self).min()
  }

  /// Returns those that are not taken, because their tokens are suspects that have a request already.
  mutating func append(_ requests: [PushRequest], _ now: Instant) -> [PushRequest] {
    guard suspects.isRemembering(now) else {
      waiting.append(contentsOf: requests)
      return []
    }
    var few: [PushRequest] = []
    var busy: [PushRequest] = []
    for request in requests {
      switch suspects.treatment(of: request.token) {
      case .any: waiting.append(request)
      case .few: few.append(request)
      case .last where aloneUnderWay[request.token] != nil || alone.contains { $0.token == request.token }:
        busy.append(request)
      case .alone, .last: alone.append(request)
      }
    }
    while !few.isEmpty {
      parts.append(Array(few.prefix(ExpoSuspects.few)))
      few.removeFirst(Swift.min(ExpoSuspects.few, few.count))
    }
    return busy
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

  /// Returns the messages of a request that was refused as a whole to the queue, in two halves.
  mutating func append(halvesOf batch: [PushRequest]) {
    let half = (batch.count + 1) / 2
    for part in [batch[..<half], batch[half...]] where !part.isEmpty { parts.append(Array(part)) }
  }

  /// A request with this number of messages was too long for Expo. From now on requests are shorter.
  mutating func sendFewer(than count: Int) {
    messagesAtOnce = Swift.min(messagesAtOnce, Swift.max(1, (count + 1) / 2))
  }

  /// Expo took a request. If it had the current maximum of messages, the maximum grows by one.
  mutating func didTake(_ batch: [PushRequest], _ now: Instant) {
    if batch.count >= messagesAtOnce { messagesAtOnce = Swift.min(messagesMax, messagesAtOnce + 1) }
    suspects.didWork(batch.lazy.map(\.token), now)
  }

  /// A request hung, or Expo failed at it.
  ///
  /// - Parameter isUnderWay: whether it still waits for an answer.
  mutating func didFail(_ batch: [PushRequest], sentAt: Instant, isUnderWay: Bool = false, _ now: Instant) {
    suspects.didFail(batch.map(\.token), sentAt: sentAt, now)
    if isUnderWay, batch.count == 1 { aloneUnderWay[batch[0].token] = true }
  }

  /// Whether this is the request of a suspect: its failure says nothing about others.
  func isSuspect(_ batch: [PushRequest]) -> Bool {
    batch.count == 1 && suspects.treatment(of: batch[0].token) == .last
  }

  /// The messages of the next request; nil if none may be made now.
  mutating func next(_ now: Instant) -> [PushRequest]? {
    guard requestsUnderWay - max(0, suspectsUnderWay - suspectsMax) < requestsMax else { return nil }
    let batch = parts.popLast() ?? nextAlone(isSuspect: false) ?? nextWaiting() ?? nextAlone(isSuspect: true)
    guard let batch else { return nil }
    requestsUnderWay += 1
    return batch
  }

  private var suspectsMax: Int { max(1, requestsMax / 2) }
  private var suspectsUnderWay: Int { aloneUnderWay.values.count { $0 } }

  private mutating func nextWaiting() -> [PushRequest]? {
    guard !waiting.isEmpty else { return nil }
    let batch = Array(waiting.prefix(messagesAtOnce))
    waiting.removeFirst(batch.count)
    return batch
  }

  private mutating func nextAlone(isSuspect: Bool) -> [PushRequest]? {
    if isSuspect, suspectsUnderWay >= suspectsMax { return nil }
    var choice: (index: Int, strikes: Int)?
    for (index, request) in alone.enumerated() where aloneUnderWay[request.token] == nil {
      let strikes = suspects.strikes(of: request.token)
      guard (strikes > 0) == isSuspect, choice.map({ strikes < $0.strikes }) ?? true else { continue }
      choice = (index, strikes)
    }
    guard let choice else { return nil }
    let request = alone.remove(at: choice.index)
    aloneUnderWay[request.token] = isSuspect
    return [request]
  }

  /// Called when a request returned by `next` has ended.
  mutating func finish(_ batch: [PushRequest]) {
    precondition(requestsUnderWay > 0, "more requests were finished than started")
    requestsUnderWay -= 1
    if batch.count == 1 { aloneUnderWay[batch[0].token] = nil }
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
    let removed = (waiting + alone).filter(isRemoved) + parts.joined().filter(isRemoved)
    waiting.removeAll(where: isRemoved)
    alone.removeAll(where: isRemoved)
    parts = parts.map { $0.filter { !isRemoved($0) } }.filter { !$0.isEmpty }
    return removed
  }
}
