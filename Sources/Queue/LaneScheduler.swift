// How many deliveries each lane may claim next. Pure.
//
// A lane is one app at one provider. A lane's room is the number of deliveries it may claim now. It follows from the provider's
// capacity (the streams of its connections; 0 while none is usable), within the configured window and rate. It is 0 while its
// provider asked for a pause, and while the lane's circuit is open, unless requests only get no answer. A lane without room claims
// nothing: its rows stay in the outbox, no attempt is counted, and other lanes are not affected.

public import Runtime

/// Keeps the windows of all lanes and hands out allowances.
public struct LaneScheduler: Sendable {
  /// Limits of the scheduler itself.
  public struct Limits: Sendable {
    /// Maximum number of rows of one lane in one claim. Lanes with a backlog share the rows of the whole claim within these bounds.
    /// Fewer rows than the lower bound are not worth a write to the provider.
    public var claimPerLane: ClosedRange<Int> = 200...500
    /// Maximum number of rows of all lanes in one claim. More than the lower bound is claimed only when more than
    /// `claimInAll.lowerBound / claimPerLane.lowerBound` lanes have a backlog.
    public var claimInAll: ClosedRange<Int> = 1000...2000
    /// Maximum number of background rows a second. Their deadline is more than ten minutes away; no ring's is. A flood of
    /// notifications shares the processor with calls that ring now and must leave it to them.
    public var backgroundPerSecond: Int = 5_000
    /// How long after a claim that brought rows a busy lane waits for one that is worth its round trip. Deliveries whose requests get
    /// no answer may take most of its room, for longer than a call rings.
    public var busyWait = Nanoseconds.milliseconds(200)
    /// How many deliveries a lane without room may hold beside those that were handed on, which may have the only requests without an answer.
    public var besideHandedOn: Int = 8
    /// The interval at which another delivery tries while the last ones have no answer: in a half-open lane, and in one without room.
    public var probeInterval = Nanoseconds.seconds(1)
    /// After this time without a delivery a doubtful lane takes a new one like any other, instead of what other gateways leave. Otherwise
    /// it would never learn that its provider works again, because they leave nothing.
    public var trialInterval = Nanoseconds.seconds(10)
    /// Number of background rows in one claim. Fewer are not worth a claim; more would make a ring wait.
    public var backgroundInClaim: ClosedRange<Int> = 50...100
    public init() {}
  }

  private struct Lane {
    var id: Int16
    var window: Int
    var capacity: Int = 0
    /// Among how many gateways' databases the capacity and the rate of the provider are divided.
    var parts = 1
    var inFlight: Int = 0
    /// How many of the held deliveries wait aside. They take no room, but count towards the window.
    var aside: Int = 0
    /// How many of the held deliveries were handed on and are still under way. They take room: a request takes a stream, whoever has its ring.
    var handedOn: Int = 0
    var circuit = LaneCircuit()
    var rate: RateLimit?
    var throttledUntil = Instant(nanoseconds: .min)
    /// Number of requests since the lane's condition was last reported.
    var sent = 0
    /// How many rows the claim under way asks for and has brought, and how many of them are background.
    var asked = 0, claimed = 0, background = 0
    /// When the claim began that last asked for its rows, the one that last brought some, and the one that last brought a half-open
    /// circuit's try.
    var askedAt = Instant(nanoseconds: .min), claimedAt = Instant(nanoseconds: .min)
    var triedAt = Instant(nanoseconds: .min)
    /// Its last claim brought as many rows as it asked for.
    var hasMore = false
    /// As in `LaneAllowance`.
    var isLast = false, takesOnlyNew = false
    /// Whether it asked last for what is new alone, and for a half-open circuit's try.
    var askedForNew = false, askedForTry = false

    /// How many deliveries it may hold that do not wait aside. Twice the capacity keeps the connections busy while the next claim
    /// is under way. The window bounds what a lane may hold.
    var most: Int { min(window, max(capacity * 2 / parts, min(capacity, 1))) }

