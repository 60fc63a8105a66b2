// Periodic work besides deliveries: maintenance jobs, and reports of the lanes' conditions. Pure.

internal import Queue
internal import Runtime

/// Runs at most one job of each kind and one report at a time.
struct Housekeeping {
  private let settings: DispatcherSettings
  /// When to look for a job of each kind; distant future while one is under way.
  private var nextJobs = [JobKind.urgent: Instant(nanoseconds: .min), .upkeep: Instant(nanoseconds: .min)]
  private var isReporting = false
  private var nextReport = Instant(nanoseconds: .min)

  init(settings: DispatcherSettings) {
    self.settings = settings
  }

  /// When the next job or report is due; distant future while all are under way.
  var due: Instant { nextJobs.values.reduce(isReporting ? .distantFuture : nextReport) { min($0, $1) } }

  /// Whether to look for a job of this kind now. `didEndJob` follows.
  mutating func claimsJob(_ kind: JobKind, _ now: Instant) -> Bool {
    guard nextJobs[kind, default: .distantFuture] <= now else { return false }
    nextJobs[kind] = .distantFuture
    return true
  }

  /// No job was due, or a step of one was done or has failed. A job is looked for again after this pause.
  mutating func didEndJob(_ kind: JobKind, pause: Nanoseconds, _ now: Instant) {
    nextJobs[kind] = now + pause
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
