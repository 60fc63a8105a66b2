// The way of a delivery through the gateway: claim by lane → plan → send → settle, in batches.
//
// Everything here runs on one event loop. `DispatcherMachine` decides. This actor gives it the events, calls its `turn` at the
// end of each turn of the loop in which there were events, and performs its actions.

public import Logging
public import Providers
public import Queue
public import Runtime

/// A lane and the provider behind it.
public struct DispatcherLane: Sendable {
  public var configuration: LaneConfiguration
  public var provider: any PushProvider
  /// Where the dispatchers that share the provider exchange news.
  public var board: LaneBoard

  public init(_ configuration: LaneConfiguration, provider: any PushProvider, board: LaneBoard) {
    self.configuration = configuration
    self.provider = provider
    self.board = board
  }
}

/// Claims the deliveries of its lanes, has them sent, and writes their outcomes.
public actor Dispatcher {
  public nonisolated let loop: EventLoop
  public nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  private let store: any OutboxStore
  private let lanes: [DispatcherLane]
  private let permit: SendPermit
  private let permits: SendPermits
  private let logger: Logger
  private var machine: DispatcherMachine
  /// Memory for the actions of a turn.
  private var actions: [DispatcherAction] = []

  private var isTurnPlanned = false
  private var alarm: EventLoop.Timer?
  private var alarmAt = Instant.distantFuture
  private var onDrained: CheckedContinuation<Void, Never>?
  /// Whether it has drained. What comes later, such as a last answer to a beat, is no longer handled: its replica is signing off.
  private var isOver = false

  /// - Parameters:
  ///   - permits: the permits that the lanes' providers check. The dispatcher adds its own.
  ///   - seed: the seed of the jitter of retries.
  public init(
    store: any OutboxStore, lanes: [DispatcherLane], permits: SendPermits,
    settings: DispatcherSettings = DispatcherSettings(), loop: EventLoop, logger: Logger,
    seed: UInt64 = .random(in: .min ... .max)
  ) {
    self.store = store
    self.lanes = lanes
    self.permits = permits
    permit = SendPermit(on: loop)
    self.loop = loop
    self.logger = logger
    machine = DispatcherMachine(lanes: lanes.map(\.configuration), settings: settings, seed: seed)
  }

  // MARK: - Events

  /// Starts every lane's provider. Claims begin when the store reports that it is available.
  public func start() async {
    permits.add(permit)
    for (index, lane) in lanes.enumerated() {
      lane.board.join(machine.settings.number) { [weak self] news in self?.hear(.told(news, lane: index)) }
    }
    for (index, lane) in lanes.enumerated() {
      await lane.provider.start { [weak self] event in self?.hear(.provider(event, lane: index)) }
    }
  }

  /// Takes an event of the store, from any thread.
  public nonisolated func hear(_ event: OutboxEvent) { hear(.outbox(event)) }

  /// Takes the receipts of a lane's earlier pushes.
  public func hear(receipts failures: [ReceiptFailure], of lane: Int) { handle(.receipts(failures, lane: lane)) }

  private nonisolated func hear(_ event: DispatcherEvent) {
    if loop.isCurrent {
      assumeIsolated { $0.handle(event) }
    } else {
      loop.execute { self.assumeIsolated { $0.handle(event) } }
    }
  }

  private func handle(_ event: DispatcherEvent) {
    guard !isOver else { return }
    machine.handle(event, loop.now)
    planTurn()
  }

  // MARK: - What is seen from outside

  /// Counters since the start.
  public var counters: DispatcherCounters { machine.counters }

  /// How far a lane's provider's clock is ahead of ours, by the index of the lane, where it was measured.
  public var clockSkews: [Int: Nanoseconds] { machine.clockSkews }

  /// The reasons why this dispatcher sends nothing, one sentence each; empty if it sends.
  public var obstacles: [String] { machine.obstacles(loop.now) }

  /// Whether deliveries are claimed from the database.
  public var isDatabaseReady: Bool { machine.databaseObstacle(loop.now) == nil }

  /// What is wrong with the providers of lanes, one sentence each: requests that are not answered, credentials that are refused.
  public var laneRemarks: [String] {
    let now = loop.now
    return lanes.enumerated().flatMap { index, lane in
      let condition = lane.provider.conditionOnLoop
      return [condition.silence, refusal(ofLane: index, condition, now)?.sentence].compactMap(\.self)
        .map { "\(lane.configuration.name): \($0)" }
    }
  }

  /// The condition of each lane in order, and that of its provider.
  public func conditions(_ now: Instant) -> [(lane: LaneCondition, provider: ProviderCondition)] {
    zip(withRefusals(machine.conditions(now), now), lanes).map { ($0, $1.provider.conditionOnLoop) }
  }

  /// The conditions of all lanes, which are in order, with why their providers refuse credentials.
  private func withRefusals(_ conditions: [LaneCondition], _ now: Instant) -> [LaneCondition] {
    conditions.enumerated().map { index, condition in
      var condition = condition
      condition.refusal = refusal(ofLane: index, lanes[index].provider.conditionOnLoop, now)
      return condition
    }
  }

  /// Why a lane's provider refuses its credentials; nil if it does not, as far as is known.
  private func refusal(ofLane index: Int, _ provider: ProviderCondition, _ now: Instant) -> LaneRefusal? {
    let found: (extent: LaneRefusal.Extent, reason: String)
    if provider.isWithoutToken, let reason = provider.refusal {
      found = (.allPushes, reason)
    } else if let (reason, concernsAll) = machine.refusal(ofLane: index, now), concernsAll {
      found = (.allPushes, reason)
    } else if let reason = provider.refusedCredentials {
      found = (.newCredentials, reason)
    } else if let reason = provider.refusal ?? machine.refusal(ofLane: index, now)?.reason,
      lanes[index].configuration.provider != .webpush
    {
      found = (.somePushes, reason)  // A browser that has subscribed with another key says nothing about others.
    } else {
      return nil
    }
    let sentence = lanes[index].board.describe(found.extent, found.reason)
    return LaneRefusal(extent: found.extent, reason: found.reason, sentence: sentence)
  }

  // MARK: - Turns

  private func planTurn() {
    guard !isTurnPlanned else { return }
    isTurnPlanned = true
    loop.atEndOfTurn { [weak self] in self?.assumeIsolated { $0.turn() } }
  }

  private func turn() {
    isTurnPlanned = false
    guard !isOver else { return }
    machine.logLevel = logger.logLevel
    machine.turn(loop.now)
    performAll()
    machine.sendClaimed(loop.now)
    performAll()
    setAlarm()
    if machine.isDraining, machine.isDrained { stopWaiting() }
  }

  /// Schedules another turn for when something is due.
  private func setAlarm() {
    let next = machine.nextAlarm
    guard next != alarmAt || alarm?.isPending != true else { return }
    alarm?.cancel()
    alarm = nil
    alarmAt = next
    guard next < .distantFuture else { return }
    alarm = loop.schedule(at: next) { [weak self] in self?.assumeIsolated { $0.planTurn() } }
  }

  // MARK: - Actions

  private func performAll() {
    machine.dequeue(into: &actions)
    for action in actions { perform(action) }
    actions.removeAll(keepingCapacity: true)
  }

  private func perform(_ action: DispatcherAction) {
    switch action {
    case .send(let lane, let requests):
      for request in requests { request.permit = permit }
      lanes[lane].provider.sendOnLoop(requests)
    case .withdraw(let lane, let tags, let areOverdue):
      lanes[lane].provider.withdrawOnLoop(tags, areOverdue: areOverdue)
    case .permit(let until): permit.until = until
    case .tell(let lane, let news): lanes[lane].board.post(news, from: machine.settings.number)
    case .log(let level, let message, let metadata): logger.log(level: level, message, metadata: metadata)
    case .logOpening(let lane, let outcome): logOpening(lane, outcome)
    default:
      let askedAt = loop.now
      // Runs at once, until the statement is sent.
      Task.immediate {
        if let answer = await ask(action, askedAt) { handle(answer) }
      }
    }
  }

  /// Calls the store. Nil for an action that does not call it.
  private func ask(_ action: DispatcherAction, _ askedAt: Instant) async -> DispatcherEvent? {
    switch action {
    case .register: .registered(await result(try await store.register()), askedAt: askedAt)
    case .beat(let mayReap): .beaten(await result(try await store.beat(mayReap: mayReap)), askedAt: askedAt)
    case .claim(let number, let allowances, let limits):
      .claimed(number: number, await result(try await store.claim(number, allowances, within: limits)))
    case .forget(let number): .forgotten(number: number, await result(try await store.forget(number)))
    case .scan(let page): .scanned(await result(try await store.claimed(from: page)))
    case .write(let batch, let write): .written(batch: batch, await result(try await store.write(write)))
    case .lookUpEnded(let calls): .endedFound(await result(try await store.endedFor(calls)))
    case .sync: .synced(await result(try await store.sync()))
    case .claimJob(let kind): .jobClaimed(kind, await result(try await store.claimJob(kind)))
    case .runJob(let kind, let name): .jobRan(kind, await result(try await store.run(kind, job: name)))
    case .followUp(let kind, let max): .followedUp(kind, await result(try await store.followUp(kind, max: max)))
    case .report(let conditions):
      .reported(await result(try await store.report(withRefusals(conditions, askedAt))))
    case .send, .withdraw, .permit, .tell, .log, .logOpening: nil
    }
  }

  private func logOpening(_ lane: Int, _ outcome: PushOutcome) {
    let name = lanes[lane].configuration.name
    var metadata: Logger.Metadata = ["app": "\(name.app)", "provider": "\(name.channel)", "outcome": "\(outcome.word)"]
    metadata["reason"] = outcome.failureReason.map { "\($0)" }
    metadata["refusal"] = refusal(ofLane: lane, lanes[lane].provider.conditionOnLoop, loop.now).map { "\($0.sentence)" }
    logger.error("A lane's circuit has opened", metadata: metadata)
  }

  private func result<Answer>(
    _ answer: @autoclosure () async throws(OutboxError) -> Answer
  ) async -> Result<Answer, OutboxError> {
    do throws(OutboxError) { return .success(try await answer()) } catch { return .failure(error) }
  }

  // MARK: - The end

  /// Stops claiming, lets requests in flight finish until `deadline`, returns the other deliveries, and writes all outcomes.
  ///
  /// - Returns: whether everything was written; false if the store stayed unreachable until `deadline`.
  public func drain(until deadline: Instant) async -> Bool {
    handle(.drain)
    await withTaskGroup { group in
      for lane in lanes { group.addTask { await lane.provider.shutDown(by: deadline) } }
    }
    for lane in lanes { lane.board.leave(machine.settings.number) }
    permits.remove(permit)
    // Writing has the time that is left, and a little more so that a slow answer at the deadline is not lost.
    let patience = loop.schedule(at: max(deadline, loop.now) + .seconds(2)) { [weak self] in
      self?.assumeIsolated { $0.stopWaiting() }
    }
    await withCheckedContinuation { continuation in
      onDrained = continuation
      planTurn()
    }
    patience.cancel()
    isOver = true
    alarm?.cancel()
    return machine.isIdle
  }

  private func stopWaiting() {
    onDrained?.resume()
    onDrained = nil
  }
}

extension OutboxStore {
  /// Writes a batch of any kind.
  fileprivate func write(_ write: OutboxWrite) async throws(OutboxError) -> OutboxWriteAnswer {
    switch write {
    case .settle(let settlements): .count(try await settle(settlements))
    case .settledAmong(let settlements): .settled(try await settled(among: settlements))
    case .park(let parkings): .count(try await park(parkings))
    case .disown(let leases): .count(try await disown(leases))
    case .invalidate(let tokens): .count(try await invalidate(tokens))
    case .hold(let holds): .count(try await hold(holds))
    case .correct(let environments): .count(try await correct(environments))
    }
  }
}
