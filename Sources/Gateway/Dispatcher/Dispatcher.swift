// The way of a delivery through the gateway: claim by lane → plan → send → settle, in batches.
//
// Everything here runs on one event loop. What to do is decided by pure parts (LaneScheduler, ClaimPacer, RetryPolicy,
// SettlementBatcher, CallPlanner); this actor carries it out. `pump` is the only place where work is started, at the end of each
// turn in which something happened and whenever the earliest due time comes.

import Dialects
import Logging
import Providers
import Queue
import Runtime

/// Claims deliveries of its lanes, has them sent, and sees to it that what became of them is written down.
actor Dispatcher {
  nonisolated let loop: EventLoop
  nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  private let store: any OutboxStore
  private let writer: OutboxWriter
  private let lanes: [DispatcherLane]
  private let laneIndexByID: [Int16: Int]
  private let policy: RetryPolicy
  private let logger: Logger

  private var scheduler = LaneScheduler()
  private var pacer = ClaimPacer()
  private var held = SlotTable<HeldDelivery>()
  private var retries = DeadlineHeap<Int>()
  private var outgoing: [[PushRequest]]
  private var breakers: [InvalidationBreaker]
  private var ended = EndedCalls()
  var counters: DispatcherCounters
  /// How much a lane's provider is ahead of our clock, where it was measured.
  private(set) var clockSkews: [Int: Nanoseconds] = [:]

  /// Whether the ends of calls are heard of.
  private var isListening = false
  private var isStoreAvailable = false
  private var isClaiming = false
  private var isDraining = false
  private var isPumpPlanned = false
  private var nextReport = Instant(nanoseconds: .min)
  private var alarm: EventLoop.Timer?
  private var alarmAt = Instant.distantFuture
  private var onIdle: CheckedContinuation<Void, Never>?

  init(
    store: any OutboxStore, lanes: [DispatcherLane], policy: RetryPolicy = RetryPolicy(), loop: EventLoop,
    logger: Logger
  ) {
    self.store = store
    self.writer = OutboxWriter(store: store, logger: logger)
    self.lanes = lanes
    self.laneIndexByID = Dictionary(uniqueKeysWithValues: lanes.enumerated().map { ($1.id, $0) })
    self.policy = policy
    self.loop = loop
    self.logger = logger
    outgoing = Array(repeating: [], count: lanes.count)
    breakers = lanes.map { InvalidationBreaker(limits: $0.invalidation) }
    counters = DispatcherCounters(lanes: lanes.map { ($0.app, $0.kind) })
    for lane in lanes { scheduler.add(lane: lane.id, window: lane.window, perSecond: lane.perSecond) }
  }

  // MARK: - Events

  /// Starts every lane's provider; claims begin when the store says that it is available.
  func start() async {
    for (index, lane) in lanes.enumerated() {
      await lane.provider.start { [weak self] event in self?.hear(event, of: index) }
    }
  }

  /// Takes an event of the store, from any thread.
  nonisolated func hear(_ event: OutboxEvent) {
    onLoop { $0.handle(event) }
  }

  private nonisolated func hear(_ event: PushProviderEvent, of lane: Int) {
    onLoop { $0.handle(event, of: lane) }
  }

  private nonisolated func onLoop(_ body: @escaping @Sendable (isolated Dispatcher) -> Void) {
    if loop.isCurrent {
      assumeIsolated { body($0) }
    } else {
      loop.execute { self.assumeIsolated { body($0) } }
    }
  }

  private func handle(_ event: OutboxEvent) {
    switch event {
    case .bell: pacer.didHearBell(loop.now, isClaiming: isClaiming)
    case .available: isStoreAvailable = true
    case .unavailable: isStoreAvailable = false
    case .fenced: dropWaiting()
    case .void(let outboxID):
      ended.insert(outboxID, loop.now)
      void { $0 == outboxID }
    case .voidAny: void { _ in true }
    case .listening(let isListening):
      self.isListening = isListening
      if !isListening { void { _ in true } }
    case .tallied(let tallies): for tally in tallies { counters.note(tally) }
    case .invalidationResumed(let lane):
      if let index = laneIndexByID[lane] { breakers[index].reset() }
    }
    planPump()
  }

  /// Takes what receipts said of a lane's earlier pushes: they tell of tokens, credentials and limits as answers do.
  func hear(receipts outcomes: [(token: [UInt8], outcome: PushOutcome)], of lane: Int) {
    for (token, outcome) in outcomes { heed(outcome, token[...], lane, loop.now) }
    planPump()
  }

  private func handle(_ event: PushProviderEvent, of lane: Int) {
    switch event {
    case .capacity(let capacity): scheduler.setCapacity(capacity, of: lanes[lane].id)
    case .results(let results): for result in results { handle(result) }
    case .clockSkew(let skew): clockSkews[lane] = skew
    }
    planPump()
  }

  /// What keeps this dispatcher from sending, one sentence each; empty when deliveries flow.
  var obstacles: [String] {
    if isDraining { return ["the gateway is shutting down"] }
    if !isStoreAvailable { return ["the database cannot be reached"] }
    if scheduler.hasCapacity { return [] }
    return lanes.map { "\($0.app)/\($0.kind.rawValue): no usable connection to the provider" }
  }

  // MARK: - The pump

  func planPump() {
    guard !isPumpPlanned else { return }
    isPumpPlanned = true
    loop.atEndOfTurn { [weak self] in
      guard let self else { return }
      assumeIsolated { $0.pump() }
    }
  }

  private func pump() {
    isPumpPlanned = false
    let now = loop.now
    resendDue(now)
    sendOutgoing()
    writer.flush(now, isLast: isDraining, for: self)
    claimIfDue(now)
    reportIfDue(now)
    setAlarm()
    if isDraining, isIdle, let onIdle {
      self.onIdle = nil
      onIdle.resume()
    }
  }

  /// Wakes the pump at the earliest time something is due.
  private func setAlarm() {
    var next = retries.earliest ?? .distantFuture
    next = min(next, writer.due)
    if mayClaim { next = min(next, pacer.next) }
    if isStoreAvailable, !isDraining { next = min(next, nextReport) }
    guard next != alarmAt || alarm?.isPending != true else { return }
    alarm?.cancel()
    alarm = nil
    alarmAt = next
    guard next < .distantFuture else { return }
    alarm = loop.schedule(at: next) { [weak self] in
      guard let self else { return }
      assumeIsolated { $0.planPump() }
    }
  }

  // MARK: - Reporting

  private static let reportInterval = Nanoseconds.seconds(1)

  /// Tells ops, once a second, how the lanes are.
  private func reportIfDue(_ now: Instant) {
    guard isStoreAvailable, !isDraining, nextReport <= now else { return }
    nextReport = now + Self.reportInterval
    let conditions = scheduler.conditions(now)
    Task {
      do throws(OutboxError) {
        try await store.report(conditions)
      } catch {
        logger.debug("The lanes' condition could not be reported", metadata: ["reason": "\(error)"])
      }
    }
  }

  /// How the lanes are now, in their order, and each one's provider.
  func conditions(_ now: Instant) -> [(lane: LaneCondition, provider: ProviderCondition)] {
    zip(scheduler.currentConditions(now), lanes).map { condition, lane in
      (condition, lane.provider.conditionOnLoop)
    }
  }

  // MARK: - Claiming

  private var mayClaim: Bool { isStoreAvailable && !isClaiming && !isDraining }

  private func claimIfDue(_ now: Instant) {
    guard mayClaim, pacer.next <= now else { return }
    let allowances = scheduler.allowances(now)
    guard !allowances.isEmpty else {
      pacer.didClaim(0, now)  // a result or a connection will make room and pump again
      return
    }
    let limits = scheduler.claimLimits(now)
    isClaiming = true
    Task {
      do throws(OutboxError) {
        let deliveries = try await store.claim(allowances, within: limits)
        isClaiming = false
        take(deliveries)
        pacer.didClaim(deliveries.count, loop.now)
      } catch {
        isClaiming = false
        pacer.didFail(loop.now)
        logger.warning("Claiming deliveries failed; it is tried again", metadata: ["reason": "\(error)"])
      }
      planPump()
    }
  }

  private func take(_ deliveries: [Delivery]) {
    counters.claimed += deliveries.count
    let now = loop.now
    for delivery in deliveries {
      guard let lane = laneIndexByID[delivery.lane] else { preconditionFailure("claimed from a lane nobody asked for") }
      scheduler.didClaim(1, of: delivery.lane, background: delivery.isBackground(now) ? 1 : 0)
      let slot = held.insert(HeldDelivery(delivery, lane: lane))
      if isDraining || (delivery.kind == .invite && ended.contains(delivery.lease.outboxID)) {
        release(slot, now)
      } else {
        send(slot, now)
      }
    }
    scheduler.didFinishClaim()
  }

  // MARK: - Sending

  private func send(_ slot: Int, _ now: Instant) {
    guard let entry = held[slot] else { return }
    switch lanes[entry.lane].planner.plan(entry.delivery, now: now, tag: UInt64(slot)) {
    case .success(let request):
      request.avoidedConnection = entry.avoidedConnection
      request.environment = PushEnvironment(rawValue: entry.environment) ?? .production
      if entry.suspicion != nil { request.deadline = min(request.deadline, now + policy.environmentProbe) }
      outgoing[entry.lane].append(request)
      if entry.sentAt != nil { scheduler.didResend(entry.delivery.lane) }
      entry.didSend()
    case .failure(let failure):
      finish(slot, failure.isExpired ? .expired : .dead, reason: failure.reason, now)
    }
  }

  private func sendOutgoing() {
    for lane in lanes.indices where !outgoing[lane].isEmpty {
      scheduler.didSend(outgoing[lane].count, of: lanes[lane].id)
      lanes[lane].provider.take(outgoing[lane])
      outgoing[lane] = []
    }
  }

  private func resendDue(_ now: Instant) {
    while let slot = retries.popDue(now) {
      // The slot may have a new occupant since: it has its own time.
      guard let entry = held[slot], entry.isWaiting, entry.dueAt <= now else { continue }
      entry.wake()
      send(slot, now)
    }
  }

  // MARK: - Outcomes

  private static let badDeviceToken = "BadDeviceToken"

  private func handle(_ result: PushResult) {
    let slot = Int(result.tag)
    guard let entry = held[slot] else { preconditionFailure("a provider answered a request twice") }
    let now = loop.now
    counters.note(inLane: entry.lane) {
      $0.note(result, of: entry.delivery, isFirst: entry.isUntried)
    }
    entry.note(result)
    guard let outcome = judge(result, slot, entry, now) else { return }
    heed(outcome, entry.delivery.token, entry.lane, now)
    let disposition = policy.disposition(
      of: outcome, attempts: Int(entry.attempts), throttles: entry.throttles,
      isRepeatable: entry.delivery.kind != .missedCall, deadline: entry.delivery.deadline,
      answeredAt: result.answeredAt, random: .random(in: 0..<1))
    switch disposition {
    case .settle(let ending, let reason):
      var messageID: String?
      if case .accepted(let id) = outcome { messageID = id }
      finish(slot, ending, reason: reason ?? entry.reason, messageID: messageID, now)
    case .retry(let wait, let reason, let isCounted):
      if isCounted { entry.noteFailure(reason, result) }
      retry(slot, after: wait, reason, isCounted: isCounted, now)
    case .park(let wait, let reason):
      entry.noteFailure(reason, result)
      park(slot, after: wait, reason: reason, now)
    }
  }

  /// What an answer means for its delivery; nil when the question is put to APNs' other environment first.
  ///
  /// BadDeviceToken may be said of a token that is good, but of the other environment: only if that refuses it too, or does not
  /// answer soon, is it dead (docs/protocols.md).
  private func judge(_ result: PushResult, _ slot: Int, _ entry: HeldDelivery, _ now: Instant) -> PushOutcome? {
    guard let suspicion = entry.suspicion else {
      guard case .tokenInvalid(Self.badDeviceToken, _) = result.outcome, lanes[entry.lane].kind == .apns,
        entry.delivery.deadline > now + policy.roundTrip, !entry.isVoid, !isDraining
      else { return result.outcome }
      entry.noteFailure(Self.badDeviceToken, result)
      entry.suspect(result.outcome)
      send(slot, now)
      return nil
    }
    switch result.outcome {
    case .refused: return result.outcome
    case .accepted:
      let delivery = entry.delivery
      writer.correct(
        EnvironmentCorrection(lane: delivery.lane, token: delivery.token, environment: entry.environment), now)
      logger.warning(
        "A token is registered for the wrong APNs environment; the push went to the other one", metadata: about(entry))
      return result.outcome
    default: return suspicion
    }
  }

  private func retry(_ slot: Int, after wait: Nanoseconds, _ reason: String, isCounted: Bool, _ now: Instant) {
    guard let entry = held[slot] else { return }
    entry.reason = reason
    let wait = max(wait, scheduler.wait(of: entry.delivery.lane, now))
    // An invite whose call may have ended unheard goes by way of the outbox, which knows.
    let isUnsure = entry.delivery.kind == .invite && !isListening
    guard isDraining || entry.isVoid || isUnsure || wait > policy.longestInMemory else {
      entry.wait(until: now + wait, isNextCounted: isCounted)
      retries.insert(slot, at: now + wait)
      return
    }
    if isCounted { park(slot, after: wait, reason: reason, now) } else { giveBack(slot, now) }
  }

  /// Nothing of these calls' invites may leave any more: what waits, here or at a provider, goes back to the outbox, which ends
  /// it as void; what has left is not sent again.
  private func void(_ isMeant: (Int64) -> Bool) {
    let now = loop.now
    var sent: [Int: Set<UInt64>] = [:]  // by lane
    for slot in held.occupied {
      guard let entry = held[slot], entry.delivery.kind == .invite, isMeant(entry.delivery.lease.outboxID) else {
        continue
      }
      if entry.isWaiting {
        giveBack(slot, now)
      } else {
        entry.isVoid = true
        sent[entry.lane, default: []].insert(UInt64(slot))
      }
    }
    guard !sent.isEmpty else { return }
    sendOutgoing()
    for (lane, tags) in sent { lanes[lane].provider.takeBack(tags) }
  }

  /// What an outcome says about the token and the whole lane.
  private func heed(_ outcome: PushOutcome, _ token: ArraySlice<UInt8>, _ index: Int, _ now: Instant) {
    let lane = lanes[index]
    let answer: LaneCircuit.Answer
    switch outcome {
    case .tokenInvalid(let reason, let since):
      answer = .working
      writer.invalidate(TokenInvalidation(lane: lane.id, token: token, since: since, reason: reason), now)
      if let note = breakers[index].didHear(isDead: true, now) { hold(lane, note, now) }
    case .accepted, .rejected:
      answer = .working
      _ = breakers[index].didHear(isDead: false, now)
    case .throttled(_, let after, let isLaneWide):
      answer = .working
      if isLaneWide { scheduler.throttle(lane.id, until: now + (after ?? policy.base)) }
    case .unknown, .unavailable: answer = .failing
    case .unauthorized: answer = .unauthorized
    case .refused, .expired: return  // the provider never saw it
    }
    guard scheduler.didHear(answer, from: lane.id, now) else { return }
    counters.note(inLane: index) {
      $0.circuitOpenings[answer == .unauthorized ? .unauthorized : .failures, default: 0] += 1
    }
    logger.error(
      "A lane's circuit has opened: its deliveries wait in the outbox",
      metadata: ["app": "\(lane.app)", "provider": "\(lane.kind.rawValue)", "outcome": "\(outcome)"])
  }

  /// The provider calls too many tokens dead to be believed.
  private func hold(_ lane: DispatcherLane, _ note: String, _ now: Instant) {
    writer.hold(InvalidationHold(lane: lane.id, window: lane.invalidation.window, note: note), now)
    logger.critical(
      "Tokens die en masse: they are quarantined until push.resume_invalidation(app, provider) is called",
      metadata: ["app": "\(lane.app)", "provider": "\(lane.kind.rawValue)", "seen": "\(note)"])
  }

  private func finish(
    _ slot: Int, _ outcome: DeliveryOutcome, reason: String?, messageID: String? = nil, _ now: Instant
  ) {
    guard let entry = remove(slot) else { return }
    log(entry, outcome, outcome == .delivered ? nil : reason)
    let settlement = Settlement(
      entry.delivery, outcome: outcome, attempts: entry.attempts,
      status: entry.status, reason: outcome == .delivered ? nil : reason, providerMessageID: messageID,
      sentAt: entry.sentAt, answeredAt: entry.answeredAt, failures: entry.failures,
      receiptAfter: messageID == nil ? nil : lanes[entry.lane].receiptAfter)
    writer.settle(Ending(settlement: settlement, lane: entry.lane, isUntried: entry.isUntried), now)
  }

  private func park(_ slot: Int, after wait: Nanoseconds, reason: String, _ now: Instant) {
    guard let entry = remove(slot) else { return }
    counters.parked += 1
    writer.park(
      Parking(
        lease: entry.delivery.lease, attempts: entry.attempts, delay: wait, reason: reason, failures: entry.failures),
      now)
  }

  private func release(_ slot: Int, _ now: Instant) {
    guard let entry = remove(slot) else { return }
    counters.released += 1
    writer.release(entry.delivery.lease, now)
  }

  /// Back into the outbox: what was never tried under this lease uncounted, anything else with what is known of it.
  private func giveBack(_ slot: Int, _ now: Instant) {
    guard let entry = held[slot] else { return }
    if entry.failures.isEmpty {
      release(slot, now)
    } else {
      park(slot, after: max(.zero, entry.dueAt - now), reason: entry.reason ?? "Interrupted", now)
    }
  }

  private func remove(_ slot: Int) -> HeldDelivery? {
    guard let entry = held.remove(slot) else { return nil }
    scheduler.didFinish(entry.delivery.lane)
    return entry
  }

  private func about(_ entry: HeldDelivery) -> Logger.Metadata {
    Logger.Metadata(entry.delivery, app: lanes[entry.lane].app, provider: lanes[entry.lane].kind)
  }

  /// The one line of a delivery that has ended.
  private func log(_ entry: HeldDelivery, _ outcome: DeliveryOutcome, _ reason: String?) {
    guard logger.logLevel <= .info else { return }
    var metadata = about(entry)
    metadata.note(outcome, reason, entry)
    logger.info("A delivery has ended", metadata: metadata)
  }

  // MARK: - The end

  /// Others own our claims now: nothing that has not left may leave.
  private func dropWaiting() {
    for slot in held.occupied where held[slot]?.isWaiting == true { _ = remove(slot) }
  }

  private var isIdle: Bool { held.isEmpty && !isClaiming && writer.isIdle }

  /// Stops claiming, lets what is in flight finish until `deadline`, gives the rest back, and writes everything down.
  ///
  /// - Returns: whether all of it could be written; false when the store stayed unreachable until `deadline`.
  func drain(until deadline: Instant) async -> Bool {
    isDraining = true
    let now = loop.now
    for slot in held.occupied {
      guard let entry = held[slot], entry.isWaiting else { continue }
      park(slot, after: policy.refusedWait, reason: entry.reason ?? "Shutdown", now)
    }
    planPump()
    await withTaskGroup { group in
      for lane in lanes { group.addTask { await lane.provider.shutDown(by: deadline) } }
    }
    // Written within the time that is left, and a little more so that a slow answer at the deadline is not lost.
    let patience = loop.schedule(at: max(deadline, loop.now) + .seconds(2)) { [weak self] in
      guard let self else { return }
      assumeIsolated { $0.stopWaiting() }
    }
    await withCheckedContinuation { continuation in
      onIdle = continuation
      planPump()
    }
    patience.cancel()
    return isIdle
  }

  private func stopWaiting() {
    onIdle?.resume()
    onIdle = nil
  }
}
