// Causes the faults of a seed.

import MemoryOutbox
import Providers
import Queue
import Runtime

/// Plans faults as time goes on, until `stop`.
final class FaultInjector {
  private unowned let world: World
  private var isStopped = false
  /// Tokens that their providers report as dead.
  private var deadTokens: Set<String> = []
  private var livingTokens: Set<String> = []
  /// Deliveries that kill the process that handles them.
  private(set) var killers: Set<DeliveryKey> = []
  private var killersLeft = 2

  init(_ world: World) { self.world = world }

  func start() {
    let plan = world.plan
    every(.cut, 1) { [self] in link { $0.partition(for: world.random.latency(10...2_000, longest: 8_000)) } }
    every(.silentCut, 1) { [self] in link { $0.cutSilently() } }
    every(.deafness, 1) { [self] in link { $0.deafen() } }
    every(.standstill, 0.7) { [self] in
      world.server.standStill(for: world.random.latency(100...3_500, longest: 9_000))
    }
    every(.restart, 0.5) { [self] in
      world.server.stop(.stop, for: world.random.latency(100...2_000, longest: 8_000))
      // One replica reaches it again later than the others, which must not take it for dead because of that.
      if world.random.chance(0.5) { link { $0.partition(for: world.random.time(2_000...6_000)) } }
    }
    every(.databaseCrash, 1) { [self] in
      world.server.stop(.crash, for: world.random.latency(50...2_000, longest: 8_000))
    }
    every(.failOver, 0.7) { [self] in
      world.server.stop(.failOver, for: world.random.latency(50...2_000, longest: 8_000))
    }
    every(.databaseClockJump, 0.5) { [self] in setServerClock() }
    every(.freeze, 2) { [self] in
      life {
        $0.freeze(for: world.random.chance(0.5) ? world.random.time(10...2_000) : world.random.time(2_000...9_000))
      }
    }
    every(.crash, 1) { [self] in
      world.random.pick(world.replicas)?.crash(startAgainAfter: world.random.latency(50...1_500, longest: 10_000))
    }
    every(.clockJump, 1) { [self] in
      world.random.pick(world.replicas)?.jumpClock(by: world.random.latency(10...3_000, longest: 8_000))
    }
    every(.forgedNotification, 10) { [self] in forge() }
    every(.joinsAndLeaves, 2) { [self] in
      guard let replica = world.random.pick(world.replicas) else { return }
      if replica.life == nil { replica.start() } else { replica.leave() }
    }
    every(.providerTrouble, 2) { [self] in provider { $0.trouble(for: world.random.time(100...4_000)) } }
    every(.unauthorized, 0.7) { [self] in provider { $0.refuseCredentials(for: world.random.time(100...3_000)) } }
    every(.providerOutage, 2) { [self] in provider { $0.breakOff(for: world.random.time(50...3_000)) } }
    if plan.has(.freezeForGood), plan.replicas > 1 {
      world.at(world.random.time(2_000...plan.faultTime / 1_000_000)) { [self] in
        life { $0.freeze(for: nil) }
      }
    }
  }

  func stop() { isStopped = true }

  /// Does something on average `rate` times in ten seconds, times the weight of the fault.
  private func every(_ fault: Fault, _ rate: Double, _ body: @escaping () -> Void) {
    guard let weight = world.plan.weights[fault] else { return }
    let mean = 10_000 / (rate * weight)
    world.after(world.random.time(0...Int64(2 * mean))) { [self] in
      guard !isStopped else { return }
      body()
      every(fault, rate, body)
    }
  }

