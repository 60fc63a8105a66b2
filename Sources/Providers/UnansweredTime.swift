// For how long a provider has not answered: a metric that is 0 while answers arrive as usual. No clock, no I/O.

internal import Runtime

/// Measures the time during which requests wait and none is answered.
struct UnansweredTime {
  /// A wait up to this long is normal and counts as zero.
  private static let ordinary = Nanoseconds.seconds(1)
  /// Requests sent longer ago are ignored while others could be sent, because no request waits this long.
  private static let memory = Nanoseconds.seconds(60)

  private var since: Instant?
  private var lastSentAt = Instant(nanoseconds: .min)

  /// A request is sent.
  mutating func didSend(_ now: Instant) {
    if since == nil || lastSentAt + Self.memory <= now { since = now }
    lastSentAt = now
  }

  /// A request was answered.
  ///
  /// - Parameter isWaiting: whether other requests still wait.
  mutating func didAnswer(_ now: Instant, isWaiting: Bool) { since = isWaiting ? now : nil }

  /// The time since the last answer, or since the first request after it, while requests are unanswered. Zero if it is below one
  /// second, and from one minute after the last request was sent.
  ///
  /// - Parameter isConnected: whether a request could be sent. While none can, the time goes on: that nothing more is sent is no sign of
  ///   an answer.
  func time(_ now: Instant, isConnected: Bool = true) -> Nanoseconds {
    guard let since, lastSentAt + Self.memory > now || !isConnected, since + Self.ordinary < now else { return .zero }
    return now - since
  }
}
