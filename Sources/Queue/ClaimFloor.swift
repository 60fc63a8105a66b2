// The moving lower bound on the deadline in a lane's claim. Pure.
//
// A claimed row stays in the claim's index until it is settled, and a settled one stays there dead for as long as some transaction
// pins xmin: earliest deadlines first, both. A claim that starts at the bottom, a sweep, has to step over what is in flight at
// all gateways, and over all that is dead. As soon as these are many, claims start at the floor, a little below the newest
// deadline claimed: what lies far below is in flight, dead or rare. Every so often a sweep finds the rare: shorter ring times,
// retries and releases with an old deadline.
//
// As long as they are few, every claim is a sweep, and a lane's order is exactly that of its deadlines. What has hours, the
// background, has a floor of its own: it is no reason to look past a ring.

public import Runtime

/// Floors of the lanes of one outbox, and when to sweep below them.
public struct ClaimFloor: Sendable {
  /// How far below the newest claimed deadline the floor lies, for deadlines that were given out of order. Each claim steps
  /// over what was claimed or died in it.
  public static let slack: Nanoseconds = .milliseconds(50)
  /// A sweep that took less cannot have stepped over much.
  private static let quick = Nanoseconds.milliseconds(2)
  /// A sweep that the server gave up after this long was given up for its length.
  private static let tooLong = Nanoseconds.seconds(1)
  /// The pause after the first sweep that was given up. It doubles with each that follows, up to the usual share of the time:
  /// one that was given up may only have met a server that stood still, and a ring below the floor waits for the next.
  private static let firstPause = Nanoseconds.seconds(1)
  private static let doublingsMax = 6
  /// Index entries that a sweep may read before it counts as expensive, and so many more for each row it brings, itself included:
  /// at a quarter of a microsecond each. What is lost beyond it is little: a row below the floor waits for the next sweep, which
  /// comes the sooner the less sweeps waste: 15 ms after one that stepped over 3,000.
  private static let entriesMax = (base: 1_000, row: 2)
  /// What taking a row costs, in entries stepped over.
  private static let entriesPerRow = 30
  /// While there are more, what sweeps waste takes at most one part in so many of the time.
  private static let sweepShare: Int64 = 20

  /// A lane's rings, or its background.
  private struct Range: Hashable {
    var lane: Int16
    var isBackground: Bool
  }

  /// The newest deadlines claimed.
  private var newest: [Range: Int64] = [:]
  private var isSweepExpensive = false
  /// Whether the last sweep took so long that it may have stepped over much; true as long as there was none.
  private var wasSlow = true
  private var isSweeping = false
  private var nextSweep = Instant(nanoseconds: .min)
  /// Sweeps in a row that were given up for their length.
  private var sweepsGivenUp = 0
  /// By the claim under way: the newest deadlines.
  private var claimed: [Range: Int64] = [:]
  private var rows = 0

  public init() {}

  /// A claim begins: `floor` and `backgroundFloor` are for it.
  public mutating func begin(_ now: Instant) {
    isSweeping = !isSweepExpensive || now >= nextSweep
    claimed.removeAll(keepingCapacity: true)
    rows = 0
  }

  /// Where the claim of a lane's rings starts, in microseconds since 1970 on the database's clock; `.min` for the bottom.
  public func floor(of lane: Int16) -> Int64 { floor(of: Range(lane: lane, isBackground: false)) }

  /// As `floor`, of what has more than ten minutes.
  public func backgroundFloor(of lane: Int16) -> Int64 { floor(of: Range(lane: lane, isBackground: true)) }

  private func floor(of range: Range) -> Int64 {
    guard !isSweeping, let newest = newest[range] else { return .min }
    return newest - Self.slack.microseconds
  }

  /// A row was claimed.
  ///
  /// - Parameters:
  ///   - isBackground: it had more than ten minutes.
  ///   - isVisible: a missed call or a notification. One that had less is no reason to look past a ring.
  public mutating func didClaim(
    lane: Int16, deadlineAtMicroseconds deadline: Int64, isBackground: Bool = false, isVisible: Bool = false
  ) {
    rows += 1
    if isVisible, !isBackground { return }
    let range = Range(lane: lane, isBackground: isBackground)
    claimed[range] = max(claimed[range] ?? .min, deadline)
  }

  /// Whether `didFinish` wants to know how many index entries the claim under way steps over: asked before it is over, so that
  /// the question can travel with it. After a quick sweep it does not.
  public var wantsScanCount: Bool { isSweeping && (isSweepExpensive || wasSlow) }

  /// The connection is new: what was given back meanwhile lies below the floor, so the next claim is a sweep.
  public mutating func restart() { nextSweep = Instant(nanoseconds: .min) }

  /// The claim failed.
  ///
  /// - Parameters:
  ///   - cost: how long it took until then.
  ///   - isRefused: the server said so. A connection that broke or fell silent says nothing of the sweep's length: the server
  ///     gives a claim up before its answer is missed.
  public mutating func didFail(cost: Nanoseconds, isRefused: Bool, _ now: Instant) {
    // A sweep that was given up for its length would fail again for as long as it is the first thing done.
    if isSweeping, isRefused, cost >= Self.tooLong {
      isSweepExpensive = true
      nextSweep = now + min(cost * Self.sweepShare, Nanoseconds(Self.firstPause.count << sweepsGivenUp))
      sweepsGivenUp = min(sweepsGivenUp + 1, Self.doublingsMax)
    }
    isSweeping = false
  }

  /// The claim is over.
  ///
  /// - Parameters:
  ///   - cost: how long it took.
  ///   - entriesScanned: how many index entries it stepped over, dead or alive; nil if nobody looked.
  public mutating func didFinish(cost: Nanoseconds, entriesScanned: Int? = nil, _ now: Instant) {
    if isSweeping {
      var wasted = cost
      if let entriesScanned {
        isSweepExpensive = entriesScanned > Self.entriesMax.base + rows * Self.entriesMax.row
        let passed = max(0, entriesScanned - rows)
        wasted = cost * Int64(passed) / Int64(max(1, passed + rows * Self.entriesPerRow))
      }
      wasSlow = cost > Self.quick
      sweepsGivenUp = 0
      nextSweep = now + wasted * Self.sweepShare
    }
    for (range, deadline) in claimed {
      // After a sweep the next claim goes on where that ended, not where the floor was: where one was rare, more may follow.
      newest[range] = isSweeping ? deadline : max(newest[range] ?? .min, deadline)
    }
    isSweeping = false
  }
}
