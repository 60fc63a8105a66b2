// How many deliveries each lane may claim next. Pure.
//
// A lane is one app at one provider. Its room is what its provider can usefully hold (open streams, or 0 while no connection is
// usable) within the configured window and rate; nothing while its circuit is open or its provider asked for a pause. A lane
// without room claims nothing, so its rows stay in the outbox, uncounted, and no other lane notices.

public import Runtime

/// Keeps the windows of all lanes and hands out allowances.
public struct LaneScheduler: Sendable {
  /// Limits of the scheduler itself.
  public struct Limits: Sendable {
    /// Rows of one lane in one claim: those that have more share what all together may bring. Fewer are not worth a write to
    /// the provider.
    public var claimPerLane: ClosedRange<Int> = 200...500
    /// Rows of all lanes in one claim: more than the least only where so many lanes have more that their shares ask for it.
    public var claimInAll: ClosedRange<Int> = 1000...2000
    /// Rows a second whose deadline is more than ten minutes away, as no ring's is: a flood of notifications shares the
    /// processor with calls that ring now, and leaves it to them.
    public var backgroundPerSecond: Int = 5_000
    /// Fewer of these are not worth a claim, and more at a time would let a ring wait.
    public var backgroundInClaim: ClosedRange<Int> = 50...100
    public init() {}
  }

  private struct Lane {
    var id: Int16
    var window: Int
    var capacity: Int = 0
    var inFlight: Int = 0
    /// Of these, the ones that wait for a turn: they take no room, but count for the window.
    var aside: Int = 0
    var circuit = LaneCircuit()
    var rate: RateLimit?
    var throttledUntil = Instant(nanoseconds: .min)
    /// Requests since the last report of its condition.
    var sent = 0
    /// How many the claim under way asks for and has brought, and of these the background.
    var asked = 0, claimed = 0, background = 0
    /// Its last claim brought all that was asked for.
    var hasMore = false

    /// How many may be claimed now.
    mutating func allowance(_ now: Instant) -> Int {
      circuit.advance(now)
      guard now >= throttledUntil else { return 0 }
      switch circuit.state {
      case .open: return 0
      case .halfOpen: return capacity > 0 && inFlight == aside ? 1 : 0
      case .closed: break
      }
      // Twice the capacity keeps the wire busy while the next claim is under way; the window bounds what a lane may hold.
      let most = min(window, capacity * 2)
      let room = max(0, min(most - (inFlight - aside), window - inFlight))
      // A busy lane waits until a claim is worth its round trip; an idle one never waits.
      guard room >= most / 4 || inFlight == aside else { return 0 }
      return min(room, rate?.available(now) ?? room)
    }
  }

  private var lanes: [Lane] = []
  private var indexByID: [Int16: Int] = [:]
  private var reportedAt: Instant?
  private var first = 0  // who comes first in the next claim, so that a full claim starves nobody
  private var busyCount = 0  // lanes that have more
  private var background: RateLimit
  private let limits: Limits

  public init(limits: Limits = Limits()) {
    self.limits = limits
    background = RateLimit(perSecond: limits.backgroundPerSecond)
  }

  /// Adds a lane; its capacity is 0 until told.
  ///
  /// - Parameters:
  ///   - window: the most deliveries it may hold at a time.
  ///   - perSecond: the most it may send a second; nil for no limit.
  public mutating func add(lane: Int16, window: Int, perSecond: Int? = nil) {
    guard indexByID[lane] == nil else { return }
    indexByID[lane] = lanes.count
    lanes.append(Lane(id: lane, window: window, rate: perSecond.map(RateLimit.init)))
  }

  /// What the lane's provider can hold now.
  public mutating func setCapacity(_ capacity: Int, of lane: Int16) {
    withLane(lane) { $0.capacity = max(0, capacity) }
  }

  /// The provider wants nothing of this lane before `instant`.
  public mutating func throttle(_ lane: Int16, until instant: Instant) {
    withLane(lane) { $0.throttledUntil = max($0.throttledUntil, instant) }
  }

  /// The provider answered. Returns whether that opened the lane's circuit.
  ///
  /// - Parameter delivery: what the answer was about; nil where that is not known.
  public mutating func didHear(
    _ answer: LaneCircuit.Answer, about delivery: DeliveryKey? = nil, from lane: Int16, _ now: Instant
  ) -> Bool {
    var hasOpened = false
    withLane(lane) { hasOpened = $0.circuit.didHear(answer, about: delivery, now) }
    return hasOpened
  }

  /// What the lane's provider connects with, or proves itself with, has changed: an open circuit lets a delivery try at once.
  public mutating func tryNow(_ lane: Int16) {
    withLane(lane) { $0.circuit.tryNow() }
  }

  /// How long the lane sends nothing at least: its circuit is open, or its provider asked for a pause.
  public func wait(of lane: Int16, _ now: Instant) -> Nanoseconds {
    guard let index = indexByID[lane] else { return .zero }
    return max(lanes[index].circuit.wait(now), lanes[index].throttledUntil - now, .zero)
  }

  /// Deliveries of the lane are sent once more.
  public mutating func didResend(_ lane: Int16, _ count: Int = 1) {
    withLane(lane) { $0.rate?.spend(count) }
  }

