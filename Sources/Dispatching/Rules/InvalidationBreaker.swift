// Decides whether a lane's dead tokens are deleted or quarantined. Pure.
//
// With a wrong key, topic or environment a provider suddenly calls good tokens dead. If more than a set share of a lane's recent
// answers do so, none of its tokens is deleted: they are quarantined until ops decide (docs/protocols.md, rule 10).

public import Runtime

/// The mass-invalidation breaker of one lane, seen from one replica.
public struct InvalidationBreaker: Sendable {
  public struct Limits: Sendable, Equatable {
    /// It opens above this share of answers, in percent.
    public var deadPercent: Int
    /// Minimum number of answers for a decision.
    public var answersMin: Int
    /// How long an answer counts.
    public var window: Nanoseconds

    public init(deadPercent: Int = 20, answersMin: Int = 200, window: Nanoseconds = .seconds(300)) {
      self.deadPercent = deadPercent
      self.answersMin = answersMin
      self.window = window
    }
  }

  private struct Slice {
    var answers = 0
    var dead = 0
  }

  /// Number of slices of the window. The oldest slice is dropped at a time.
  private static let slices: Int64 = 10

  private let limits: Limits
  private var counts: [Slice] = Array(repeating: Slice(), count: Int(slices))
  private var newest: Int64?
  private(set) var isOpen = false

  init(limits: Limits = Limits()) {
    self.limits = limits
  }

  /// Counts an accepted or refused push. Returns the counts if they open the breaker.
  mutating func didHear(isDead: Bool, _ now: Instant) -> String? {
    let slice = advance(now)
    counts[slice].answers += 1
    if isDead { counts[slice].dead += 1 }
    guard isDead, !isOpen else { return nil }
    let answers = counts.reduce(0) { $0 + $1.answers }
    let dead = counts.reduce(0) { $0 + $1.dead }
    guard answers >= limits.answersMin, dead * 100 > answers * limits.deadPercent else { return nil }
    isOpen = true
    return "\(dead) of \(answers) answers in \(limits.window.milliseconds / 1000) s called the token dead"
  }

  /// Ops may have resumed invalidation: an open breaker counts from zero. This may be forged. So one that is not open keeps its counts,
  /// and what follows from an open one stays: the lane is on hold in the database.
  mutating func close() {
    if isOpen { self = InvalidationBreaker(limits: limits) }
  }

  /// The slice of `now`. Slices that have left the window are emptied.
  private mutating func advance(_ now: Instant) -> Int {
    let current = now.nanoseconds / max(1, limits.window.count / Self.slices)
    if let newest, newest < current {
      for slice in max(newest + 1, current - Self.slices + 1)...current { counts[Int(slice % Self.slices)] = Slice() }
    }
    newest = max(newest ?? current, current)
    return Int(current % Self.slices)
  }
}
