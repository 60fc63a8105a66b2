// The way of a delivery through the gateway: claim by lane → plan → send → settle, in batches.
//
// Everything here runs on one event loop. What to do is decided by pure parts (LaneScheduler, ClaimPacer, RetryPolicy,
// SettlementBatcher, CallPlanner); this actor carries it out. `pump` is the only place where work is started, at the end of each
// turn in which something happened and whenever the earliest due time comes.

import Logging
import Providers
import Queue
import Runtime

/// Claims deliveries of its lanes, has them sent, and sees to it that what became of them is written down.
actor Dispatcher {
  /// A claimed delivery until it is settled, parked or released.
  private struct Held {
    var delivery: Delivery
    var lane: Int  // index into `lanes`
    var attempts: Int32
    var isWaiting = false
    /// When it is sent again, while it waits.
    var dueAt = Instant(nanoseconds: .min)
    /// Its call has ended: it is not sent again.
    var isVoid = false
    /// Whether sending it again is another attempt.
    var isNextCounted = false
    var reason: String?
    var sentAt: Instant?
    var answeredAt: Instant?
    var status: UInt16 = 0
  }

  nonisolated let loop: EventLoop
  nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  private let store: any OutboxStore
  private let lanes: [DispatcherLane]
  private let laneIndexByID: [Int16: Int]
  private let policy: RetryPolicy
  private let logger: Logger

  private var scheduler = LaneScheduler()
  private var pacer = ClaimPacer()
  private var held = SlotTable<Held>()
  private var retries = DeadlineHeap<Int>()
  private var outgoing: [[PushRequest]]
  private var settlements = SettlementBatcher<Settlement>()
  private var parkings = SettlementBatcher<Parking>()
  private var releases = SettlementBatcher<DeliveryLease>()
  private(set) var counters = DispatcherCounters()

  private var invalidations = SettlementBatcher<TokenInvalidation>()
  private var ended = EndedCalls()
  private var isStoreAvailable = false
  private var isClaiming = false
  private var isDraining = false
  private var isPumpPlanned = false
  private var alarm: EventLoop.Timer?
  private var alarmAt = Instant.distantFuture
  private var onIdle: CheckedContinuation<Void, Never>?

  init(
    store: any OutboxStore, lanes: [DispatcherLane], policy: RetryPolicy = RetryPolicy(), loop: EventLoop,
    logger: Logger
  ) {
    self.store = store
    self.lanes = lanes
    self.laneIndexByID = Dictionary(uniqueKeysWithValues: lanes.enumerated().map { ($1.id, $0) })
    self.policy = policy
    self.loop = loop
    self.logger = logger
    outgoing = Array(repeating: [], count: lanes.count)
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
    }
    planPump()
  }

  private func handle(_ event: PushProviderEvent, of lane: Int) {
    switch event {
    case .capacity(let capacity): scheduler.setCapacity(capacity, of: lanes[lane].id)
    case .results(let results): for result in results { handle(result) }
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

  private func planPump() {
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
    flush(now)
    claimIfDue(now)
    setAlarm()
    if isDraining, isIdle, let onIdle {
      self.onIdle = nil
      onIdle.resume()
    }
  }

  /// Wakes the pump at the earliest time something is due.
  private func setAlarm() {
    var next = retries.earliest ?? .distantFuture
    for due in [settlements.due, parkings.due, releases.due, invalidations.due] {
      next = min(next, due ?? .distantFuture)
    }
    if mayClaim { next = min(next, pacer.next) }
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

  // MARK: - Claiming

  private var mayClaim: Bool { isStoreAvailable && !isClaiming && !isDraining }

  private func claimIfDue(_ now: Instant) {
    guard mayClaim, pacer.next <= now else { return }
    let allowances = scheduler.allowances(now)
    guard !allowances.isEmpty else {
      pacer.didClaim(0, now)  // a result or a connection will make room and pump again
      return
    }
    isClaiming = true
    Task {
      do throws(OutboxError) {
        let deliveries = try await store.claim(allowances)
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
      scheduler.didClaim(1, of: delivery.lane)
      let slot = held.insert(Held(delivery: delivery, lane: lane, attempts: delivery.attempt))
      if isDraining || (delivery.kind == .invite && ended.contains(delivery.lease.outboxID)) {
        release(slot, now)
      } else {
        send(slot, now)
      }
    }
  }

  // MARK: - Sending

  private func send(_ slot: Int, _ now: Instant) {
    guard let entry = held[slot] else { return }
    switch lanes[entry.lane].planner.plan(entry.delivery, now: now, tag: UInt64(slot)) {
    case .success(let request):
      outgoing[entry.lane].append(request)
      if entry.sentAt != nil { scheduler.didResend(entry.delivery.lane) }
      if entry.isNextCounted { held[slot]?.attempts += 1 }
      held[slot]?.isNextCounted = false
      counters.sent += 1
    case .failure(let failure):
      finish(slot, failure.isExpired ? .expired : .dead, reason: failure.reason, now)
    }
  }

  private func sendOutgoing() {
    for lane in lanes.indices where !outgoing[lane].isEmpty {
      lanes[lane].provider.take(outgoing[lane])
      outgoing[lane] = []
    }
  }

  private func resendDue(_ now: Instant) {
    while let slot = retries.popDue(now) {
      // The slot may have a new occupant since: it has its own time.
      guard let entry = held[slot], entry.isWaiting, entry.dueAt <= now else { continue }
      held[slot]?.isWaiting = false
      send(slot, now)
    }
  }

  // MARK: - Outcomes

  private func handle(_ result: PushResult) {
    let slot = Int(result.tag)
    guard var entry = held[slot] else { preconditionFailure("a provider answered a request twice") }
    let now = loop.now
    entry.sentAt = result.sentAt ?? entry.sentAt
    entry.answeredAt = result.answeredAt
    entry.status = result.status
    let disposition = policy.disposition(
      of: result.outcome, attempts: Int(entry.attempts), deadline: entry.delivery.deadline,
      answeredAt: result.answeredAt,
      random: .random(in: 0..<1))
    held[slot] = entry
    heed(result.outcome, entry, now)
    switch disposition {
    case .settle(let outcome, let reason):
      var messageID: String?
      if case .accepted(let id) = result.outcome { messageID = id }
      finish(slot, outcome, reason: reason ?? entry.reason, messageID: messageID, now)
    case .retry(let wait, let reason, let isCounted):
      held[slot]?.reason = reason
      let laneWait = scheduler.wait(of: entry.delivery.lane, now)
      if entry.isVoid {
        release(slot, now)
      } else if isDraining || laneWait > policy.longestInMemory {
        isCounted ? park(slot, after: max(wait, laneWait), reason: reason, now) : release(slot, now)
      } else {
        let wait = max(wait, laneWait)
        held[slot]?.isNextCounted = isCounted
        held[slot]?.isWaiting = true
        held[slot]?.dueAt = now + wait
        retries.insert(slot, at: now + wait)
      }
    case .park(let wait, let reason):
      park(slot, after: wait, reason: reason, now)
    }
  }

  /// Nothing of these calls' invites may leave any more: what waits goes back to the outbox, which ends it as void; what is
  /// with a provider is not sent again.
  private func void(_ isMeant: (Int64) -> Bool) {
    let now = loop.now
    for slot in held.occupied {
      guard let entry = held[slot], entry.delivery.kind == .invite, isMeant(entry.delivery.lease.outboxID) else {
        continue
      }
      if entry.isWaiting { release(slot, now) } else { held[slot]?.isVoid = true }
    }
  }

  /// What an outcome says about the whole lane.
  private func heed(_ outcome: PushOutcome, _ entry: Held, _ now: Instant) {
    let lane = entry.delivery.lane
    let answer: LaneCircuit.Answer
    switch outcome {
    case .tokenInvalid(let reason, let since):
      answer = .working
      invalidations.add(
        TokenInvalidation(lane: lane, token: entry.delivery.token, since: since, reason: reason), now)
    case .accepted, .rejected: answer = .working
    case .throttled(_, let after, let isLaneWide):
      answer = .working
      if isLaneWide { scheduler.throttle(lane, until: now + (after ?? policy.base)) }
    case .unavailable, .unknown: answer = .failing
    case .unauthorized: answer = .unauthorized
    case .refused, .expired: return  // the provider never saw it
    }
    guard scheduler.didHear(answer, from: lane, now) else { return }
    logger.error(
      "A lane's circuit has opened: its deliveries wait in the outbox",
      metadata: [
        "app": "\(lanes[entry.lane].app)", "provider": "\(lanes[entry.lane].kind.rawValue)", "outcome": "\(outcome)",
      ])
  }

  private func finish(
    _ slot: Int, _ outcome: DeliveryOutcome, reason: String?, messageID: String? = nil, _ now: Instant
  ) {
    guard let entry = remove(slot) else { return }
    counters.count(outcome)
    if outcome != .delivered { logFailure(entry, outcome, reason) }
    settlements.add(
      Settlement(
        lease: entry.delivery.lease, callID: entry.delivery.callID, outcome: outcome, attempts: entry.attempts,
        status: entry.status, reason: outcome == .delivered ? nil : reason, providerMessageID: messageID,
        sentAt: entry.sentAt, answeredAt: entry.answeredAt), now)
  }

  private func park(_ slot: Int, after wait: Nanoseconds, reason: String, _ now: Instant) {
    guard let entry = remove(slot) else { return }
    counters.parked += 1
    parkings.add(Parking(lease: entry.delivery.lease, attempts: entry.attempts, delay: wait, reason: reason), now)
  }

  private func release(_ slot: Int, _ now: Instant) {
    guard let entry = remove(slot) else { return }
    counters.released += 1
    releases.add(entry.delivery.lease, now)
  }

  private func remove(_ slot: Int) -> Held? {
    guard let entry = held.remove(slot) else { return nil }
    scheduler.didFinish(entry.delivery.lane)
    return entry
  }

  private func logFailure(_ entry: Held, _ outcome: DeliveryOutcome, _ reason: String?) {
    let lane = lanes[entry.lane]
    logger.info(
      "A delivery failed",
      metadata: [
        "call_id": "\(String(decoding: entry.delivery.callID, as: UTF8.self))",
        "delivery_id": "\(entry.delivery.lease.outboxID)/\(entry.delivery.lease.number)",
        "app": "\(lane.app)", "provider": "\(lane.kind.rawValue)", "outcome": "\(outcome)",
        "reason": "\(reason ?? "none")", "attempts": "\(entry.attempts)",
      ])
  }

  // MARK: - Settling

  private func flush(_ now: Instant) {
    while let batch = settlements.take(now, isLast: isDraining) {
      write(batch) { store, batch throws(OutboxError) in
        try await store.settle(batch)
      } done: { dispatcher, isWritten in
        isWritten ? dispatcher.settlements.didFlush() : dispatcher.settlements.didFail(batch, dispatcher.loop.now)
      }
    }
    while let batch = parkings.take(now, isLast: isDraining) {
      write(batch) { store, batch throws(OutboxError) in
        try await store.park(batch)
      } done: { dispatcher, isWritten in
        isWritten ? dispatcher.parkings.didFlush() : dispatcher.parkings.didFail(batch, dispatcher.loop.now)
      }
    }
    while let batch = invalidations.take(now, isLast: isDraining) {
      write(batch) { store, batch throws(OutboxError) in
        _ = try await store.invalidate(batch)
        return batch.count
      } done: { dispatcher, isWritten in
        isWritten ? dispatcher.invalidations.didFlush() : dispatcher.invalidations.didFail(batch, dispatcher.loop.now)
      }
    }
    while let batch = releases.take(now, isLast: isDraining) {
      write(batch) { store, batch throws(OutboxError) in
        try await store.release(batch)
      } done: { dispatcher, isWritten in
        isWritten ? dispatcher.releases.didFlush() : dispatcher.releases.didFail(batch, dispatcher.loop.now)
      }
    }
  }

  private func write<Element: Sendable>(
    _ batch: [Element],
    _ send: @escaping @Sendable (any OutboxStore, [Element]) async throws(OutboxError) -> Int,
    done: @escaping @Sendable (isolated Dispatcher, _ isWritten: Bool) -> Void
  ) {
    Task {
      do throws(OutboxError) {
        counters.lostLeases += batch.count - (try await send(store, batch))
        done(self, true)
      } catch {
        done(self, false)
        logger.warning("Writing results to the outbox failed; it is tried again", metadata: ["reason": "\(error)"])
      }
      planPump()
    }
  }

  // MARK: - The end

  /// Others own our claims now: nothing that has not left may leave.
  private func dropWaiting() {
    for slot in held.occupied where held[slot]?.isWaiting == true { _ = remove(slot) }
  }

  private var isIdle: Bool {
    held.isEmpty && !isClaiming && settlements.isIdle && parkings.isIdle && releases.isIdle && invalidations.isIdle
  }

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
