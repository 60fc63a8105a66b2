// How long to wait for the simulators' log at the end of a run. Pure.

internal import Runtime

/// Decides when deliveries that the log does not show are not waited for any longer.
struct LoadLogWait: Sendable {
  /// The simulators write a line within 50 ms. Once the log has got past a request, a line that is missing after this time never comes.
  static let delayMax = Nanoseconds.seconds(2)
  /// Maximum wait for a log that has not got past the last request: its simulators may be frozen.
  static let max = Nanoseconds.seconds(10)
  /// The same in the times of the log: by so much, in microseconds, a later request may be written before an earlier one.
  static let disorderMax: Int64 = 1_000_000

  private let start: Instant
  private var isPastSince: Instant?

  init(at start: Instant) {
    self.start = start
  }

  /// - Parameter isPast: whether the log has got past the last request that it does not show.
  /// - Returns: whether the wait is over.
  mutating func isOver(isPast: Bool, at now: Instant) -> Bool {
    isPastSince = isPast ? isPastSince ?? now : nil
    return isPastSince.map { now - $0 >= Self.delayMax } ?? (now - start >= Self.max)
  }
}
