// The moving lower bound on the deadline in a lane's claim. Pure.
//
// A claimed row keeps its index entry until it is settled. A settled row leaves a dead entry for as long as a transaction pins
// xmin. Both kinds have the earliest deadlines. A sweep is a claim that starts at the bottom of the index: it steps over every row
// in flight at any gateway, and over every dead entry. When there are many of these, claims start at the floor instead, a little
// below the newest deadline claimed. Entries far below the floor are in flight, dead or rare. Sweeps find the rare ones from time
// to time: shorter ring times, and retries and releases with an old deadline.
//
// While there are few such entries, every claim is a sweep and takes a lane's deliveries exactly by deadline. The background
// (deadlines hours away) has a floor of its own, so that its deadlines never move the floor of rings.

public import Runtime

/// Floors of the lanes of one outbox, and when to sweep below them.
public struct ClaimFloor: Sendable {
  /// How far below the newest claimed deadline the floor lies, for deadlines that were enqueued out of order. Each claim steps
  /// over the claimed and dead entries within this distance.
  public static let slack: Nanoseconds = .milliseconds(50)
  /// A sweep that took less time than this cannot have stepped over many entries.
  private static let quick = Nanoseconds.milliseconds(2)
  /// When the server cancels a sweep after this time, the sweep was too long.
  private static let tooLong = Nanoseconds.seconds(1)
  /// The pause after the first cancelled sweep. It doubles with each further one, up to the usual share of the time. It starts
  /// short because the server may only have stood still for a moment, and a ring below the floor waits for the next sweep.
  private static let firstPause = Nanoseconds.seconds(1)
  private static let doublingsMax = 6
  /// A sweep is expensive when it reads more than `base` index entries plus `row` entries for each row it brings, that row's own
  /// entry included. An entry costs a quarter of a microsecond. Starting at the floor delays a row below it until the next sweep,
  /// which comes sooner the less the last one wasted: 15 ms after a sweep that stepped over 3,000 entries.
  private static let entriesMax = (base: 1_000, row: 2)
  /// The cost of claiming one row, as a number of entries stepped over.
  private static let entriesPerRow = 30
  /// While sweeps are expensive, they waste at most one part in `sweepShare` of the time.
  private static let sweepShare: Int64 = 20

  /// A lane's rings, or its background.
  private struct Range: Hashable {
    var lane: Int16
    var isBackground: Bool
  }

  /// The newest deadlines claimed.
  private var newest: [Range: Int64] = [:]
  private var isSweepExpensive = false
  /// Whether the last sweep took so long that it may have stepped over many entries. True before the first sweep.
  private var wasSlow = true
  private var isSweeping = false
  private var nextSweep = Instant(nanoseconds: .min)
  /// Number of consecutive sweeps that were cancelled for being too long.
  private var sweepsGivenUp = 0
  /// The newest deadlines of the claim under way.
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

  /// The same for deliveries with more than ten minutes left.
  public func backgroundFloor(of lane: Int16) -> Int64 { floor(of: Range(lane: lane, isBackground: true)) }

  private func floor(of range: Range) -> Int64 {
    guard !isSweeping, let newest = newest[range] else { return .min }
    return newest - Self.slack.microseconds
  }

  /// A row was claimed.
  ///
  /// - Parameters:
  ///   - isBackground: the row had more than ten minutes left.
  ///   - isVisible: the row is a missed call or a notification. With less than ten minutes left it does not move the floor of
  ///     rings.
  public mutating func didClaim(
    lane: Int16, deadlineAtMicroseconds deadline: Int64, isBackground: Bool = false, isVisible: Bool = false
  ) {
    rows += 1
    if isVisible, !isBackground { return }
    let range = Range(lane: lane, isBackground: isBackground)
    claimed[range] = max(claimed[range] ?? .min, deadline)
  }

  /// Whether `didFinish` wants to know how many index entries the claim under way reads. The caller asks when it sends the claim,
  /// so that the query for the count leaves together with it. After a quick sweep the count is not wanted.
  public var wantsScanCount: Bool { isSweeping && (isSweepExpensive || wasSlow) }

  /// The connection is new. Rows that were given back meanwhile lie below the floor, so the next claim is a sweep.
  public mutating func restart() { nextSweep = Instant(nanoseconds: .min) }

  /// The claim failed.
  ///
  /// - Parameters:
  ///   - cost: how long the claim took until it failed.
  ///   - isRefused: the server refused it. A connection that broke or fell silent says nothing about the length of the sweep,
  ///     because the server cancels a claim before the gateway stops waiting for the answer.
  public mutating func didFail(cost: Nanoseconds, isRefused: Bool, _ now: Instant) {
    // A sweep that was too long fails again if the next claim is a sweep, too.
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
  ///   - cost: how long the claim took.
  ///   - entriesScanned: number of index entries it read, dead or alive; nil if they were not counted.
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
      // After a sweep the next claim continues where the sweep ended, not at the old floor: more rare rows may follow there.
      newest[range] = isSweeping ? deadline : max(newest[range] ?? .min, deadline)
    }
    isSweeping = false
  }
}