  /// Called while a replica does something critical: the worst moment for a fault.
  func tempt(_ life: Life, _ probability: Double = 0.05) {
    guard !isStopped, world.random.chance(probability) else { return }
    let candidates = [Fault.freeze, .crash, .cut, .silentCut, .databaseCrash, .failOver, .standstill, .restart].filter(
      world.plan.has)
    guard let fault = world.random.pick(candidates) else { return }
    world.after(world.random.latency(0...30, longest: 300)) { [self] in
      guard !isStopped, !life.isDead else { return }
      switch fault {
      case .freeze: life.freeze(for: world.random.time(1_000...9_000))
      case .crash: life.replica.crash(startAgainAfter: world.random.latency(50...1_500, longest: 10_000))
      case .cut: life.link.partition(for: world.random.latency(10...2_000, longest: 8_000))
      case .silentCut: life.link.cutSilently()
      case .databaseCrash: world.server.stop(.crash, for: world.random.latency(50...2_000, longest: 8_000))
      case .failOver: world.server.stop(.failOver, for: world.random.latency(50...2_000, longest: 8_000))
      case .standstill: world.server.standStill(for: world.random.latency(100...3_500, longest: 9_000))
      default: world.server.stop(.stop, for: world.random.latency(100...5_000, longest: 8_000))
      }
    }
  }

  /// Sets the server's clock, and sometimes soon corrects it. A replica that starts in between has sent heartbeats by
  /// another clock.
  private func setServerClock() {
    let step = Int64(world.random.count(-5_000...5_000)) * 1_000
    world.server.jump(by: step)
    guard world.random.chance(0.3) else { return }
    world.after(world.random.time(50...900)) { [self] in
      guard !isStopped else { return }
      world.server.jump(by: -step)
    }
    let idle = world.replicas.filter { $0.life == nil }
    if world.random.chance(0.5), let replica = world.random.pick(idle) {
      world.after(world.random.time(0...50)) { replica.start() }
    }
  }

  /// Deliveries of dead gateways are claimed by others: the worst moment for losing commits, because a loss gives them
  /// back to the dead gateways.
  func temptAfterReap() { temptToCrash(0.5, within: 20...400) }

  /// A gateway claims a delivery that another had before: if that commit is lost, the delivery is the other's again.
  func temptAfterHandover() { temptToCrash(0.2, within: 1...150) }

  private func temptToCrash(_ probability: Double, within milliseconds: ClosedRange<Int64>) {
    guard !isStopped, world.plan.has(.databaseCrash), world.random.chance(probability) else { return }
    world.after(world.random.time(milliseconds)) { [self] in
      guard !isStopped else { return }
      world.server.stop(.crash, for: world.random.latency(50...2_000, longest: 8_000))
    }
  }

  private func life(_ body: (Life) -> Void) {
    if let life = world.random.pick(world.replicas.compactMap(\.life)) { body(life) }
  }

  private func link(_ body: (Link) -> Void) { life { body($0.link) } }

  private func provider(_ body: (SimulatedProvider) -> Void) {
    life { life in if let provider = world.random.pick(life.providers) { body(provider) } }
  }

  // MARK: - Notifications

  /// The server sends a notification.
  func broadcast(_ notification: MemoryNotification) {
    let event: OutboxEvent =
      switch notification {
      case .bell: .bell
      case .ended(let id): .mayHaveEnded([id])
      }
    for replica in world.replicas {
      guard let life = replica.life else { continue }
      let isLost = !isStopped && world.random.chance(world.plan.probability(.lostNotification, 0.2))
      if isLost, world.random.chance(0.7) { continue }
      life.link.hear(event, after: isLost ? world.random.time(100...3_000) : world.random.latency(0...2, longest: 20))
      if !isStopped, world.random.chance(world.plan.probability(.doubledNotification, 0.2)) {
        life.link.hear(event, after: world.random.time(0...500))
      }
    }
  }

  /// Another session sends a notification that calls have ended.
  private func forge() {
    let ringing = world.server.outbox.calls.values.filter { $0.state == .ringing }.map(\.id).sorted()
    let said: OutboxEvent =
      switch world.random.count(0...3) {
      case 0: .manyMayHaveEnded
      case 1: .mayHaveEnded([Int64(world.random.count(-5...10_000))])
      default: .mayHaveEnded(ringing)
      }
    life { $0.link.hear(said, after: 0) }
  }

