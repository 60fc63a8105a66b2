// The moving lower bound on the deadline in a lane's claim. Pure.
//
// While some transaction pins xmin, the claim's index keeps every row ever claimed as a dead entry, earliest deadlines first,
// and a claim that starts at the bottom, a sweep, has to step over them all. As soon as there are many, claims start at the
// floor, a little below the newest deadline claimed: what lies far below is dead or rare. Every so often a sweep finds the rare:
// shorter ring times, retries and releases with an old deadline.
//
// As long as there are few, every claim is a sweep, and a lane's order is exactly that of its deadlines.

public import Runtime

/// Floors of the lanes of one outbox, and when to sweep below them.
public struct ClaimFloor: Sendable {
  /// How far below the newest claimed deadline the floor lies, for deadlines that were given out of order. Each claim steps
  /// over what died in it.
  public static let slack: Nanoseconds = .milliseconds(50)
  /// A sweep that took less cannot have stepped over much.
  private static let quick = Nanoseconds.milliseconds(2)
  /// Dead entries that a sweep may step over, and so many more for each row it brings: about half a millisecond's worth.
  private static let deadMax = (base: 2_000, row: 4)
  /// While there are more, sweeps take at most one part in so many of the time.
  private static let sweepShare: Int64 = 20
  /// A lane that gave this many rows may have more below the newest of them.
  private static let manyRows = 50

  private struct Lane {
    var newest = Int64.min
    var count = 0
  }

  private var floors: [Int16: Int64] = [:]
  private var isDear = false
  private var isSweeping = false
  private var nextSweep = Instant(nanoseconds: .min)
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

  /// Whether `didFinish` wants to know how many index entries the claim stepped over.
  public func isWorthLooking(cost: Nanoseconds) -> Bool { isSweeping && cost > Self.quick }

  /// The claim is over.
  ///
  /// - Parameters:
  ///   - cost: how long it took.
  ///   - walked: how many index entries it stepped over, dead or alive; nil if nobody looked.
  public mutating func didFinish(cost: Nanoseconds, walked: Int? = nil, _ now: Instant) {
    if isSweeping {
      let rows = claimed.values.reduce(0) { $0 + $1.count }
      isDear = (walked ?? 0) > Self.deadMax.base + rows * (Self.deadMax.row + 1)
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
