// For how long a provider has answered nothing: a figure for metrics that is 0 while all is well. No clock, no I/O.

internal import Runtime

/// Since when requests have been waiting for an answer without anybody having got one.
struct UnansweredTime {
  /// So long a wait is ordinary.
  private static let ordinary = Nanoseconds.seconds(1)
  /// What was sent longer ago says nothing any more: nothing is waited for so long.
  private static let memory = Nanoseconds.seconds(60)

  private var since: Instant?
  private var lastSentAt = Instant(nanoseconds: .min)

  /// A request leaves.
  mutating func didSend(_ now: Instant) {
    if since == nil || lastSentAt + Self.memory <= now { since = now }
    lastSentAt = now
  }

  /// A request was answered.
  ///
  /// - Parameter isWaiting: whether others still wait.
  mutating func didAnswer(_ now: Instant, isWaiting: Bool) { since = isWaiting ? now : nil }

  /// The time since the last answer, or since the first request after it, while requests go unanswered; zero below a second, and
  /// a minute after the last request has left.
  func time(_ now: Instant) -> Nanoseconds {
    guard let since, lastSentAt + Self.memory > now, since + Self.ordinary < now else { return .zero }
    return now - since
  }
}
