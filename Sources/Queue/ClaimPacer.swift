// When to claim next. Pure.
//
// The bell is a hint and may be missing; polling is the guarantee. After a claim with many rows the next claim is due at once,
// because there may be more. After a claim with few rows or none, polling continues every 2 ms for a while: a commit rings no bell
// of its own within 5 ms of another. After that a claim is due when the bell rings, and otherwise at the slow poll.

public import Runtime

/// Adaptive polling.
public struct ClaimPacer: Sendable {
  public struct Intervals: Sendable {
    /// The interval of polls just after rows were found.
    public var busy: Nanoseconds = .milliseconds(2)
    /// How long the busy interval applies.
    public var busyFor: Nanoseconds = .milliseconds(20)
    /// The interval of polls otherwise.
    public var idle: Nanoseconds = .milliseconds(50)
    /// The wait after a failed claim.
    public var failed: Nanoseconds = .milliseconds(250)
    public init() {}
  }

  /// A claim that returns at least this many rows is repeated at once.
  private static let manyRows = 30

  private let intervals: Intervals
  private var busyUntil = Instant(nanoseconds: .min)
  private var isBellPending = false

  /// When the next claim is due.
  public private(set) var next = Instant(nanoseconds: .min)

  public init(intervals: Intervals = Intervals()) {
    self.intervals = intervals
  }

  /// The bell rang. A claim under way may miss the new row, so the bell is remembered until it ends.
  public mutating func didHearBell(_ now: Instant, isClaiming: Bool) {
    busyUntil = max(busyUntil, now + intervals.busyFor)
    next = min(next, now)
    isBellPending = isClaiming
  }

  /// A claim came back with `count` rows.
  public mutating func didClaim(_ count: Int, _ now: Instant) {
    if count > 0 { busyUntil = now + intervals.busyFor }
    if count >= Self.manyRows || isBellPending {
      next = now
    } else {
      next = now + (now < busyUntil ? intervals.busy : intervals.idle)
    }
    isBellPending = false
  }

  /// A claim failed.
  public mutating func didFail(_ now: Instant) {
    isBellPending = false
    next = now + intervals.failed
  }
}
