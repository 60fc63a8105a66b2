// The moving lower bound on the deadline in a lane's claim. Pure.
//
// While some transaction pins xmin, the claim's index keeps every row ever claimed as a dead entry, earliest deadlines first,
// and a claim that starts at the bottom has to step over them all. As soon as that is dear, a claim starts at the floor, a little
// below the newest deadline claimed: what lies far below is dead or rare. Every so often a sweep starts at the bottom and finds
// the rare: shorter ring times, retries and releases with an old deadline.
//
// As long as it is not dear, every claim is a sweep, and a lane's order is exactly that of its deadlines.

public import Runtime

/// Floors of the lanes of one outbox, and when to sweep below them.
public struct ClaimFloor: Sendable {
  /// How far below the newest claimed deadline the floor lies, for deadlines that were given out of order.
  public static let slack: Nanoseconds = .milliseconds(250)
  /// A sweep that takes longer than this, and so much for each row, steps over dead entries. Several times what it takes without.
  static let affordable = (base: Nanoseconds.milliseconds(5), row: Nanoseconds.microseconds(40))
  /// Sweeps that are dear take at most one part in so many of the time.
  private static let sweepShare: Int64 = 10
  /// A lane that gave this many rows may have more below the newest of them.
  private static let manyRows = 50

  private struct Lane {
    var newest = Int64.min
    var count = 0
  }

  private var floors: [Int16: Int64] = [:]
  private var isDear = false
  private var nextSweep = Instant(nanoseconds: .min)
  private var isSweeping = false
  private var claimed: [Int16: Lane] = [:]

  public init() {}

  /// The floors for a claim of these lanes, in microseconds since 1970 on the database's clock; `.min` for none.
  public mutating func floors(for allowances: [LaneAllowance], _ now: Instant) -> [Int64] {
    isSweeping = !isDear || now >= nextSweep
    claimed.removeAll(keepingCapacity: true)
    if isSweeping { return allowances.map { _ in .min } }
    return allowances.map { floors[$0.lane].map { $0 - Self.slack.microseconds } ?? .min }
  }

  /// A row was claimed.
  public mutating func didClaim(lane: Int16, deadlineAtMicroseconds deadline: Int64) {
    claimed[lane, default: Lane()].count += 1
    claimed[lane, default: Lane()].newest = max(claimed[lane]?.newest ?? .min, deadline)
  }

  /// The claim is over and took `cost`.
  public mutating func didFinish(cost: Nanoseconds, _ now: Instant) {
    if isSweeping {
      let rows = claimed.values.reduce(0) { $0 + $1.count }
      isDear = cost > Self.affordable.base + Self.affordable.row * Int64(rows)
      nextSweep = now + cost * Self.sweepShare
    }
    for (id, lane) in claimed {
      // After a sweep that left rows behind, the next claim goes on where it ended, not where the floor was.
      let isLower = isSweeping && lane.count >= Self.manyRows
      floors[id] = isLower ? lane.newest : max(floors[id] ?? .min, lane.newest)
    }
    isSweeping = false
  }
}
