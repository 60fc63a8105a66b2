// How many deliveries each lane may claim next. Pure.
//
// A lane is one app at one provider. Its room is what its provider can usefully hold (open streams, or 0 while no connection is
// usable) within the configured window; a lane without room claims nothing, so its rows stay in the outbox, uncounted, and no
// other lane notices.

/// Keeps the windows of all lanes and hands out allowances.
public struct LaneScheduler: Sendable {
  /// Limits of the scheduler itself.
  public struct Limits: Sendable {
    /// Most rows of one lane in one claim.
    public var claimPerLane: Int = 500
    /// Most rows of all lanes in one claim.
    public var claimInAll: Int = 1000
    public init() {}
  }

  private struct Lane {
    var id: Int16
    var window: Int
    var capacity: Int = 0
    var inFlight: Int = 0
    var isPaused = false

    var room: Int {
      // Twice the capacity keeps the wire busy while the next claim is under way; the window bounds what a lane may hold.
      isPaused ? 0 : max(0, min(window, capacity * 2) - inFlight)
    }

    /// A busy lane waits until a claim is worth its round trip; an idle one never waits.
    var isWorthClaiming: Bool {
      let worthwhile = min(window, capacity * 2) / 4
      return room > 0 && (room >= worthwhile || inFlight == 0)
    }
  }

  private var lanes: [Lane] = []
  private var indexByID: [Int16: Int] = [:]
  private var first = 0  // who comes first in the next claim, so that a full claim starves nobody
  private let limits: Limits

  public init(limits: Limits = Limits()) {
    self.limits = limits
  }

  /// Adds a lane with the most deliveries it may hold at a time; its capacity is 0 until told.
  public mutating func add(lane: Int16, window: Int) {
    guard indexByID[lane] == nil else { return }
    indexByID[lane] = lanes.count
    lanes.append(Lane(id: lane, window: window))
  }

  /// What the lane's provider can hold now.
  public mutating func setCapacity(_ capacity: Int, of lane: Int16) {
    withLane(lane) { $0.capacity = max(0, capacity) }
  }

  /// While paused, a lane claims nothing.
  public mutating func setPaused(_ isPaused: Bool, of lane: Int16) {
    withLane(lane) { $0.isPaused = isPaused }
  }

  /// Deliveries of the lane entered the gateway.
  public mutating func didClaim(_ count: Int, of lane: Int16) {
    withLane(lane) { $0.inFlight += count }
  }

  /// A delivery of the lane left the gateway, however.
  public mutating func didFinish(_ lane: Int16) {
    withLane(lane) { lane in
      precondition(lane.inFlight > 0, "a delivery left a lane it never entered")
      lane.inFlight -= 1
    }
  }

  /// Deliveries of all lanes held now.
  public var inFlight: Int { lanes.reduce(0) { $0 + $1.inFlight } }

  /// Whether any lane could send.
  public var hasCapacity: Bool { lanes.contains { $0.capacity > 0 } }

  /// What may be claimed now, for the lanes with room worth a claim.
  public mutating func allowances() -> [LaneAllowance] {
    var allowances: [LaneAllowance] = []
    var left = limits.claimInAll
    for offset in lanes.indices where left > 0 {
      let lane = lanes[(first + offset) % lanes.count]
      guard lane.isWorthClaiming else { continue }
      let limit = min(lane.room, limits.claimPerLane, left)
      allowances.append(LaneAllowance(lane: lane.id, limit: Int32(limit)))
      left -= limit
    }
    if !lanes.isEmpty { first = (first + 1) % lanes.count }
    return allowances
  }

  private mutating func withLane(_ id: Int16, _ change: (inout Lane) -> Void) {
    guard let index = indexByID[id] else { preconditionFailure("lane \(id) was never added") }
    change(&lanes[index])
  }
}
