// How long a load test goes on when nobody answers. Pure.

internal import Runtime

/// The attempts since the last answer: of the calls, or of the reads of the database.
struct LoadSilence: Equatable, Sendable {
  /// Maximum time without any answer. Then the run ends, and its verdict is INCOMPLETE.
  static let max = Nanoseconds.seconds(10)

  /// When the first attempt without an answer ended; nil if the last one was answered.
  private var since: Instant?
  /// Number of attempts without an answer.
  private(set) var count = 0

  /// An attempt ended without an answer.
  /// - Returns: whether this has lasted too long.
  mutating func note(at now: Instant) -> Bool {
    let since = since ?? now
    self.since = since
    count += 1
    return now - since >= Self.max
  }

  /// An attempt was answered.
  mutating func end() { self = LoadSilence() }
}
