// Every decision of a dispatcher, and nothing else: events in, actions out, no clock, no socket, no randomness but a seed.
//
// A delivery is claimed, planned and sent, and what became of it is written down; in batches. This file has the parts that decide
// and the order of a turn; the extensions have what an event means:
//
//   DispatcherMachine+Store      the gateway's own life: registration, beats, reclaims, scans, jobs
//   DispatcherMachine+Claiming   what a claim brings
//   DispatcherMachine+Sending    requests, their results, and what waits
//   DispatcherMachine+Writing    the ways a delivery leaves
//
// `turn` and `sendClaimed` are the only places where work is started: at the end of each turn in which something happened, and at
// `nextAlarm`.

public import Logging
internal import Providers
public import Queue
public import Runtime

/// Claims deliveries of its lanes, has them sent, and sees to it that what became of them is written down.
///
/// The carrier hands over each event, calls `turn` after the events of a turn and at `nextAlarm`, and then carries out what
/// `take` gives it; after that the same with `sendClaimed`. Confined to its carrier.
public struct DispatcherMachine {
  /// Lines of a lower level need not be made.
  public var logLevel = Logger.Level.info
  /// What was done since the start.
  public internal(set) var counters: DispatcherCounters
  /// How much a lane's provider is ahead of our clock, by the index of the lane, where it was measured.
  public internal(set) var clockSkews: [Int: Nanoseconds] = [:]
  /// The gateway stops.
  public internal(set) var isDraining = false

  let lanes: [LaneConfiguration]
  let laneIndexByID: [Int16: Int]
  let settings: DispatcherSettings

  var membership: Membership
  var lease: OwnLease
  var ledger: ClaimLedger
  var reclaiming: Reclaiming
  var reconciliation: Reconciliation
  var housekeeping: Housekeeping
  var known: KnownDeliveries
  var writer = BatchWriter()
  var endings: CallEndings
  var ended = EndedCalls()
  var scheduler = LaneScheduler()
  var pacer = ClaimPacer()
  var breakers: [InvalidationBreaker]
  var random: SplitMix64

  /// What the last claim brought, until it is sent.
  var claimed: [HeldDelivery] = []
  /// Slots of deliveries that wait for their next try.
  var retries = DeadlineHeap<Int>()
  /// Slots of deliveries that wait for a confirmed beat.
  var leaseless: [Int] = []
  /// Slots of invites whose calls are looked up before they are sent.
  var unsure: [Int] = []
  /// Those that wait for the disk.
  var diskWait: DiskWait
  /// What of each lane's requests was answered, and when suspects have their turn.
  var traffic: [LaneTraffic]
  var turns: [SuspectTurns]
  /// Requests of this turn, by lane.
  var outgoing: [[PushRequest]]
  var actions: [DispatcherAction] = []
  private var permit = Instant(nanoseconds: .min)

  /// - Parameters:
  ///   - lanes: in the order of the indices that events and actions name them by.
  ///   - seed: where the jitter of retries starts.
  public init(lanes: [LaneConfiguration], settings: DispatcherSettings = DispatcherSettings(), seed: UInt64) {
    self.lanes = lanes
    self.settings = settings
    laneIndexByID = Dictionary(uniqueKeysWithValues: lanes.enumerated().map { ($1.id, $0) })
    counters = DispatcherCounters(lanes: lanes.map { ($0.app, $0.provider) })
    membership = Membership(settings: settings)
    lease = OwnLease(time: settings.leaseTime)
    ledger = ClaimLedger(retryInterval: settings.retryInterval)
    reclaiming = Reclaiming(partMax: settings.reclaimMax, retryInterval: settings.retryInterval)
    reconciliation = Reconciliation(interval: settings.scanInterval, retryInterval: settings.retryInterval)
    housekeeping = Housekeeping(settings: settings)
    known = KnownDeliveries(
      limits: SettledMemory.Limits(
        time: settings.rememberFor, count: settings.rememberedMax, bytes: settings.rememberedBytesMax))
    endings = CallEndings(interval: settings.lookUpInterval, retryInterval: settings.retryInterval)
    diskWait = DiskWait(retryInterval: settings.retryInterval)
    breakers = lanes.map { InvalidationBreaker(limits: $0.invalidation) }
    random = SplitMix64(seed: seed)
    outgoing = Array(repeating: [], count: lanes.count)
    traffic = Array(repeating: LaneTraffic(), count: lanes.count)
    turns = Array(repeating: SuspectTurns(), count: lanes.count)
    for lane in lanes { scheduler.add(lane: lane.id, window: lane.window, perSecond: lane.perSecond) }
  }

  // MARK: - For the carrier

