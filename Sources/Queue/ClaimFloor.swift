// The moving lower bound on the deadline in a lane's claim. Pure.
//
// While some transaction pins xmin, the claim's index keeps every row ever claimed as a dead entry, earliest deadlines first,
// and each claim has to step over them all. Rows are claimed in order of deadline, so what lies well below the newest deadline
// claimed is dead or rare. A claim therefore starts at the floor; every so often a sweep starts at minus infinity and finds the
// rare: shorter ring times, retries and releases with an old deadline.
//
// A sweep normally costs what any claim costs, so it may come often: at an interval of ten times what the last one took.
// Only while xmin is pinned is a sweep dear, and then it is that much rarer.

public import Runtime

/// Floors of the lanes of one outbox, and when to sweep below them.
public struct ClaimFloor: Sendable {
  /// How far below the newest claimed deadline the floor lies, for deadlines that were given out of order.
  public static let slack: Nanoseconds = .milliseconds(250)
  private static let sweepShare: Int64 = 10

  private var newestDeadline: [Int16: Int64] = [:]
  private var nextSweep = Instant(nanoseconds: .min)
  private var isSweeping = false

  public init() {}

  /// The floors for a claim of these lanes, in microseconds since 1970 on the database's clock; `.min` for none.
  public mutating func floors(for allowances: [LaneAllowance], _ now: Instant) -> [Int64] {
    isSweeping = now >= nextSweep
    if isSweeping { return allowances.map { _ in .min } }
    return allowances.map { newestDeadline[$0.lane].map { $0 - Self.slack.microseconds } ?? .min }
  }

  /// A row was claimed.
  public mutating func didClaim(lane: Int16, deadlineAtMicroseconds deadline: Int64) {
    newestDeadline[lane] = max(newestDeadline[lane] ?? .min, deadline)
  }

  /// The claim is over and took `cost`.
  public mutating func didFinish(cost: Nanoseconds, _ now: Instant) {
    if isSweeping { nextSweep = now + cost * Self.sweepShare }
    isSweeping = false
  }
}
