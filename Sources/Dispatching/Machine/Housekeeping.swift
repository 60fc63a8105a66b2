// What is done every so often beside deliveries: maintenance jobs, and telling ops how the lanes are. Pure.

internal import Queue
internal import Runtime

/// One job at a time, one report at a time.
struct Housekeeping {
  private let settings: DispatcherSettings
  private var isAtJob = false
  private var nextJob = Instant(nanoseconds: .min)
  private var isReporting = false
  private var nextReport = Instant(nanoseconds: .min)

  init(settings: DispatcherSettings) {
    self.settings = settings
  }

  /// When the next of it is due; distant future while both are under way.
  var due: Instant { min(isAtJob ? .distantFuture : nextJob, isReporting ? .distantFuture : nextReport) }

  /// Whether a job is to be looked for now; `didFindJob` or `didFail` follows.
  mutating func takesJob(_ now: Instant) -> Bool {
    guard !isAtJob, nextJob <= now else { return false }
    isAtJob = true
    return true
  }

  /// A job was looked for, and there was none.
  mutating func didFindNoJob(_ now: Instant) {
    isAtJob = false
    nextJob = now + settings.jobInterval
  }

  /// A bite of a job was done: perhaps another is due.
  mutating func didRunJob(_ now: Instant) {
    isAtJob = false
    nextJob = now
  }

  mutating func didFailJob(_ now: Instant) {
    isAtJob = false
    nextJob = now + settings.reportInterval
  }

  /// Whether the lanes' conditions are to be reported now; `didReport` follows.
  mutating func reports(_ now: Instant) -> Bool {
    guard !isReporting, nextReport <= now else { return false }
    isReporting = true
    nextReport = now + settings.reportInterval
    return true
  }

  mutating func didReport() { isReporting = false }
}
