// The moving lower bound on the deadline in a lane's claim. Pure.
//
// While some transaction pins xmin, the claim's index keeps every row ever claimed as a dead entry, earliest deadlines first,
// and a claim that starts at the bottom, a sweep, has to step over them all. As soon as there are many, claims start at the
// floor, a little below the newest deadline claimed: what lies far below is dead or rare. Every so often a sweep finds the rare:
// shorter ring times, retries and releases with an old deadline.
//
// As long as there are few, every claim is a sweep, and a lane's order is exactly that of its deadlines. What has hours, the
// background, has a floor of its own: it is no reason to look past a ring.

public import Runtime

/// Floors of the lanes of one outbox, and when to sweep below them.
public struct ClaimFloor: Sendable {
  /// How far below the newest claimed deadline the floor lies, for deadlines that were given out of order. Each claim steps
  /// over what died in it.
  public static let slack: Nanoseconds = .milliseconds(50)
  /// A sweep that took less cannot have stepped over much.
  private static let quick = Nanoseconds.milliseconds(2)
  /// Dead entries that a sweep may step over, and so many more for each row it brings: a few milliseconds' worth. An ANALYZE
  /// that comes by leaves fewer.
  private static let deadMax = (base: 20_000, row: 4)
  /// While there are more, sweeps take at most one part in so many of the time.
  private static let sweepShare: Int64 = 20

  /// A lane's rings, or its background.
  private struct Range: Hashable {
    var lane: Int16
    var isBackground: Bool
  }

  /// The newest deadlines claimed.
  private var newest: [Range: Int64] = [:]
  private var isDear = false
  /// Whether the last sweep took so long that it may have stepped over much; true as long as there was none.
  private var wasSlow = true
  private var isSweeping = false
  private var nextSweep = Instant(nanoseconds: .min)
  /// By the claim under way: the newest deadlines.
  private var claimed: [Range: Int64] = [:]
  private var rows = 0

  public init() {}

  /// A claim begins: `floor` and `laterFloor` are for it.
  public mutating func begin(_ now: Instant) {
    isSweeping = !isDear || now >= nextSweep
    claimed.removeAll(keepingCapacity: true)
    rows = 0
  }

  /// Where the claim of a lane's rings starts, in microseconds since 1970 on the database's clock; `.min` for the bottom.
  public func floor(of lane: Int16) -> Int64 { floor(of: Range(lane: lane, isBackground: false)) }

  /// As `floor`, of what has more than ten minutes.
  public func laterFloor(of lane: Int16) -> Int64 { floor(of: Range(lane: lane, isBackground: true)) }

  private func floor(of range: Range) -> Int64 {
    guard !isSweeping, let newest = newest[range] else { return .min }
    return newest - Self.slack.microseconds
  }

  /// A row was claimed.
  public mutating func didClaim(lane: Int16, deadlineAtMicroseconds deadline: Int64, isBackground: Bool = false) {
    let range = Range(lane: lane, isBackground: isBackground)
    claimed[range] = max(claimed[range] ?? .min, deadline)
    rows += 1
  }

  /// Whether `didFinish` wants to know how many index entries the claim under way steps over: asked before it is over, so that
  /// the question can travel with it. After a quick sweep it does not.
  public var isWorthLooking: Bool { isSweeping && (isDear || wasSlow) }

  /// The claim is over.
  ///
  /// - Parameters:
  ///   - cost: how long it took.
  ///   - walked: how many index entries it stepped over, dead or alive; nil if nobody looked.
  public mutating func didFinish(cost: Nanoseconds, walked: Int? = nil, _ now: Instant) {
    if isSweeping {
      if let walked { isDear = walked > Self.deadMax.base + rows * (Self.deadMax.row + 1) }
      wasSlow = cost > Self.quick
      nextSweep = now + cost * Self.sweepShare
    }
    for (range, deadline) in claimed {
      // After a sweep the next claim goes on where that ended, not where the floor was: where one was rare, more may follow.
      newest[range] = isSweeping ? deadline : max(newest[range] ?? .min, deadline)
    }
    isSweeping = false
  }
}
