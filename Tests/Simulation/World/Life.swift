// One life of a replica's process: the real machine, and the code that feeds it events and carries out its actions.

import Dispatching
import Logging
import MemoryOutbox
import Providers
import Queue
import Runtime

/// From start to death.
final class Life {
  let replica: Replica
  let number: Int
  private unowned let world: World
  private(set) var machine: DispatcherMachine
  private(set) var link: Link!
  private(set) var providers: [SimulatedProvider] = []
  /// All its gateway ids.
  var gateways: Set<Int32> = []
  private(set) var isDead = false
  private(set) var isFrozen = false
  private var staysFrozen = false
  private var thaws = 0
  /// Events that arrived while it was frozen.
  private var inbox: [() -> Void] = []
  private var isTurning = false
  private var alarms = 0
  private var actions: [DispatcherAction] = []
  /// Requests may be sent until this time, and not later.
  private(set) var permit = Instant(nanoseconds: .min)
  private(set) var isDraining = false
  /// Number of turns without any time between them.
  private var turnsNow = 0
  private var lastTurn: VirtualTime = -1

  init(_ replica: Replica, number: Int, _ world: World) {
    self.replica = replica
    self.number = number
    self.world = world
    let lanes = world.lanes.map { lane in
      LaneConfiguration(
        id: lane.id, app: lane.app, provider: lane.provider, planner: world.backend.planner(of: lane),
        window: world.plan.window,
        isAtLeastOnce: world.server.outbox.apps[lane.app]?.isAtLeastOnce ?? false)
    }
    machine = DispatcherMachine(lanes: lanes, seed: world.random.next())
    machine.logLevel = world.story.isTold ? .debug : .critical
    link = Link(self, world)
    providers = world.lanes.indices.map { SimulatedProvider(self, lane: $0, world) }
  }

  var name: String { "r\(replica.index)#\(number)" }
  var localNow: Instant { replica.clock.local(at: world.now) }

  func start() {
    link.open()
    for provider in providers { provider.start() }
    turn()
  }

  /// Whether it can reach the server.
  var isWell: Bool { !isDead && !isFrozen && !isDraining && link.isWell }

  // MARK: - Running

  /// Runs something on the process's loop, now or when it is no longer frozen.
  func whenRunning(_ body: @escaping () -> Void) {
    guard !isDead else { return }
    if isFrozen { inbox.append(body) } else { body() }
  }

  /// Passes an event to the machine. To be called on the process's loop.
  func handle(_ event: DispatcherEvent) {
    guard !isDead else { return }
    world.checker.willHear(event, self)
    if let story = event.story { world.tell(name, story) }
    machine.handle(event, localNow)
    turn()
  }

  private func turn() {
    guard !isTurning, !isDead else { return }
    isTurning = true
    turnsNow = lastTurn == world.now ? turnsNow + 1 : 0
    lastTurn = world.now
    if turnsNow > 10_000 { world.violate("A machine without work becomes idle.", name) }
    machine.turn(localNow)
    machine.dequeue(into: &actions)
    for action in actions where !isDead { perform(action) }
    machine.sendClaimed(localNow)
    machine.dequeue(into: &actions)
    for action in actions where !isDead { perform(action) }
    isTurning = false
    setAlarm()
    if isDraining, machine.isDrained { leave() }
  }

  private func perform(_ action: DispatcherAction) {
    world.checker.willDo(action, self)
    if let story = action.story { world.tell(name, story) }
    switch action {
    case .send(let lane, let requests): providers[lane].send(requests)
    case .withdraw(let lane, let tags, let areOverdue): providers[lane].withdraw(tags, areOverdue: areOverdue)
    case .permit(let until): permit = until
    case .tell(let lane, let news): world.pass(news, ofLane: lane, from: self)
    case .log, .logOpening: break
    default: link.perform(action)
    }
  }

  /// Wakes the machine at the time that it asked for.
  func setAlarm() {
    alarms += 1
    let next = Self.nextAlarm(of: &machine)
    guard !isDead, next < .distantFuture else { return }
    let alarm = alarms
    let due = max(replica.clock.trueTime(of: max(next, localNow)), world.now + 20_000)
    world.at(due) { [self] in
      guard alarm == alarms else { return }
      whenRunning { [self] in turn() }
    }
  }

  /// Calling in place avoids a copy of the machine.
  private static func nextAlarm(of machine: inout DispatcherMachine) -> Instant { machine.nextAlarm }

  // MARK: - Bad days

  /// Handles no events for a time (nil: for ever), then all of them at once.
  func freeze(for time: VirtualTime?) {
    guard !isFrozen, !isDead else { return }
    isFrozen = true
    staysFrozen = time == nil
    thaws += 1
    let thaw = thaws
    world.tell(name, "freezes \(time.map { "for \($0 / 1_000_000) ms" } ?? "for good")")
    guard let time else { return }
    world.after(time) { [self] in
      if thaw == thaws { self.thaw() }
    }
  }

  private func thaw() {
    guard isFrozen, !isDead else { return }
    isFrozen = false
    world.tell(name, "thaws with \(inbox.count) things to do")
    // Timers may fire before events from sockets.
    if world.random.chance(0.5) { turn() }
    isTurning = true
    let bodies = inbox
    inbox = []
    for body in bodies where !isDead { body() }
    isTurning = false
    turn()
  }

  func die() {
    isDead = true
    inbox = []
    alarms += 1
    link.abandon()
    replica.didEnd(self)
  }

  /// Faults stop; a process that was frozen for ever stays frozen.
  func recover() {
    link.recover()
    for provider in providers { provider.recover() }
    if isFrozen, !staysFrozen { thaw() }
  }

  /// Shuts down cleanly, after at most `time`.
  func drain(until time: VirtualTime) {
    whenRunning { [self] in
      guard !isDraining else { return }
      world.tell(name, "leaves")
      isDraining = true
      for provider in providers { provider.shutDown(within: time) }
      handle(.drain)
      world.after(time + 2_000_000_000) { [self] in whenRunning { [self] in leave() } }
    }
  }

  private func leave() {
    guard !isDead else { return }
    // Deliveries that are not settled may have been sent. Other gateways find this one silent, and do not repeat
    // visible pushes.
    if machine.isIdle { link.retire() }
    world.tell(name, machine.isIdle ? "is gone" : "is gone without having written down everything")
    die()
  }
}
