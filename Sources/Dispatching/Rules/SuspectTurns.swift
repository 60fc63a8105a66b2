// How many suspects (`ConnectionLosses`) of a lane may be in flight at a time. Pure.

internal import Runtime

/// Decides when the suspects of one lane may be sent.
///
/// At first at most one suspect is in flight, and none within a second of the last loss of one. Each answer allows one more at a
/// time. After a loss the limit is one again. Above half of the limit at that loss, only a full round of answers raises it by
/// one, as in TCP's slow start and congestion avoidance (RFC 5681). Only a few of many suspects may be at fault, and each of
/// those loses all suspects that were sent with it.
struct SuspectTurns {
  /// No suspect is sent for this long after a loss.
  static let pause = Nanoseconds.seconds(1)
  /// The same while other requests are in flight and none was answered since the loss. They would be lost with the suspect.
  static let longestPause = Nanoseconds.seconds(3)
  /// A suspect that waits asks again after this long.
  static let interval = Nanoseconds.milliseconds(100)
  /// Maximum number at a time.
  private static let most = 1024

  private var atATime = 1
  /// Below this limit each answer allows one more at a time.
  private var threshold = Self.most
  /// Number of answers since `atATime` last grew.
  private var answers = 0
  private var inFlight = 0
  private var lostAt = Instant(nanoseconds: .min)
  private var hasAnswered = true

  /// Whether a suspect may be sent now. If so, it counts as sent.
  ///
  /// - Parameter others: number of the lane's requests in flight, including suspects.
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
    // Suspects that were sent together are lost together. Only the first loss changes the limit.
    if atATime > 1 { threshold = max(2, atATime / 2) }
    (atATime, answers, lostAt, hasAnswered) = (1, 0, now, false)
  }
}