  /// So many requests of the lane were handed to its provider.
  public mutating func didSend(_ count: Int, of lane: Int16) {
    withLane(lane) { $0.sent += count }
  }

  /// A claim has brought deliveries of the lane; `didFinishClaim` when that was all.
  ///
  /// - Parameter background: how many of them have more than ten minutes.
  public mutating func didClaim(_ count: Int, of lane: Int16, background: Int = 0) {
    withLane(lane) { lane in
      lane.inFlight += count
      lane.rate?.spend(count)
      lane.claimed += count
      lane.background += background
    }
  }

  /// A delivery of the lane left the gateway, however.
  public mutating func didFinish(_ lane: Int16) {
    withLane(lane) { lane in
      precondition(lane.inFlight > 0, "a delivery left a lane it never entered")
      lane.inFlight -= 1
    }
  }

  /// A delivery of the lane waits for a turn: it will not leave before others do.
  public mutating func didSetAside(_ lane: Int16) {
    withLane(lane) { $0.aside += 1 }
  }

  /// A delivery of the lane waits for a turn no longer.
  public mutating func didComeBack(_ lane: Int16) {
    withLane(lane) { lane in
      precondition(lane.aside > 0, "a delivery came back that was not set aside")
      lane.aside -= 1
    }
  }

  /// Deliveries of all lanes held now.
  public var inFlight: Int { lanes.reduce(0) { $0 + $1.inFlight } }

  /// Whether any lane could send.
  public var hasCapacity: Bool { lanes.contains { $0.capacity > 0 } }

  /// How every lane is at `now`; the rate is that since the call before.
  public mutating func conditions(_ now: Instant) -> [LaneCondition] {
    let seconds = max(0.001, reportedAt.map { (now - $0).seconds } ?? 1)
    reportedAt = now
    let conditions = currentConditions(now, over: seconds)
    for index in lanes.indices { lanes[index].sent = 0 }
    return conditions
  }

  /// How every lane is at `now`, without starting a new count: its rate is that since `conditions` was last called, over
  /// `seconds`.
  public func currentConditions(_ now: Instant, over seconds: Double = 1) -> [LaneCondition] {
    lanes.map { lane in
      var circuit = lane.circuit
      circuit.advance(now)
      return LaneCondition(
        lane: lane.id, window: lane.window, capacity: lane.capacity, inFlight: lane.inFlight, circuit: circuit.state,
        wait: wait(of: lane.id, now), perSecond: Int((Double(lane.sent) / seconds).rounded()))
    }
  }

  /// What may be claimed now, for the lanes with room worth a claim, the one whose turn it is first.
  public mutating func allowances(_ now: Instant) -> [LaneAllowance] {
    let share = claimInAll / max(1, busyCount)
    let most = min(max(limits.claimPerLane.lowerBound, share), limits.claimPerLane.upperBound)
    var allowances: [LaneAllowance] = []
    allowances.reserveCapacity(lanes.count)
    for offset in lanes.indices {
      let index = (first + offset) % lanes.count
      let limit = min(lanes[index].allowance(now), most)
      lanes[index].asked = limit
      guard limit > 0 else { continue }
      let background = min(limit, lanes[index].rate?.availableToBackground(now) ?? limit)
      allowances.append(LaneAllowance(lane: lanes[index].id, limit: Int32(limit), background: Int32(background)))
    }
    return allowances
  }

  private var claimInAll: Int {
    min(max(limits.claimInAll.lowerBound, busyCount * limits.claimPerLane.lowerBound), limits.claimInAll.upperBound)
  }

  /// How much the claim with these allowances may bring.
  public mutating func claimLimits(_ now: Instant) -> ClaimLimits {
    let most = min(background.available(now), limits.backgroundInClaim.upperBound)
    return ClaimLimits(
      inAll: Int32(claimInAll), background: most < limits.backgroundInClaim.lowerBound ? 0 : Int32(most))
  }

  /// The claim with the last allowances is over: whoever came last in it has had its turn.
  public mutating func didFinishClaim() {
    let order = lanes.indices.map { (first + $0) % lanes.count }
    let count = order.reduce(0) { $0 + lanes[$1].claimed }
    let backgroundCount = order.reduce(0) { $0 + lanes[$1].background }
    background.spend(backgroundCount)
    // The background goes last, so where there was any, nobody's rings were left out.
    let last = order.lastIndex { backgroundCount > 0 ? lanes[$0].background > 0 : lanes[$0].claimed > 0 }
    if let last { first = (order[last] + 1) % lanes.count }
    // A full claim looked no further than its last lane, which may have more.
    let isFull = count >= claimInAll
    for (position, index) in order.enumerated() {
      if lanes[index].asked > 0, !isFull || position <= last ?? 0 {
        lanes[index].hasMore = lanes[index].claimed >= lanes[index].asked || isFull && position == last
      }
      (lanes[index].asked, lanes[index].claimed, lanes[index].background) = (0, 0, 0)
    }
    busyCount = lanes.count { $0.hasMore }
  }

  private mutating func withLane(_ id: Int16, _ change: (inout Lane) -> Void) {
    guard let index = indexByID[id] else { preconditionFailure("lane \(id) was never added") }
    change(&lanes[index])
  }
}