  // MARK: - Rows

  /// Makes some deliveries of a call fail in the server or in the process that handles them.
  func poison(_ outboxID: Int64) {
    let keys = world.server.outbox.deliveries.rows.keys.filter { $0.outboxID == outboxID }.sorted {
      $0.pushNumber < $1.pushNumber
    }
    for key in keys {
      if world.plan.has(.poison), world.random.chance(0.15) {
        let poison: MemoryPoison = world.random.chance(0.5) ? .details : .everything
        world.server.change { outbox, _ in outbox.poison[key] = poison }
        world.tell("fault", "the server refuses \(poison) of the settlement of \(key.story)")
      }
      if world.plan.has(.killer), killersLeft > 0, world.random.chance(0.3) {
        killersLeft -= 1
        killers.insert(key)
        world.tell("fault", "\(key.story) kills the replica that sends it")
      }
    }
  }

  // MARK: - Outcomes

  /// The result of a request that was sent.
  struct Fate {
    var outcome: PushOutcome
    var status: UInt16 = 0
    var isAccepted = false
    /// The replica learns the real result.
    var isCertain = true
    /// From the provider to the replica.
    var answerAfter: VirtualTime
  }

  func fate(of request: PushRequest, in lane: SimulatedLane, isTroubled: Bool, isUnauthorized: Bool) -> Fate {
    var fate = Fate(
      outcome: .accepted(messageID: "id-\(request.numbers.story)"), status: 200, isAccepted: true,
      answerAfter: world.random.latency(world.providerTime, longest: 300))
    if !isStopped, world.random.chance(world.plan.probability(.lateAnswers, 0.1)) {
      fate.answerAfter = world.random.time(300...8_000)
    }
    func refuse(_ outcome: PushOutcome, _ status: UInt16) {
      fate.outcome = outcome
      fate.status = status
      fate.isAccepted = false
    }
    if isDead(request.token) {
      refuse(.tokenInvalid(reason: lane.provider == .apns ? "Unregistered" : "UNREGISTERED", since: nil), 410)
    } else if isStopped {
      return fate
    } else if isUnauthorized {
      refuse(.unauthorized(reason: "InvalidProviderToken"), 403)
    } else if isTroubled || world.random.chance(world.plan.probability(.providerTrouble, 0.05)) {
      switch world.random.count(0...4) {
      case 0: refuse(.unavailable(reason: "ServiceUnavailable", after: nil), 503)
      case 1: refuse(.unavailable(reason: "InternalServerError", after: .milliseconds(2_500)), 500)
      case 2: refuse(.throttled(reason: "TooManyRequests", after: .milliseconds(700), isLaneWide: false), 429)
      case 3: refuse(.throttled(reason: "QuotaExceeded", after: .milliseconds(900), isLaneWide: true), 429)
      default: refuse(.refused(reason: "GoAway"), 0)
      }
    } else if world.random.chance(world.plan.probability(.unknownOutcome, 0.1)) {
      // The request or its answer is lost.
      fate.isAccepted = world.random.chance(0.5)
      fate.isCertain = false
      fate.outcome = .unknown(reason: "Timeout")
      fate.status = 0
    } else if world.plan.has(.deadTokens), world.random.chance(0.02) {
      refuse(.rejected(reason: "BadMessageId"), 400)
    } else if world.plan.has(.deadTokens), lane.provider == .apns, world.random.chance(0.03) {
      refuse(.tokenInvalid(reason: "BadDeviceToken", since: nil), 400)
    }
    return fate
  }

  /// Some tokens are always dead.
  private func isDead(_ token: ArraySlice<UInt8>) -> Bool {
    guard world.plan.has(.deadTokens) else { return false }
    let token = String(decoding: token, as: UTF8.self)
    if deadTokens.contains(token) { return true }
    if livingTokens.contains(token) { return false }
    if world.random.chance(0.15) {
      deadTokens.insert(token)
      return true
    }
    livingTokens.insert(token)
    return false
  }
}
