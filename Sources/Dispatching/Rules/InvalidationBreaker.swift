// Whether a lane's provider is believed when it calls tokens dead. Pure.
//
// A wrong key, topic or environment makes a provider call good tokens dead, all at once. When more than a set share of a lane's
// recent answers say so, its tokens are quarantined instead of invalidated until ops have looked (docs/protocols.md, rule 10).

public import Runtime

/// The mass-invalidation breaker of one lane, seen from one replica.
public struct InvalidationBreaker: Sendable {
  public struct Limits: Sendable, Equatable {
    /// It opens above this share of answers, in percent.
    public var deadPercent: Int
    /// Fewer answers say nothing.
    public var answersMin: Int
    /// How far back answers count.
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

  /// The window is counted in so many slices, of which the oldest is dropped at a time.
  private static let slices: Int64 = 10

  private let limits: Limits
  private var counts: [Slice] = Array(repeating: Slice(), count: Int(slices))
  private var newest: Int64?
  private(set) var isOpen = false

  init(limits: Limits = Limits()) {
    self.limits = limits
  }

  /// The provider accepted or refused a push. Returns what was seen if that opens the breaker.
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

  /// Ops believe the provider again: what was counted is forgotten.
  mutating func reset() {
    self = InvalidationBreaker(limits: limits)
  }

  /// The slice of `now`; those that have left the window are emptied.
  private mutating func advance(_ now: Instant) -> Int {
    let current = now.nanoseconds / max(1, limits.window.count / Self.slices)
    if let newest, newest < current {
      for slice in max(newest + 1, current - Self.slices + 1)...current { counts[Int(slice % Self.slices)] = Slice() }
    }
    newest = max(newest ?? current, current)
    return Int(current % Self.slices)
  }
}
