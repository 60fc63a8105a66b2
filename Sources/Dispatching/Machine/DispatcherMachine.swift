// Every decision of a dispatcher. It turns events into actions. It has no clock and no socket; randomness comes from a seed.
//
// A delivery is claimed, planned and sent, and its outcome is written, all in batches. This file has the parts that decide and the
// order of a turn. The extensions handle events:
//
//   DispatcherMachine+Store      the gateway's own life: registration, beats, scans, jobs, follow-ups
//   DispatcherMachine+Claiming   what a claim brings
//   DispatcherMachine+Sending    requests, their results, and what waits
//   DispatcherMachine+Writing    the ways a delivery leaves
//
// Only `turn` and `sendClaimed` start work: at the end of each turn of the loop that had events, and at `nextAlarm`.

public import Logging
internal import Providers
public import Queue
public import Runtime

/// Claims the deliveries of its lanes, has them sent, and has their outcomes written.
///
/// The carrier hands over each event. After the events of a turn, and at `nextAlarm`, it calls `turn` and performs the actions it
/// gets from `dequeue(into:)`; then it does the same with `sendClaimed`. Confined to its carrier.
public struct DispatcherMachine {
  /// Log lines of a lower level are not made.
  public var logLevel = Logger.Level.info
  /// Counters since the start.
  public internal(set) var counters: DispatcherCounters
  /// How far a lane's provider's clock is ahead of ours, by the index of the lane, where it was measured.
  public internal(set) var clockSkews: [Int: Nanoseconds] = [:]
  /// Whether the gateway stops.
  public internal(set) var isDraining = false

  let lanes: [LaneConfiguration]
  let laneIndexByID: [Int16: Int]
  let settings: DispatcherSettings

  var membership: Membership
  var lease: OwnLease
  var ledger: ClaimLedger
  var reconciliation: Reconciliation
  var housekeeping: Housekeeping
  var followUps = FollowUps()
  var held = HeldDeliveries()
  var writer = BatchWriter()
  var endings: CallEndings
  /// The hints since the claim under way was sent. They come over another connection, so its answer may be older.
  var ended = EndedCalls()
  var scheduler = LaneScheduler()
  var pacer = ClaimPacer()
  var breakers: [InvalidationBreaker]
  var random: SplitMix64

  /// The deliveries of the last claim, until they are sent.
  var claimed: [HeldDelivery] = []
  /// Slots of deliveries that wait for their next try, or for an answer.
  var retries = DeadlineHeap<Int>()
  /// Slots of deliveries that wait for a confirmed beat.
  var leaseless: [Int] = []
  /// Slots of invites whose calls are looked up before they are sent.
  var unsure: [Int] = []
  /// The deliveries that wait for the disk.
  var diskWait = DiskWait()
  /// What each lane knows of its tokens, and when its rings are handed on.
  var suspects: [TokenSuspects]
  var rescues: [Rescue]
  /// What each lane's provider says of its credentials.
  var refusedCredentials: [RefusedCredentials]
  /// Requests of this turn, by lane.
  var outgoing: [[PushRequest]]
  var actions: [DispatcherAction] = []
  private var permit = Instant(nanoseconds: .min)

  /// - Parameters:
  ///   - lanes: events and actions name a lane by its index here.
  ///   - seed: the seed of the jitter of retries.
  public init(lanes: [LaneConfiguration], settings: DispatcherSettings = DispatcherSettings(), seed: UInt64) {
    self.lanes = lanes
    self.settings = settings
    laneIndexByID = Dictionary(uniqueKeysWithValues: lanes.enumerated().map { ($1.id, $0) })
    counters = DispatcherCounters(lanes: lanes.map(\.name))
    membership = Membership(settings: settings)
    lease = OwnLease(time: settings.leaseTime)
    ledger = ClaimLedger(retryInterval: settings.retryInterval)
    reconciliation = Reconciliation(settings: settings)
    housekeeping = Housekeeping(settings: settings)
    endings = CallEndings(settings: settings)
    breakers = lanes.map { InvalidationBreaker(limits: $0.invalidation) }
    random = SplitMix64(seed: seed)
    outgoing = Array(repeating: [], count: lanes.count)
    suspects = Array(repeating: TokenSuspects(), count: lanes.count)
    rescues = Array(repeating: Rescue(settings.policy.patience), count: lanes.count)
    refusedCredentials = Array(repeating: RefusedCredentials(), count: lanes.count)
    for lane in lanes { scheduler.add(lane: lane.id, window: lane.window, perSecond: lane.perSecond) }
  }

  // MARK: - For the carrier

