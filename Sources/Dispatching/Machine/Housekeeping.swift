// Periodic work besides deliveries: maintenance jobs, and reports of the lanes' conditions. Pure.

internal import Queue
internal import Runtime

/// Runs at most one job of each kind and one report at a time.
struct Housekeeping {
  private struct Slot {
    var isAtJob = false
    var nextJob = Instant(nanoseconds: .min)

    var due: Instant { isAtJob ? .distantFuture : nextJob }
  }

  private let settings: DispatcherSettings
  private var slots: [JobKind: Slot] = [.urgent: Slot(), .upkeep: Slot()]
  private var isReporting = false
  private var nextReport = Instant(nanoseconds: .min)

  init(settings: DispatcherSettings) {
    self.settings = settings
  }

  /// When the next job or report is due; distant future while all are under way.
  var due: Instant { slots.values.reduce(isReporting ? .distantFuture : nextReport) { min($0, $1.due) } }

  /// Whether to look for a job of this kind now. `didEndJob` follows.
  mutating func claimsJob(_ kind: JobKind, _ now: Instant) -> Bool {
    guard slots[kind, default: Slot()].due <= now else { return false }
    slots[kind]?.isAtJob = true
    return true
  }

  /// No job was due, or a step of one was done or has failed. A job is looked for again after this pause.
  mutating func didEndJob(_ kind: JobKind, pause: Nanoseconds, _ now: Instant) {
    slots[kind] = Slot(nextJob: now + pause)
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
