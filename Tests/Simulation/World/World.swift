// A simulation: a server, replicas, providers with their phones, backends, faults and checkers, in one virtual time.

import Dispatching
import MemoryOutbox
import Queue
import Runtime

/// A rule was broken.
struct Violation: Error, Sendable {
  var seed: UInt64
  /// The true time.
  var at: VirtualTime
  /// The rule, in one sentence.
  var rule: String
  /// The event that broke the rule.
  var detail: String
}

/// All objects of one simulation. Confined to the thread that runs it.
final class World {
  /// More events than any seed needs: exceeding it means an endless loop.
  private static let eventsMax = 4_000_000
  /// Maximum time for everything that is owed when faults stop.
  private static let recoveryTime: VirtualTime = 100_000_000_000

  let seed: UInt64
  let plan: SeedPlan
  var paths: Paths
  let badTokens: BadTokens
  let story: Story
  var random: SplitMix64
  private(set) var now: VirtualTime = 0
  private var queue = EventQueue()
  private(set) var events = 0
  private(set) var violation: Violation?

  private(set) var server: DatabaseServer!
  private(set) var replicas: [Replica] = []
  private(set) var backend: Backend!
  private(set) var faults: FaultInjector!
  private(set) var checker: Checker!
  private(set) var promises: PromiseChecker!
  let phones = PhoneLog()
  /// All lives, including ended ones, whose requests may arrive after their death.
  private var lives: [Life] = []
  let lanes = SimulatedLane.all

  /// Whether faults happen.
  private(set) var hasFaults = true
  private var hasPoison = true
  /// Travel times of a request to the provider and of its answer, in milliseconds. Those of an overload end with the faults.
  var providerTime: ClosedRange<Int64> { plan.isOverloaded && !hasFaults ? 1...40 : plan.providerTime }
  /// Number of accepted deliveries, for the summary.
  var accepted: Int { phones.count }

  init(seed: UInt64, isTold: Bool = false) {
    self.seed = seed
    story = Story(isTold: isTold)
    random = SplitMix64(seed: seed)
    plan = SeedPlan(
      &random, isOnlyIll: Paths.areIll(seed) || BadTokens.exist(seed), isOverloaded: SeedPlan.isOverload(seed),
      isSlow: SeedPlan.isSlow(seed))
    paths = Paths(seed, replicas: plan.replicas, lanes: lanes.count, until: plan.faultTime)
    badTokens = BadTokens(seed, lanes: lanes)
    server = DatabaseServer(self)
    checker = Checker(self)
    promises = PromiseChecker(self)
    backend = Backend(self)
    faults = FaultInjector(self)
    replicas = (0..<plan.replicas).map { Replica($0, self) }
    if Paths.areShared(seed) {
      for replica in replicas where replica.index % 2 == 1 { replica.share(clockOf: replicas[replica.index - 1]) }
    }
  }

  // MARK: - Time

  func at(_ time: VirtualTime, _ body: @escaping () -> Void) { queue.add(at: max(now, time), body) }
  func after(_ time: VirtualTime, _ body: @escaping () -> Void) { at(now + time, body) }

  func tell(_ who: @autoclosure () -> String, _ what: @autoclosure () -> String) {
    story.tell(now, who(), what())
  }

  /// A rule was broken; only the first counts.
  func violate(_ rule: String, _ detail: @autoclosure () -> String) {
    guard violation == nil else { return }
    violation = Violation(seed: seed, at: now, rule: rule, detail: detail())
    tell("RULE", "\(rule) \(violation?.detail ?? "")")
  }

  func keep(_ life: Life) { lives.append(life) }

  /// A life has learned something of its path. Those that share it hear of it.
  func pass(_ news: LaneNews, ofLane lane: Int, from life: Life) {
    guard Paths.areShared(seed), let other = replicas.first(where: { $0.index == life.replica.index ^ 1 })?.life
    else { return }
    after(0) { other.whenRunning { other.handle(.told(news, lane: lane)) } }
  }

  // MARK: - Running

  /// Runs until the end or the first broken rule.
  func run() -> Violation? {
    tell("seed", "\(seed): \(plan.description)")
    server.start()
    for replica in replicas { after(random.time(0...500)) { replica.start() } }
    backend.start()
    faults.start()
    run(until: plan.faultTime, or: { false })
    calmDown()
    // First everything except deliveries that the database refuses to settle, then these, too.
    if !run(until: now + Self.recoveryTime, or: { self.isSettled }) { checkLiveness() }
    hasPoison = false
    server.change { outbox, _ in outbox.poison = [:] }
    if !run(until: now + Self.recoveryTime, or: { self.isSettled }) { checkLiveness() }
    checker.didEnd()
    queue.removeAll()
    for replica in replicas { replica.life?.die() }
    return violation
  }

  /// Returns whether it was over before the end.
  @discardableResult private func run(until end: VirtualTime, or isOver: () -> Bool) -> Bool {
    var nextLook = now
    while violation == nil, let next = queue.next, next <= end {
      if next >= nextLook {
        nextLook = next + 100_000_000
        if isOver() { return true }
      }
      guard let (at, body) = queue.pop() else { break }
      now = at
      body()
      events += 1
      if events > Self.eventsMax { violate("Time advances.", "\(events) events") }
    }
    if violation == nil { now = max(now, min(end, queue.next ?? end)) }
    return false
  }

  /// Faults stop. Processes that were frozen for ever stay frozen.
  private func calmDown() {
    tell("world", "faults stop")
    hasFaults = false
    server.recover()
    faults.stop()
    for replica in replicas { replica.recover() }
    for replica in replicas { replica.stay() }
  }

  /// Nothing is owed any more, and no gateway holds a delivery.
  private var isSettled: Bool {
    let isPoisoned = hasPoison && !server.outbox.poison.isEmpty
    let poison = server.outbox.poison
    let owed = server.outbox.deliveries.values
    // A gateway has one suspect at a time: a suspect that the database refuses to settle blocks the others.
    let areSuspectsBlocked = isPoisoned && owed.contains { $0.isSuspect && poison[$0.key] == .everything }
    return server.isUp && backend.isDone && server.outbox.notes.values.isEmpty
      && server.outbox.calls.values.allSatisfy { $0.state != .ringing }
      && owed.allSatisfy { isPoisoned && poison[$0.key] == .everything || areSuspectsBlocked && $0.isSuspect }
      && (isPoisoned || replicas.allSatisfy { $0.life.map { $0.isFrozen || $0.machine.isIdle } ?? true })
  }

  private func checkLiveness() {
    guard violation == nil, !isSettled else { return }
    let owed = server.outbox.deliveries.values.sorted {
      ($0.key.outboxID, $0.key.pushNumber) < ($1.key.outboxID, $1.key.pushNumber)
    }
    let holders = replicas.filter { $0.life.map { !$0.isFrozen && !$0.machine.isIdle } ?? false }
    violate(
      "After the faults stop, no delivery stays unfinished.",
      owed.first.map { "\(owed.count) deliveries, the first is \($0.story)" }
        ?? (holders.isEmpty
          ? "a call rings for ever, or what follows from its end is not done"
          : "\(holders.map(\.name)) hold something that is not owed"))
  }
}