    /// How many deliveries may be claimed now.
    mutating func allowance(_ now: Instant, _ limits: Limits) -> Int {
      circuit.advance(now)
      let isTrial = claimedAt + limits.trialInterval <= now
      let tries = circuit.isDoubtful(now) && circuit.wait(now) == .zero && (isTrial || circuit.state == .halfOpen)
      // In turns, because what has failed before shows nothing of the lane, and new pushes to a bad token must not come before all others.
      takesOnlyNew = tries && !askedForNew
      isLast = circuit.isDoubtful(now) && !(isTrial && takesOnlyNew)
      askedForTry = false
      guard now >= throttledUntil else { return 0 }
      switch circuit.state {
      case .halfOpen where inFlight == aside + handedOn || triedAt + limits.probeInterval <= now:
        askedForTry = true
        return capacity > 0 && inFlight < window ? 1 : 0
      case .open, .halfOpen:
        guard circuit.isSilent else { return 0 }
        takesOnlyNew = true
      case .closed: break
      }
      let most = most
      let held = inFlight - aside
      // A connection in doubt counts as one request, whatever is under way on it. Meanwhile the others take a few more, within the
      // share of the window. If all are in doubt, one a second tries.
      let few = held > most ? capacity / (8 * parts) : 0
      let one = capacity > 0 && claimedAt + limits.probeInterval <= now ? 1 : 0
      // Requests of rings that were handed on may get no answer for long, so a few others are claimed beside them.
      let ours = held - handedOn
      let beside = capacity > 0 && handedOn > 0 ? limits.besideHandedOn - ours : 0
      let room = max(0, min(max(most - held, min(max(few, one, beside), window / parts - held)), window - inFlight))
      // A busy lane waits a little until a claim is worth its round trip. An idle lane never waits. A share of the capacity is small,
      // and the other shares keep the connections busy meanwhile.
      let isWorthIt = room >= most / (parts == 1 ? 4 : 2) || ours == 0
      guard isWorthIt || claimedAt + limits.busyWait <= now else { return 0 }
      return min(room, rate?.available(now) ?? room)
    }
  }

  private var lanes: [Lane] = []
  private var indexByID: [Int16: Int] = [:]
  private var reportedAt: Instant?
  private var first = 0  // the lane that comes first in the next claim, so that full claims starve no lane
  private var busyCount = 0  // number of lanes with a backlog
  private var background: RateLimit
  private let limits: Limits

  public init(limits: Limits = Limits()) {
    self.limits = limits
    background = RateLimit(perSecond: limits.backgroundPerSecond)
  }

  /// Adds a lane. Its capacity is 0 until `setCapacity`.
  ///
  /// - Parameters:
  ///   - window: maximum number of deliveries it may hold at a time.
  ///   - perSecond: maximum number of pushes it may send a second; nil for no limit.
  public mutating func add(lane: Int16, window: Int, perSecond: Int? = nil) {
    guard indexByID[lane] == nil else { return }
    indexByID[lane] = lanes.count
    lanes.append(Lane(id: lane, window: window, rate: perSecond.map(RateLimit.init)))
  }

  /// Sets how many requests the lane's provider can take now.
  public mutating func setCapacity(_ capacity: Int, of lane: Int16) {
    withLane(lane) { $0.capacity = max(0, capacity) }
    if capacity > 0 { hasHadCapacity = true }
  }

  /// The capacity and the rate of the lane's provider are divided among this many databases; at least 1.
  public mutating func divide(_ lane: Int16, among parts: Int) {
    withLane(lane) { lane in
      lane.parts = parts
      lane.rate?.divide(among: parts)
    }
  }

  /// The provider asked this lane to send nothing before `instant`.
  public mutating func throttle(_ lane: Int16, until instant: Instant) {
    withLane(lane) { $0.throttledUntil = max($0.throttledUntil, instant) }
  }

