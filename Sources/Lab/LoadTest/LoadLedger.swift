// What is known about every delivery of a load: when it was enqueued, what the simulators received, how it ended. Pure:
// times are parameters, in microseconds since 1970; 0 means that the event has not happened.

/// One delivery.
struct LoadDelivery: Equatable, Sendable {
  /// The outcome of a delivery, as in push.delivery_history.
  enum Outcome: String, CaseIterable, Sendable {
    case delivered
    case deliveredLate = "delivered_late"
    case void, expired, dead
    /// There was no delivery: the user had no device, or the app lacks the provider. Never in push.delivery_history.
    case skipped

    /// The provider accepted it.
    var isDelivered: Bool { self == .delivered || self == .deliveredLate }
  }

  /// Nil for a delivery of the user's own call that is not settled yet.
  var provider: LoadProvider?
  /// Whether its token requests a fault.
  var isFaulty: Bool
  /// Whether its app lacks the provider, so that it ends when its call is committed.
  var isSkipped = false
  /// The time at which it was scheduled to be enqueued.
  var scheduledAt: Int64 = 0
  /// The time at which the commit was known to have succeeded.
  var committedAt: Int64 = 0
  /// The first and the last request for it that a simulator accepted, and how many there were.
  var firstReceivedAt: Int64 = 0
  var lastReceivedAt: Int64 = 0
  var receivedCount: Int32 = 0
  /// From push.delivery_history.
  var sentAt: Int64 = 0
  var answeredAt: Int64 = 0
  var finishedAt: Int64 = 0
  var deadlineAt: Int64 = 0
  var outcome: Outcome?
  /// Number of requests, including hedges, and how many of them the provider certainly refused.
  var attempts: Int32 = 0
  var refusals: Int32 = 0
  /// Number of its rows in history; more than one is an error.
  var settlements: Int32 = 0
  /// Whether it is still in push.deliveries.
  var isOwed = false

  /// Whether a provider accepted it, and the simulators' log does not show that.
  var isUnseen: Bool { outcome?.isDelivered == true && receivedCount == 0 }
  var isEnqueued: Bool { committedAt > 0 }
  var isSettled: Bool { outcome != nil }

  /// When the provider's answer was there.
  var endedAt: Int64 { answeredAt > 0 ? answeredAt : finishedAt }

  /// Maximum number of accepted requests that history explains: one, plus one for every further attempt that was not
  /// certainly refused, because it may have been accepted without an answer.
  var explainedRequests: Int32 { max(1, attempts - refusals) }
}

/// All deliveries of a run by their number.
struct LoadLedger: Sendable {
  /// A finished delivery, from push.delivery_history.
  struct Settlement: Equatable, Sendable {
    /// The number of the delivery; of the user's own calls, the number in its call.
    var delivery: Int
    var outcome: LoadDelivery.Outcome
    var sentAt: Int64
    var answeredAt: Int64
    var finishedAt: Int64
    var deadlineAt: Int64
    var attempts: Int32
    var refusals: Int32
    /// The next three matter for the user's own calls only.
    var provider: LoadProvider?
    /// The masked token.
    var device = ""
    /// Whether it was made after another delivery of the call.
    var isFallback = false
  }

  /// A call of the user's own, whose deliveries are known by their numbers in the call.
  private struct OwnCall {
    /// The deliveries that were announced by the answer to the call.
    var announced: Range<Int>
    /// How many of them have been seen.
    var announcedSeen = 0
    /// The index of each delivery seen, by its number in the call; and its device.
    var seen: [Int: (index: Int, device: String)] = [:]
    /// Accepted requests, in the order of the log.
    var requests: [(device: String, at: Int64)] = []
  }

  private(set) var deliveries: [LoadDelivery] = []
  private(set) var enqueuedCount = 0
  private(set) var settledCount = 0
  /// Number of deliveries of which a simulator accepted a request.
  private(set) var receivedCount = 0
  /// Latencies from the scheduled time to the request, or to the settlement if no simulator's log is read. For the
  /// progress display.
  private(set) var latency = LatencyHistogram()
  /// Whether there is a log of the simulators to check against.
  let hasLog: Bool
  /// The time until which the log is complete. What was answered later, and is not in the log, may still be missing there.
  private(set) var logEnd = Int64.max
  /// Number of calls by the answer to them.
  private(set) var answers: [String: Int] = [:]
  /// Number of calls that were refused.
  private(set) var refusedCount = 0
  private var ownCalls: [Int: OwnCall] = [:]
  /// Requests for calls whose commit is not known yet.
  private var early: [Int: [(device: String, at: Int64)]] = [:]