  /// Handles an event.
  public mutating func handle(_ event: DispatcherEvent, _ now: Instant) {
    switch event {
    case .outbox(let event): handle(event, now)
    case .registered(let result, let askedAt): didRegister(result, askedAt: askedAt, now)
    case .beaten(let result, let askedAt): didBeat(result, askedAt: askedAt, now)
    case .claimed(let number, let result): didClaim(number, result, now)
    case .forgotten(let number, let result): didForget(number, result, now)
    case .scanned(let result): didScan(result, now)
    case .written(let batch, let result): didWrite(batch, result, now)
    case .endedFound(let result): didLookUp(result, now)
    case .synced(let result): didSync(result, now)
    case .jobClaimed(let kind, let result): didTakeJob(kind, result, now)
    case .jobRan(let kind, let result): didRunJob(kind, result, now)
    case .followedUp(let kind, let result): didFollowUp(kind, result, now)
    case .reported(let result): didReport(result)
    case .provider(.capacity(let capacity), let lane): scheduler.setCapacity(capacity, of: lanes[lane].id)
    case .provider(.results(let results), _): for result in results { handle(result, now) }
    case .provider(.hedged(let tags), let lane):
      scheduler.didResend(lanes[lane].id, tags.count)
      scheduler.didSend(tags.count, of: lanes[lane].id)
    case .provider(.divided(let parts), let lane): scheduler.divide(lanes[lane].id, among: parts)
    case .provider(.clockSkew(let skew), let lane): clockSkews[lane] = skew
    case .provider(.renewed, let lane):
      scheduler.tryNow(lanes[lane].id, now)
      refusedCredentials[lane].forget()
    case .told(let news, let lane): hear(news, ofLane: lane, now)
    case .receipts(let failures, let lane):
      for failure in failures {
        let result = PushResult(tag: 0, outcome: failure.outcome, sentAt: nil, answeredAt: now)
        apply(result, of: failure.token[...], toLane: lane, now)
      }
    case .drain: drain(now)
    }
  }

  /// Starts what is due. Called at the end of a turn of the loop that had events, and at `nextAlarm`.
  public mutating func turn(_ now: Instant) {
    noteLapse(now)
    joinIfDue(now)
    sendLeaseless(now)
    sendDue(now)
    if membership.isOpen {
      forgetIfDue(now)
      claimIfDue(now)
      flushWriter(now)
      lookUpIfDue(now)
      syncIfDue(now)
      scanIfDue(now)
      keepHouse(now)
    }
    // The permit precedes the requests that it covers.
    renewPermit()
    sendOutgoing()
  }

  /// Sends the deliveries of the last claim, if they are still to be sent. Called after the actions of `turn` were performed, so that the database works on the next
  /// claim meanwhile.
  public mutating func sendClaimed(_ now: Instant) {
    guard !claimed.isEmpty else { return }
    beginClaimed(now)
    if membership.isOpen {
      flushWriter(now)
      syncIfDue(now)
    }
    renewPermit()
    sendOutgoing()
  }

  /// When to call `turn` if no event comes before; distant future for never.
  public var nextAlarm: Instant {
    var next = retries.earliest ?? .distantFuture
    if membership.isRegistered || isQuiet { next = min(next, membership.due) }
    next = min(next, lease.lapse)
    guard membership.isOpen else { return next }
    next = min(next, min(ledger.due, min(writer.due, min(endings.due, min(reconciliation.due, diskWait.due)))))
    if !isDraining { next = min(next, min(housekeeping.due, followUps.due)) }
    if mayClaim, !lease.hasLapsed { next = min(next, pacer.next) }
    return next
  }

  /// Moves the actions since the last call into `buffer`, in order. The memory of the array in `buffer` is used again.
  public mutating func dequeue(into buffer: inout [DispatcherAction]) {
    buffer.removeAll(keepingCapacity: true)
    swap(&buffer, &actions)
  }

  /// Whether nothing is held and nothing waits to be written.
  public var isIdle: Bool { isDrained && writer.apartCount == 0 }

  /// The same, not counting what the database refuses to write: waiting longer would not help.
  public var isDrained: Bool {
    held.count == writer.apartCount && writer.isIdle && (membership.isOpen ? ledger.isClear : ledger.isQuiet)
  }

  /// The reasons why this gateway is not ready, one sentence each; empty if it is. Providers that are lost later are none: all replicas
  /// would be taken away at once, and their HTTP API with them. One that never had any has a fault of its own.
  public func obstacles(_ now: Instant) -> [String] {
    if let obstacle = databaseObstacle(now) { return [obstacle] }
    return scheduler.hasHadCapacity ? [] : lanes.map { "\($0.name): no usable connection to the provider yet" }
  }

  /// The reason why nothing is claimed from the database; nil if deliveries are claimed.
  public func databaseObstacle(_ now: Instant) -> String? {
    if isDraining { return "the gateway is shutting down" }
    if !membership.isStoreAvailable { return "the database cannot be reached" }
    if !membership.isOpen || !lease.isValid(now) { return "the database has not confirmed that this gateway lives" }
    return nil
  }

  /// The conditions of the lanes, in their order.
  public func conditions(_ now: Instant) -> [LaneCondition] { scheduler.currentConditions(now) }

  /// Why a lane's provider refuses its credentials, and whether that concerns every push; nil if it does not.
  public func refusal(ofLane index: Int, _ now: Instant) -> (reason: String, concernsAll: Bool)? {
    refusedCredentials[index].reason(isWell: scheduler.isWell(lanes[index].id), now).map { ($0.text, $0.concernsAll) }
  }

  // MARK: - For the extensions

  mutating func log(_ level: Logger.Level, _ message: Logger.Message, _ metadata: Logger.Metadata = [:]) {
    actions.append(.log(level, message, metadata))
  }

  /// The store's answer; nil if the call failed, which is logged.
  mutating func answer<Answer>(
    _ result: Result<Answer, OutboxError>, orLog level: Logger.Level, _ message: Logger.Message
  ) -> Answer? {
    switch result {
    case .success(let answer): return answer
    case .failure(let error):
      log(level, message, ["reason": "\(error)"])
      return nil
    }
  }

  /// Whether requests may be sent: no other gateway can own what is held.
  func maySend(_ now: Instant) -> Bool { lease.isValid(now) }

  /// Tells the providers until when they may write requests, if that has changed.
  mutating func renewPermit() {
    guard lease.until != permit else { return }
    permit = lease.until
    actions.append(.permit(until: permit))
  }
}
