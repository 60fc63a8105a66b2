// One send request under way, and which of its messages have a result.

internal import PushModel
internal import Runtime

/// The messages of a request that has not been answered. Each message gets one result, at the latest `lateAnswerTimeout` after its
/// own deadline. The request continues for the other messages.
final class ExpoFlight {
  let batch: [PushRequest]
  let startedAt: Instant
  /// The access token of the request.
  let accessToken: String?
  /// How long after it left one of its messages is suspected to make it hang. What has not left shows nothing.
  private let patience: Nanoseconds
  private var doubtedAt = Instant.distantFuture
  private(set) var isDoubted = false
  var timer: EventLoop.Timer?
  private let lateAnswerTimeout: Nanoseconds
  private var isAnswered: [Bool]
  /// Whether it was written, or was about to be. libcurl writes it again if the connection turns out to be dead.
  private(set) var hasLeft = false
  /// Those of its messages that were withdrawn. If there are any, it is not written any more, and the others need a new request.
  private var withdrawn: Set<UInt64> = []

  init(
    _ batch: [PushRequest], accessToken: String?, startedAt: Instant, patience: Nanoseconds,
    lateAnswerTimeout: Nanoseconds
  ) {
    self.patience = patience
    self.lateAnswerTimeout = lateAnswerTimeout
    self.batch = batch
    self.accessToken = accessToken
    self.startedAt = startedAt
    isAnswered = Array(repeating: false, count: batch.count)
  }

  /// When the last message expires. The request waits for a connection at most until then.
  var latestDeadline: Instant { batch.lazy.map(\.deadline).max() ?? startedAt }

  /// When the next unanswered message times out, or the request is doubted; nil if all are answered.
  var earliestDeadline: Instant? {
    let next = batch.indices.lazy.filter { !self.isAnswered[$0] }.map { self.timesOut(self.batch[$0]) }.min()
    return next.map { isDoubted ? $0 : min($0, doubtedAt) }
  }

  private func timesOut(_ request: PushRequest) -> Instant {
    request.deadline + lateAnswerTimeout
  }

  /// Results for messages that have timed out.
  func expire(at now: Instant) -> [PushResult] {
    isDoubted = isDoubted || doubtedAt <= now
    return answer(status: 0, sentAt: startedAt, now: now) { index in
      timesOut(batch[index]) <= now ? .unknown(reason: "TimedOut") : nil
    }
  }

  /// Called just before it is written. Returns whether it may be.
  func leave(_ now: Instant) -> Bool {
    guard withdrawn.isEmpty else { return false }
    hasLeft = true
    doubtedAt = now + patience
    for request in batch { request.leftAt = now }
    return true
  }

  /// The owner of these messages waits for their answers no longer. Returns whether the request is suspected from now on.
  func giveUp(on tags: Set<UInt64>) -> Bool {
    guard hasLeft, !isDoubted, batch.contains(where: { tags.contains($0.tag) }) else { return false }
    isDoubted = true
    return true
  }

  /// Results for these messages, unless it has left.
  func withdraw(_ tags: Set<UInt64>, _ now: Instant) -> [PushResult] {
    withdrawn.formUnion(unanswered.lazy.map(\.tag).filter(tags.contains))
    return hasLeft ? [] : refuseWithdrawn(now)
  }

  /// Results for the withdrawn messages, which no request has delivered: they do not go into another.
  func refuseWithdrawn(_ now: Instant) -> [PushResult] {
    answer(status: 0, sentAt: nil, now: now) { index in
      withdrawn.contains(batch[index].tag) ? .refused(reason: "Withdrawn") : nil
    }
  }

  /// Whether its messages need a new request: it was withheld because others of its messages were withdrawn.
  var isToBeDivided: Bool { !withdrawn.isEmpty && !hasLeft }

  /// Results for messages that have none yet. `outcome` is called with the index of each; nil means that the message still waits.
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

  /// The same, to be sent again.
  func takeUnanswered() -> [PushRequest] {
    for request in unanswered { request.leftAt = nil }
    return unanswered
  }
}