  init(hasLog: Bool) {
    self.hasLog = hasLog
  }

  /// Adds a call's deliveries. Calls are added in the order of their numbers, before any of them is enqueued.
  ///
  /// - Parameter scheduledAt: 0 for the time of its commit.
  mutating func enter(_ call: LoadCall, scheduledAt: Int64 = 0) {
    precondition(call.firstDelivery == deliveries.count, "calls are entered in order")
    for device in call.devices {
      deliveries.append(
        LoadDelivery(
          provider: device.provider, isFaulty: device.fault != nil, isSkipped: call.skips(device),
          scheduledAt: scheduledAt))
    }
  }

  /// Sets the times at which the calls entered so far are due.
  ///
  /// - Parameters:
  ///   - times: microseconds since 1970, by the number of the call.
  ///   - devices: of each call.
  mutating func schedule(_ times: [Int64], devices: Int) {
    for index in deliveries.indices { deliveries[index].scheduledAt = times[index / devices] }
  }

  /// A call's transaction was committed.
  ///
  /// - Parameter areSkipped: whether none of its devices got a delivery.
  mutating func commit(_ range: Range<Int>, at time: Int64, areSkipped: Bool = false) {
    for index in range {
      deliveries[index].committedAt = time
      if deliveries[index].scheduledAt == 0 { deliveries[index].scheduledAt = time }
      if areSkipped || deliveries[index].isSkipped { skip(index) }
    }
    enqueuedCount += range.count
  }

  private mutating func skip(_ index: Int) {
    deliveries[index].outcome = .skipped
    settledCount += 1
  }

  /// Calls were answered.
  mutating func answer(_ text: String, isRefused: Bool, count: Int = 1) {
    answers[text, default: 0] += count
    if isRefused { refusedCount += count }
  }

  /// Calls that count as refused had no answer because nobody could be reached: they are not enqueued, but nobody refused them.
  mutating func excuse(_ count: Int) { refusedCount -= count }

  /// The log is complete until this time only.
  mutating func endLog(at time: Int64) { logEnd = time }

  /// Nobody can say any more what became of the deliveries that are not settled.
  mutating func oweRest() {
    for index in deliveries.indices where deliveries[index].isEnqueued && !deliveries[index].isSettled {
      deliveries[index].isOwed = true
    }
  }

  /// Whether all of these deliveries are settled.
  func isSettled(_ range: Range<Int>) -> Bool {
    range.upperBound <= deliveries.count && deliveries[range].allSatisfy(\.isSettled)
  }

  /// A simulator accepted a request. Unknown numbers are ignored.
  /// - Parameter isKnown: whether its latency is recorded already.
  mutating func receive(_ delivery: Int, at time: Int64, isKnown: Bool = false) {
    guard deliveries.indices.contains(delivery) else { return }
    deliveries[delivery].receivedCount += 1
    deliveries[delivery].lastReceivedAt = max(deliveries[delivery].lastReceivedAt, time)
    let first = deliveries[delivery].firstReceivedAt
    deliveries[delivery].firstReceivedAt = first == 0 ? time : min(first, time)
    guard first == 0 else { return }
    receivedCount += 1
    if deliveries[delivery].scheduledAt > 0, !isKnown { latency.record(time - deliveries[delivery].scheduledAt) }
  }

  /// Stores the history of some calls: all rows of each.
  mutating func settle(_ settlements: [Settlement]) {
    for row in settlements where deliveries.indices.contains(row.delivery) { deliveries[row.delivery].settlements = 0 }
    for row in settlements where deliveries.indices.contains(row.delivery) {
      let isNew = !deliveries[row.delivery].isSettled
      deliveries[row.delivery].settle(row)
      guard isNew else { continue }
      settledCount += 1
      if !hasLog { latency.record(row.finishedAt - deliveries[row.delivery].scheduledAt) }
    }
  }

  /// A delivery was seen in push.deliveries.
  mutating func owe(_ delivery: Int, attempts: Int32, deadlineAt: Int64) {
    guard deliveries.indices.contains(delivery) else { return }
    deliveries[delivery].isOwed = true
    deliveries[delivery].attempts = attempts
    deliveries[delivery].deadlineAt = deadlineAt
  }

  // MARK: - The user's own calls

  /// A call's transaction was committed.
  ///
  /// - Parameters:
  ///   - count: the number of its deliveries, by the answer. A call without any counts as one that was skipped.
  ///   - scheduledAt: 0 for the time of its commit.
  mutating func commitOwn(_ call: Int, deliveries count: Int, scheduledAt: Int64, at time: Int64) {
    let range = deliveries.count..<deliveries.count + max(1, count)
    let delivery = LoadDelivery(
      provider: nil, isFaulty: false, scheduledAt: scheduledAt == 0 ? time : scheduledAt, committedAt: time)
    deliveries.append(contentsOf: repeatElement(delivery, count: range.count))
    enqueuedCount += range.count
    guard count > 0 else { return skip(range.lowerBound) }
    ownCalls[call] = OwnCall(announced: range, requests: early.removeValue(forKey: call) ?? [])
  }

