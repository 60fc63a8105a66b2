// When to compare the rows claimed in our name with what is held. Pure.

internal import Queue
internal import Runtime

/// Scans page by page, at intervals and after each loss of the connection.
struct Reconciliation {
  /// The parameters with which a page was asked for.
  struct Question: Equatable {
    var page: Int64?
    /// Rows of later claims may still be under way to us.
    var claimMax: Int32
  }

  /// The time between two pages, so that other statements get their turn.
  private static let pause = Nanoseconds.milliseconds(20)

  private let interval: Nanoseconds
  private let retryInterval: Nanoseconds
  private var page: Int64?
  private var question: Question?
  private var next = Instant(nanoseconds: .min)
  private var mustRestart = false

  init(interval: Nanoseconds, retryInterval: Nanoseconds) {
    self.interval = interval
    self.retryInterval = retryInterval
  }

  /// When the next page is due; distant future while one is under way.
  var due: Instant { question == nil ? next : .distantFuture }

  /// Starts again now, because the connection was lost.
  mutating func restart() {
    page = nil
    next = Instant(nanoseconds: .min)
    mustRestart = question != nil
  }

  /// The page to ask for now; nil if none is due.
  ///
  /// - Parameter claimMax: every claim up to this one has been answered or forgotten.
  mutating func ask(claimMax: Int32, _ now: Instant) -> Question? {
    guard due <= now else { return nil }
    let question = Question(page: page, claimMax: claimMax)
    self.question = question
    return question
  }

  /// A page came. Returns the parameters with which it was asked for.
  mutating func didAnswer(_ answer: ClaimedPage, _ now: Instant) -> Question? {
    defer { question = nil }
    if mustRestart {
      mustRestart = false
    } else {
      page = answer.next
      next = now + (answer.next == nil ? interval : Self.pause)
    }
    return question
  }

  mutating func didFail(_ now: Instant) {
    question = nil
    mustRestart = false
    next = now + retryInterval
  }
}
