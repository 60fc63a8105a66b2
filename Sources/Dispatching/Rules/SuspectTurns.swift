// How many suspects (`ConnectionLosses`) of a lane may be in flight at a time. Pure.

internal import Runtime

/// Tells when the suspects of one lane may be sent.
///
/// At first one at a time, and none for a second after the last loss of one. Each answer allows one more at a time. After a loss
/// it begins with one again, and above half of what was allowed then only a full round of answers allows one more, as in TCP's
/// slow start and congestion avoidance (RFC 5681). Few of many suspects may be at fault, and each of those takes down all that
/// were sent with it.
struct SuspectTurns {
  /// No suspect is sent for this long after a loss.
  static let pause = Nanoseconds.seconds(1)
  /// The same while other requests are in flight and none was answered since: they would be lost with the suspect.
  static let longestPause = Nanoseconds.seconds(3)
  /// A suspect that waits asks again after this long.
  static let interval = Nanoseconds.milliseconds(100)
  /// The largest number at a time.
  private static let most = 1024

  private var atATime = 1
  /// Below it each answer allows one more at a time.
  private var threshold = Self.most
  /// Answers since `atATime` last grew.
  private var answers = 0
  private var inFlight = 0
  private var lostAt = Instant(nanoseconds: .min)
  private var hasAnswered = true

  /// Whether a suspect may be sent now; if so, it counts as sent.
  ///
  /// - Parameter others: the lane's requests in flight, suspects included.
  mutating func grant(inFlight others: Int, _ now: Instant) -> Bool {
    let isAwaited = !hasAnswered && others > inFlight
    guard inFlight < atATime, lostAt + (isAwaited ? Self.longestPause : Self.pause) <= now else { return false }
    inFlight += 1
    return true
  }

  /// The request of a suspect ended.
  mutating func didReturn(isAnswered: Bool) {
    inFlight -= 1
    guard isAnswered else { return }
    answers += 1
    guard atATime < threshold || answers >= atATime else { return }
    (atATime, answers) = (min(atATime + 1, Self.most), 0)
  }

  /// Any request of the lane was answered.
  mutating func didAnswer() { hasAnswered = true }

  /// The connection was lost while a suspect that had its turn was in flight.
  mutating func didLose(_ now: Instant) {
    // Suspects sent together are lost together. The first loss says how many were allowed; the others change nothing.
    if atATime > 1 { threshold = max(2, atATime / 2) }
    (atATime, answers, lostAt, hasAnswered) = (1, 0, now, false)
  }
}