  /// A simulator accepted a request.
  /// - Parameter device: the masked token.
  mutating func receiveOwn(_ call: Int, device: String, at time: Int64) {
    guard ownCalls[call] != nil else { return early[call, default: []].append((device, time)) }
    ownCalls[call]?.requests.append((device, time))
    match(call)
  }

  /// Stores the history of a call: all its rows.
  /// - Returns: whether all deliveries of the call are settled, but for fallbacks that are not made yet.
  mutating func settleOwn(_ call: Int, _ rows: [Settlement]) -> Bool {
    for row in rows {
      guard let index = indexOfOwn(call, row.delivery, device: row.device, isFallback: row.isFallback) else { continue }
      deliveries[index].settlements = 0
    }
    for row in rows {
      guard let index = ownCalls[call]?.seen[row.delivery]?.index else { continue }
      let isNew = !deliveries[index].isSettled
      deliveries[index].provider = row.provider
      deliveries[index].settle(row)
      guard isNew else { continue }
      settledCount += 1
      if !hasLog { latency.record(row.finishedAt - deliveries[index].scheduledAt) }
    }
    match(call)
    return ownCalls[call].map { $0.announced.allSatisfy { deliveries[$0].isSettled } } ?? false
  }

  /// A delivery was seen in push.deliveries.
  mutating func oweOwn(
    _ call: Int, _ number: Int, device: String, isFallback: Bool, attempts: Int32, deadlineAt: Int64
  ) {
    guard let index = indexOfOwn(call, number, device: device, isFallback: isFallback) else { return }
    owe(index, attempts: attempts, deadlineAt: deadlineAt)
  }

  /// The delivery with a number in its call. One that is seen for the first time is an announced one, or a further one.
  private mutating func indexOfOwn(_ call: Int, _ number: Int, device: String, isFallback: Bool) -> Int? {
    guard let own = ownCalls[call] else { return nil }
    if let seen = own.seen[number] { return seen.index }
    let index: Int
    if !isFallback, own.announcedSeen < own.announced.count {
      index = own.announced.lowerBound + own.announcedSeen
      ownCalls[call]?.announcedSeen += 1
    } else {
      index = deliveries.count
      let first = own.announced.first.map { deliveries[$0] }
      deliveries.append(
        LoadDelivery(
          provider: nil, isFaulty: false, scheduledAt: first?.scheduledAt ?? 0, committedAt: first?.committedAt ?? 0))
      enqueuedCount += 1
    }
    ownCalls[call]?.seen[number] = (index, device)
    return index
  }

  /// Finds the delivery of each request of a call. Several devices of a call may look the same when their tokens are masked: then each
  /// request counts for the one that has the fewest.
  private mutating func match(_ call: Int) {
    guard let own = ownCalls[call] else { return }
    var had: Set<Int> = []
    for (index, _) in own.seen.values {
      if deliveries[index].receivedCount > 0 { had.insert(index) }
      (deliveries[index].receivedCount, deliveries[index].firstReceivedAt, deliveries[index].lastReceivedAt) = (0, 0, 0)
    }
    receivedCount -= had.count
    let indices = Dictionary(grouping: own.seen.values.sorted { $0.index < $1.index }, by: \.device)
      .mapValues { $0.map(\.index) }
    for request in own.requests {
      guard
        let index = indices[request.device]?.min(by: { deliveries[$0].receivedCount < deliveries[$1].receivedCount })
      else { continue }
      receive(index, at: request.at, isKnown: had.contains(index))
    }
  }

  /// Whether there are settled deliveries that the log does not show yet: it is written with a delay.
  var isLogBehind: Bool { hasLog && deliveries.contains(where: \.isUnseen) }

  /// When the last of these deliveries was answered; 0 without any.
  var unseenUntil: Int64 { deliveries.reduce(0) { $1.isUnseen ? max($0, $1.endedAt) : $0 } }
}

extension LoadDelivery {
  fileprivate mutating func settle(_ row: LoadLedger.Settlement) {
    outcome = row.outcome
    sentAt = row.sentAt
    answeredAt = row.answeredAt
    finishedAt = row.finishedAt
    deadlineAt = row.deadlineAt
    attempts = row.attempts
    refusals = row.refusals
    settlements += 1
  }
}
