// One send request under way, and which of its messages have been answered for.

internal import Runtime

/// The messages of a request between its leaving and its answer. Each gets one result: at the latest at its own
/// deadline, although the request goes on for the others.
final class ExpoFlight {
  let batch: ExpoSendQueue.Batch
  let startedAt: Instant
  var timer: EventLoop.Timer?
  private var isAnswered: [Bool]

  init(_ batch: ExpoSendQueue.Batch, startedAt: Instant) {
    self.batch = batch
    self.startedAt = startedAt
    isAnswered = Array(repeating: false, count: batch.requests.count)
  }

  /// When the last message expires: the request need not wait longer.
  var latestDeadline: Instant { batch.requests.lazy.map(\.deadline).max() ?? startedAt }

  /// When the next unanswered message expires; nil when all are answered.
  var earliestDeadline: Instant? {
    batch.requests.indices.lazy.filter { !self.isAnswered[$0] }.map { self.batch.requests[$0].deadline }.min()
  }

  /// Results for messages whose deadline has come before the answer.
  func expire(at now: Instant) -> [PushResult] {
    answer(status: 0, sentAt: startedAt, now: now) { index in
      batch.requests[index].deadline <= now ? .unknown(reason: "TimedOut") : nil
    }
  }

  /// Results for all messages that have none yet; `outcome` is asked by place.
  func answer(
    status: UInt16, sentAt: Instant?, now: Instant, _ outcome: (Int) -> PushOutcome?
  ) -> [PushResult] {
    var results: [PushResult] = []
    for index in batch.requests.indices where !isAnswered[index] {
      guard let outcome = outcome(index) else { continue }
      isAnswered[index] = true
      results.append(
        PushResult(tag: batch.requests[index].tag, outcome: outcome, status: status, sentAt: sentAt, answeredAt: now))
    }
    return results
  }

  /// The messages that have no result yet, as a batch of their own.
  var unanswered: ExpoSendQueue.Batch {
    ExpoSendQueue.Batch(
      requests: batch.requests.indices.filter { !isAnswered[$0] }.map { batch.requests[$0] }, isSplit: batch.isSplit)
  }
}