  /// Takes an event in.
  public mutating func handle(_ event: DispatcherEvent, _ now: Instant) {
    switch event {
    case .outbox(let event): handle(event, now)
    case .registered(let result, let askedAt): didRegister(result, askedAt: askedAt, now)
    case .beaten(let result, let askedAt): didBeat(result, askedAt: askedAt, now)
    case .claimed(let number, let result): didClaim(number, result, now)
    case .forgotten(let number, let result): didForget(number, result, now)
    case .reclaimed(let number, let result): didReclaim(number, result, now)
    case .reclaimConfirmed(let result): didConfirmReclaim(result, now)
    case .scanned(let result): didScan(result, now)
    case .written(let batch, let result): didWrite(batch, result, now)
    case .endedFound(let result): didLookUp(result, now)
    case .synced(let result): didSync(result, now)
    case .jobTaken(let result): didTakeJob(result, now)
    case .jobRan(let result): didRunJob(result, now)
    case .reported(let result): didReport(result)
    case .provider(.capacity(let capacity), let lane): scheduler.setCapacity(capacity, of: lanes[lane].id)
    case .provider(.results(let results), _): for result in results { handle(result, now) }
    case .provider(.hedged(let count), let lane):
      scheduler.didResend(lanes[lane].id, count)
      scheduler.didSend(count, of: lanes[lane].id)
    case .provider(.clockSkew(let skew), let lane): clockSkews[lane] = skew
    case .provider(.renewed, let lane): scheduler.tryNow(lanes[lane].id)
    case .receipts(let failures, let lane):
      for failure in failures { apply(failure.outcome, of: failure.token[...], toLane: lane, now) }
    case .drain: drain(now)
    }
  }

  /// Starts whatever is due: to be called at the end of a turn in which there were events, and at `nextAlarm`.
  public mutating func turn(_ now: Instant) {
    noteLapse(now)
    known.forgetOld(now, isStoreAvailable: membership.isOpen)
    joinIfDue(now)
    reclaimIfDue(now)
    forgetIfDue(now)
    sendLeaseless(now)
    sendDue(now)
    if membership.isOpen {
      claimIfDue(now)
      flushWriter(now)
      lookUpIfDue(now)
      syncIfDue(now)
      scanIfDue(now)
      keepHouse(now)
    }
    // Nothing is sent before the permit that covers it.
    renewPermit()
    sendOutgoing()
  }

  /// A claim has brought what is yet to be sent.
  public var hasClaimed: Bool { !claimed.isEmpty }

  /// Sends what a claim has brought: to be called after the actions of `turn` were carried out, so that the database works on the
  /// next claim meanwhile.
  public mutating func sendClaimed(_ now: Instant) {
    guard hasClaimed else { return }
    beginClaimed(now)
    if membership.isOpen {
      flushWriter(now)
      syncIfDue(now)
    }
    renewPermit()
    sendOutgoing()
  }

  /// When `turn` has something to do if no event comes before; distant future for never.
  public var nextAlarm: Instant {
    var next = retries.earliest ?? .distantFuture
    if membership.isRegistered || isQuiet { next = min(next, membership.due) }
    next = min(next, lease.lapse)
    if membership.isConfirmed { next = min(next, ledger.due) }
    if membership.isConfirmed, membership.mustReclaim, isReadyToReclaim { next = min(next, reclaiming.due) }
    guard membership.isOpen else { return next }
    next = min(next, min(writer.due, min(endings.due, min(reconciliation.due, diskWait.due))))
    if !isDraining { next = min(next, housekeeping.due) }
    if mayClaim, !lease.hasLapsed { next = min(next, pacer.next) }
    return next
  }

  /// Gives the actions since the last call, in order, for an array whose memory is used again.
  public mutating func dequeue(into buffer: inout [DispatcherAction]) {
    buffer.removeAll(keepingCapacity: true)
    swap(&buffer, &actions)
  }

  /// Nothing is held, and nothing is on its way into the outbox.
  public var isIdle: Bool { isDrained && writer.apartCount == 0 }

  /// As `isIdle`, but for what the database refuses to write down: waiting longer does not help that.
  public var isDrained: Bool { known.heldCount == writer.apartCount && writer.isIdle && ledger.isQuiet }

  /// What keeps deliveries from flowing, one sentence each; empty when they flow.
  public func obstacles(_ now: Instant) -> [String] {
    if isDraining { return ["the gateway is shutting down"] }
    if !membership.isStoreAvailable { return ["the database cannot be reached"] }
    if !lease.isValid(now) { return ["the database has not confirmed that this gateway lives"] }
    if !membership.isOpen { return ["the database has restarted, and what this gateway holds is claimed again"] }
    if scheduler.hasCapacity { return [] }
    return lanes.map { "\($0.app)/\($0.provider.rawValue): no usable connection to the provider" }
  }

  /// How the lanes are now, in their order.
  public func conditions(_ now: Instant) -> [LaneCondition] { scheduler.currentConditions(now) }

  // MARK: - For the extensions

  mutating func log(_ level: Logger.Level, _ message: Logger.Message, _ metadata: Logger.Metadata = [:]) {
    actions.append(.log(DispatcherLogEntry(level, message, metadata)))
  }

  /// Requests may leave: what is held is ours as far as anybody can know.
  func maySend(_ now: Instant) -> Bool { lease.isValid(now) && !membership.mustReclaim }

  /// Tells the providers how long requests may be written, where that has changed.
  mutating func renewPermit() {
    let until = membership.mustReclaim ? Instant(nanoseconds: .min) : lease.until
    guard until != permit else { return }
    permit = until
    actions.append(.permit(until: until))
  }
}