  /// The provider answered. Returns how the answer changed the lane's circuit; nil if it did not.
  ///
  /// - Parameters:
  ///   - token: the token it was about; nil where that is not known.
  ///   - unansweredSince: when the request was sent, if it got no answer in time; nil otherwise.
  public mutating func didHear(
    _ answer: LaneCircuit.Answer, about token: ArraySlice<UInt8>? = nil, unansweredSince: Instant? = nil,
    from lane: Int16, _ now: Instant
  ) -> LaneCircuit.Change? {
    var change: LaneCircuit.Change?
    withLane(lane) {
      change = $0.circuit.didHear(answer, about: token, unansweredSince: unansweredSince, now)
    }
    return change
  }

  /// The circuit of the lane's account has opened elsewhere in this process, and not by silence.
  public mutating func openCircuit(of lane: Int16, until: Instant, _ now: Instant) {
    withLane(lane) { $0.circuit.open(until: until, now) }
  }

  /// The circuit of the lane's account has closed elsewhere in this process.
  public mutating func closeCircuit(of lane: Int16) {
    withLane(lane) { $0.circuit.close() }
  }

  /// The credentials of the lane's provider or of its proxy have changed, so an open circuit lets a delivery try at once.
  public mutating func tryNow(_ lane: Int16, _ now: Instant) {
    withLane(lane) { $0.circuit.tryNow(now) }
  }

  /// Whether the lane knows nothing of its provider but that requests got no answers.
  public func isSilent(_ lane: Int16) -> Bool { indexByID[lane].map { lanes[$0].circuit.isSilent } ?? false }

  /// Whether the lane's circuit is closed.
  public func isWell(_ lane: Int16) -> Bool { indexByID[lane].map { lanes[$0].circuit.state == .closed } ?? false }

  /// Whether the lane's provider has asked for a pause that is not over.
  public func isThrottled(_ lane: Int16, _ now: Instant) -> Bool {
    indexByID[lane].map { lanes[$0].throttledUntil > now } ?? false
  }

  /// How long the lane sends nothing from now on, at least, because its circuit is open or its provider asked for a pause.
  public func wait(of lane: Int16, _ now: Instant) -> Nanoseconds {
    guard let index = indexByID[lane] else { return .zero }
    return max(lanes[index].circuit.wait(now), lanes[index].throttledUntil - now, .zero)
  }

  /// `count` deliveries of the lane are to be sent once more.
  public mutating func didResend(_ lane: Int16, _ count: Int = 1) {
    withLane(lane) { $0.rate?.spend(count) }
  }

  /// `count` requests of the lane were handed to its provider.
  public mutating func didSend(_ count: Int, of lane: Int16) {
    withLane(lane) { $0.sent += count }
  }

  /// A claim has brought deliveries of the lane. `didFinishClaim` follows after the last lane.
  ///
  /// - Parameter background: how many of them have more than ten minutes left.
  public mutating func didClaim(_ count: Int, of lane: Int16, background: Int = 0) {
    withLane(lane) { lane in
      lane.inFlight += count
      lane.rate?.spend(count)
      lane.claimed += count
      lane.claimedAt = lane.askedAt
      if lane.askedForTry { lane.triedAt = lane.askedAt }
      lane.background += background
    }
  }

  /// The gateway holds a delivery of the lane no longer.
  public mutating func didFinish(_ lane: Int16) {
    withLane(lane) { lane in
      precondition(lane.inFlight > 0, "a delivery left a lane it never entered")
      lane.inFlight -= 1
    }
  }

  /// A delivery of the lane waits aside, for a turn. Others leave before it.
  public mutating func didSetAside(_ lane: Int16) {
    withLane(lane) { $0.aside += 1 }
  }

  /// A delivery of the lane waits aside no longer.
  public mutating func didComeBack(_ lane: Int16) {
    withLane(lane) { lane in
      precondition(lane.aside > 0, "a delivery came back that was not set aside")
      lane.aside -= 1
    }
  }

