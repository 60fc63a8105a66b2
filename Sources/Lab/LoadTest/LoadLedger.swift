// What is known about every delivery of a load: when it was enqueued, what the simulators received, how it ended. Pure:
// times are parameters, in microseconds since 1970; 0 means that the event has not happened.

/// One delivery.
struct LoadDelivery: Equatable, Sendable {
  /// The outcome of a delivery, as in push.delivery_history.
  enum Outcome: String, CaseIterable, Sendable {
    case delivered
    case deliveredLate = "delivered_late"
    case void, expired, dead

    /// The provider accepted it.
    var isDelivered: Bool { self == .delivered || self == .deliveredLate }
  }

  var provider: LoadProvider
  /// Whether its token requests a fault.
  var isFaulty: Bool
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

  var isEnqueued: Bool { committedAt > 0 }
  var isSettled: Bool { outcome != nil }

  /// Maximum number of accepted requests that history explains: one, plus one for every further attempt that was not
  /// certainly refused, because it may have been accepted without an answer.
  var explainedRequests: Int32 { max(1, attempts - refusals) }
}

/// All deliveries of a run by their number.
struct LoadLedger: Sendable {
  /// A finished delivery, from push.delivery_history.
  struct Settlement: Equatable, Sendable {
    var delivery: Int
    var outcome: LoadDelivery.Outcome
    var sentAt: Int64
    var answeredAt: Int64
    var finishedAt: Int64
    var deadlineAt: Int64
    var attempts: Int32
    var refusals: Int32
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
        LoadDelivery(provider: device.provider, isFaulty: device.fault != nil, scheduledAt: scheduledAt))
    }
  }

  /// A call's transaction was committed.
  mutating func commit(_ range: Range<Int>, at time: Int64) {
    for index in range {
      deliveries[index].committedAt = time
      if deliveries[index].scheduledAt == 0 { deliveries[index].scheduledAt = time }
    }
    enqueuedCount += range.count
  }

  /// A simulator accepted a request. Unknown numbers are ignored.
  mutating func receive(_ delivery: Int, at time: Int64) {
    guard deliveries.indices.contains(delivery) else { return }
    deliveries[delivery].receivedCount += 1
    deliveries[delivery].lastReceivedAt = max(deliveries[delivery].lastReceivedAt, time)
    let first = deliveries[delivery].firstReceivedAt
    deliveries[delivery].firstReceivedAt = first == 0 ? time : min(first, time)
    guard first == 0 else { return }
    receivedCount += 1
    if deliveries[delivery].scheduledAt > 0 { latency.record(time - deliveries[delivery].scheduledAt) }
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

  /// Number of settled deliveries that the log does not show yet: it is written with a delay.
  var isLogBehind: Bool {
    hasLog && deliveries.contains { $0.outcome?.isDelivered == true && $0.receivedCount == 0 }
  }
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
