// What is known of every delivery of a load: when it came, what the simulators saw of it, how it ended. Pure: times are
// given to it, in microseconds since 1970, 0 for what has not happened.

/// One delivery.
struct LoadDelivery: Equatable, Sendable {
  /// How a delivery ended, by the names of push.delivery_history.
  enum Outcome: String, CaseIterable, Sendable {
    case delivered
    case deliveredLate = "delivered_late"
    case void, expired, dead

    /// The provider took it.
    var isDelivered: Bool { self == .delivered || self == .deliveredLate }
  }

  var provider: LoadProvider
  /// Its token asks for a fault.
  var isFaulty: Bool
  /// When it was to be enqueued.
  var scheduledAt: Int64 = 0
  /// When the commit was known to have succeeded.
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
  /// Requests made, hedges among them, and those of them that the provider certainly refused.
  var attempts: Int32 = 0
  var refusals: Int32 = 0
  /// Rows of history it has; more than one is one too many.
  var settlements: Int32 = 0
  /// It is in push.deliveries still.
  var isOwed = false

  var isEnqueued: Bool { committedAt > 0 }
  var isSettled: Bool { outcome != nil }

  /// Accepted requests that the record explains: one, and one more for every further try that was not certainly refused, for
  /// it may have been accepted although nobody said so.
  var explainedRequests: Int32 { max(1, attempts - refusals) }
}

/// All deliveries of a run, by their number.
struct LoadLedger: Sendable {
  /// One finished delivery as push.delivery_history tells it.
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
  /// Deliveries of which a simulator accepted a request.
  private(set) var receivedCount = 0
  /// From the schedule to the request, or to the settlement where no simulator's log is read: for the progress.
  private(set) var latency = LatencyHistogram()
  /// There is a simulators' log to check against.
  let hasLog: Bool

  init(hasLog: Bool) {
    self.hasLog = hasLog
  }

  /// Enters a call's deliveries. Calls come in the order of their numbers, before any of them is enqueued.
  ///
  /// - Parameter scheduledAt: 0 for the moment of its commit.
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

  /// A simulator accepted a request. Numbers of no delivery of ours are passed over.
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

  /// Takes over what history says of some calls: all rows of each.
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

  /// Settled deliveries that the log must still show: it is written with a delay.
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
