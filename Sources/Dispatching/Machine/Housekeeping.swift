// Periodic work besides deliveries: maintenance jobs, and reports of the lanes' conditions. Pure.

internal import Queue
internal import Runtime

/// Runs at most one job and one report at a time.
struct Housekeeping {
  private let settings: DispatcherSettings
  private var isAtJob = false
  private var nextJob = Instant(nanoseconds: .min)
  private var isReporting = false
  private var nextReport = Instant(nanoseconds: .min)

  init(settings: DispatcherSettings) {
    self.settings = settings
  }

  /// When the next job or report is due; distant future while both are under way.
  var due: Instant { min(isAtJob ? .distantFuture : nextJob, isReporting ? .distantFuture : nextReport) }

  /// Whether to look for a job now. `didFindJob` or `didFail` follows.
  mutating func claimsJob(_ now: Instant) -> Bool {
    guard !isAtJob, nextJob <= now else { return false }
    isAtJob = true
    return true
  }

  /// No job was due.
  mutating func didFindNoJob(_ now: Instant) {
    isAtJob = false
    nextJob = now + settings.jobInterval
  }

  /// A step of a job was done. Another job may be due.
  mutating func didRunJob(_ now: Instant) {
    isAtJob = false
    nextJob = now
  }

  mutating func didFailJob(_ now: Instant) {
    isAtJob = false
    nextJob = now + settings.reportInterval
  }

  /// Whether to report the lanes' conditions now. `didReport` follows.
  mutating func reports(_ now: Instant) -> Bool {
    guard !isReporting, nextReport <= now else { return false }
    isReporting = true
    nextReport = now + settings.reportInterval
    return true
  }

  mutating func didReport() { isReporting = false }
}
