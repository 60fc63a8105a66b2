// The moving lower bound on the deadline in a lane's claim. Pure.
//
// While some transaction pins xmin, the claim's index keeps every row ever claimed as a dead entry, earliest deadlines first,
// and a claim that starts at the bottom, a sweep, has to step over them all. As soon as that is dear, claims start at the floor,
// a little below the newest deadline claimed: what lies far below is dead or rare. Every so often a sweep finds the rare:
// shorter ring times, retries and releases with an old deadline.
//
// As long as it is not dear, claims are sweeps, and a lane's order is that of its deadlines. What is dear is found by comparison:
// one claim in eight starts at the floor meanwhile.

public import Runtime

/// Floors of the lanes of one outbox, and when to sweep below them.
public struct ClaimFloor: Sendable {
  /// How far below the newest claimed deadline the floor lies, for deadlines that were given out of order. Each claim steps
  /// over what died in it.
  public static let slack: Nanoseconds = .milliseconds(50)
  /// While sweeps are dear they take at most one part in so many of the time.
  private static let sweepShare: Int64 = 20
  /// While they are not, one claim in so many starts at the floor.
  private static let comparisonShare = 8
  /// A claim that brings this many rows tells what a row costs, and may have left more.
  private static let manyRows = 50
  /// What a claim of few rows may take.
  private static let affordable = Nanoseconds.milliseconds(5)

  /// What a row costs, claim by claim, in nanoseconds; the newest counts a fourth.
  private struct Cost {
    private(set) var average: Double?

    mutating func note(_ cost: Nanoseconds, rows: Int) {
      let each = Double(cost.count) / Double(rows)
      average = average.map { $0 * 0.75 + each * 0.25 } ?? each
    }
  }

  private struct Lane {
    var newest = Int64.min
    var count = 0
  }

  private var floors: [Int16: Int64] = [:]
  private var isDear = false
  private var isSweeping = false
  private var nextSweep = Instant(nanoseconds: .min)
  private var claims = 0
  private var sweepCost = Cost()
  private var floorCost = Cost()
  private var claimed: [Int16: Lane] = [:]

  public init() {}

  /// The floors for a claim of these lanes, in microseconds since 1970 on the database's clock; `.min` for none.
  public mutating func floors(for allowances: [LaneAllowance], _ now: Instant) -> [Int64] {
    claims += 1
    isSweeping = isDear ? now >= nextSweep : claims % Self.comparisonShare != 0
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
    let rows = claimed.values.reduce(0) { $0 + $1.count }
    if isSweeping {
      if rows >= Self.manyRows { sweepCost.note(cost, rows: rows) }
      isDear = rows < Self.manyRows ? cost > Self.affordable : isSweepDearerThanFloor
      nextSweep = now + cost * Self.sweepShare
    } else if rows >= Self.manyRows {
      floorCost.note(cost, rows: rows)
    }
    for (id, lane) in claimed {
      // After a sweep that left rows behind, the next claim goes on where it ended, not where the floor was.
      let isLower = isSweeping && lane.count >= Self.manyRows
      floors[id] = isLower ? lane.newest : max(floors[id] ?? .min, lane.newest)
    }
    isSweeping = false
  }

  /// By a third: less is noise.
  private var isSweepDearerThanFloor: Bool {
    guard let sweep = sweepCost.average, let floor = floorCost.average else { return false }
    return sweep > floor * (isDear ? 1.15 : 1.33)
  }
}