  /// The gateway has handed a delivery on, and its request is still under way.
  public mutating func didHandOn(_ lane: Int16) {
    withLane(lane) { $0.handedOn += 1 }
  }

  /// The request of a delivery that was handed on has ended.
  public mutating func didEndHandedOn(_ lane: Int16) {
    withLane(lane) { lane in
      precondition(lane.handedOn > 0, "a request ended of a delivery that was not handed on")
      lane.handedOn -= 1
      lane.inFlight -= 1
    }
  }

  /// Deliveries of all lanes held now.
  public var inFlight: Int { lanes.reduce(0) { $0 + $1.inFlight } }

  /// Whether any lane ever had a usable connection.
  public private(set) var hasHadCapacity = false

  /// The condition of every lane at `now`. The rate is that since the previous call.
  public mutating func conditions(_ now: Instant) -> [LaneCondition] {
    let seconds = max(0.001, reportedAt.map { (now - $0).seconds } ?? 1)
    reportedAt = now
    let conditions = currentConditions(now, over: seconds)
    for index in lanes.indices { lanes[index].sent = 0 }
    return conditions
  }

  /// The condition of every lane at `now`, without starting a new count. The rate is the number of requests since `conditions` was
  /// last called, divided by `seconds`.
  public func currentConditions(_ now: Instant, over seconds: Double = 1) -> [LaneCondition] {
    lanes.map { lane in
      var circuit = lane.circuit
      circuit.advance(now)
      return LaneCondition(
        lane: lane.id, window: lane.window, capacity: lane.capacity, inFlight: lane.inFlight, circuit: circuit.state,
        wait: wait(of: lane.id, now), perSecond: Int((Double(lane.sent) / seconds).rounded()))
    }
  }

  /// The allowances of all lanes whose room is worth a claim. The lane whose turn it is comes first.
  public mutating func allowances(_ now: Instant) -> [LaneAllowance] {
    let share = claimInAll / max(1, busyCount)
    let most = min(max(limits.claimPerLane.lowerBound, share), limits.claimPerLane.upperBound)
    var allowances: [LaneAllowance] = []
    allowances.reserveCapacity(lanes.count)
    for offset in lanes.indices {
      let index = (first + offset) % lanes.count
      let limit = min(lanes[index].allowance(now, limits), most)
      lanes[index].asked = limit
      guard limit > 0 else { continue }
      lanes[index].askedAt = now
      lanes[index].askedForNew = lanes[index].takesOnlyNew
      let background = min(limit, lanes[index].rate?.availableToBackground(now) ?? limit)
      allowances.append(
        LaneAllowance(
          lane: lanes[index].id, limit: Int32(limit), background: Int32(background), isLast: lanes[index].isLast,
          takesOnlyNew: lanes[index].takesOnlyNew))
    }
    return allowances
  }

  private var claimInAll: Int {
    min(max(limits.claimInAll.lowerBound, busyCount * limits.claimPerLane.lowerBound), limits.claimInAll.upperBound)
  }

  /// Limits of the claim with the current allowances.
  public mutating func claimLimits(_ now: Instant) -> ClaimLimits {
    let most = min(background.available(now), limits.backgroundInClaim.upperBound)
    return ClaimLimits(
      inAll: Int32(claimInAll), background: most < limits.backgroundInClaim.lowerBound ? 0 : Int32(most))
  }

  /// The claim with the last allowances is over. The last lane that brought rows has had its turn.
  public mutating func didFinishClaim() {
    let order = lanes.indices.map { (first + $0) % lanes.count }
    let count = order.reduce(0) { $0 + lanes[$1].claimed }
    let backgroundCount = order.reduce(0) { $0 + lanes[$1].background }
    background.spend(backgroundCount)
    // Background rows come last, so if the claim brought any, it left out no ring.
    let last = order.lastIndex { backgroundCount > 0 ? lanes[$0].background > 0 : lanes[$0].claimed > 0 }
    if let last { first = (order[last] + 1) % lanes.count }
    // A full claim ended within its last lane, which may have more rows.
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
