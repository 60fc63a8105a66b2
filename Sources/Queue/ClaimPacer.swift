// When to claim next. Pure.
//
// The bell is a hint and may be missing; polling is the guarantee. After many rows: at once, for there may be more. After few,
// and after none, every two milliseconds for a while, because a commit whose own bell was saved by the debounce comes within its
// 5 ms slot. Then only on the bell, with a slow poll behind it.

public import Runtime

/// Adaptive polling.
public struct ClaimPacer: Sendable {
  public struct Intervals: Sendable {
    /// Between polls just after something was found.
    public var busy: Nanoseconds = .milliseconds(2)
    /// How long that goes on.
    public var busyFor: Nanoseconds = .milliseconds(20)
    /// Between polls when nothing is going on.
    public var idle: Nanoseconds = .milliseconds(50)
    /// After a failed claim.
    public var failed: Nanoseconds = .milliseconds(250)
    public init() {}
  }

  /// So many rows, and there may be more.
  private static let manyRows = 30

  private let intervals: Intervals
  private var busyUntil = Instant(nanoseconds: .min)
  private var isBellPending = false

  /// When the next claim is due.
  public private(set) var next = Instant(nanoseconds: .min)

  public init(intervals: Intervals = Intervals()) {
    self.intervals = intervals
  }

  /// The bell rang. While a claim is under way it may have missed the new row, so the bell is remembered.
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
