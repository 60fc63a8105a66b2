// One send request under way, and which of its messages have been answered for.

internal import Runtime

/// The messages of a request between its leaving and its answer. Each gets one result: at the latest a
/// little after its own deadline, although the request goes on for the others.
final class ExpoFlight {
  let batch: [PushRequest]
  let startedAt: Instant
  /// The access token the request carries.
  let accessToken: String?
  var timer: EventLoop.Timer?
  private let lateAnswerTimeout: Nanoseconds
  private var isAnswered: [Bool]

  init(_ batch: [PushRequest], accessToken: String?, startedAt: Instant, lateAnswerTimeout: Nanoseconds) {
    self.lateAnswerTimeout = lateAnswerTimeout
    self.batch = batch
    self.accessToken = accessToken
    self.startedAt = startedAt
    isAnswered = Array(repeating: false, count: batch.count)
  }

  /// When the last message expires: the request need not wait longer.
  var latestDeadline: Instant { batch.lazy.map(\.deadline).max() ?? startedAt }

  /// When the next unanswered message is given up; nil when all are answered.
  var earliestDeadline: Instant? {
    batch.indices.lazy.filter { !self.isAnswered[$0] }.map { self.batch[$0].deadline }.min().map {
      $0 + lateAnswerTimeout
    }
  }

  /// Results for messages that are no longer waited for.
  func expire(at now: Instant) -> [PushResult] {
    answer(status: 0, sentAt: startedAt, now: now) { index in
      batch[index].deadline + lateAnswerTimeout <= now ? .unknown(reason: "TimedOut") : nil
    }
  }

  /// Results for all messages that have none yet; `outcome` is asked by place.
  func answer(
    status: UInt16, sentAt: Instant?, now: Instant, _ outcome: (Int) -> PushOutcome?
  ) -> [PushResult] {
    var results: [PushResult] = []
    for index in batch.indices where !isAnswered[index] {
      guard let outcome = outcome(index) else { continue }
      isAnswered[index] = true
      results.append(
        PushResult(tag: batch[index].tag, outcome: outcome, status: status, sentAt: sentAt, answeredAt: now))
    }
    return results
  }

  /// The messages that have no result yet.
  var unanswered: [PushRequest] { batch.indices.filter { !isAnswered[$0] }.map { batch[$0] } }
}
