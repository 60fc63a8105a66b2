// When to compare the rows claimed in our name with what is held. Pure.

internal import Queue
internal import Runtime

/// Scans page by page, at intervals and after each loss of the connection.
struct Reconciliation {
  /// The time between two pages, so that other statements get their turn.
  private static let pause = Nanoseconds.milliseconds(20)

  private let settings: DispatcherSettings
  /// Where the next page, or the one under way, begins; nil: at the start.
  private(set) var page: Int64?
  /// Of the page under way: rows of later claims may still be under way to us.
  private var claimMax: Int32?
  private var next = Instant(nanoseconds: .min)
  private var mustRestart = false

  init(settings: DispatcherSettings) {
    self.settings = settings
  }

  /// When the next page is due; distant future while one is under way.
  var due: Instant { claimMax == nil ? next : .distantFuture }

  /// Starts again now, because the connection was lost.
  mutating func restart() {
    page = nil
    next = Instant(nanoseconds: .min)
    mustRestart = claimMax != nil
  }

  /// Whether to ask for `page` now.
  ///
  /// - Parameter claimMax: every claim up to this one has been answered or forgotten.
  mutating func asks(claimMax: Int32, _ now: Instant) -> Bool {
    guard due <= now else { return false }
    self.claimMax = claimMax
    return true
  }

  /// A page came. Returns the claims up to which its rows can be compared.
  mutating func didAnswer(_ answer: ClaimedPage, _ now: Instant) -> Int32? {
    defer { (claimMax, mustRestart) = (nil, false) }
    if !mustRestart {
      page = answer.next
      next = now + (answer.next == nil ? settings.scanInterval : Self.pause)
    }
    return claimMax
  }

  mutating func didFail(_ now: Instant) {
    (claimMax, mustRestart) = (nil, false)
    next = now + settings.retryInterval
  }
}
