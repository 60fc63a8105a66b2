// The rules that hold at every step, whatever happens. Each is one sentence; the first that is broken ends a simulation.

import Dispatching
import MemoryOutbox
import Providers
import PushModel
import Queue
import Runtime

/// Watches everything, changes nothing.
final class Checker {
  private unowned let world: World
  /// Who wrote a delivery down and was told so.
  private var settledBy: [DeliveryKey: Life] = [:]
  /// Deliveries about which a crash of the server lost something, and when it last did.
  private var lost: [DeliveryKey: VirtualTime] = [:]
  private var declaredDead: Set<Int32> = []
  private var lastBeat: [Int32: VirtualTime] = [:]
  /// When a clock last jumped.
  private var lastJump: VirtualTime = -1_000_000_000_000
  /// Until when a delivery may leave, by true time: from what the claim said that was left.
  private var deadlines: [DeliveryKey: VirtualTime] = [:]
  /// Batches of settlements on their way into the outbox.
  private var batches: [ObjectIdentifier: [Int: [Settlement]]] = [:]
  private var limits: [ObjectIdentifier: LimitChecker] = [:]
  /// Calls and invites of which a life knows that they are over.
  private var knownEnded: [ObjectIdentifier: Set<Int64>] = [:]
  private var readEnded: [ObjectIdentifier: Set<DeliveryKey>] = [:]
  private var known: Set<DeliveryKey> = []

  init(_ world: World) { self.world = world }

  // MARK: - The database

  /// A statement was committed.
  func didCommit(_ touched: [DeliveryKey]) {
    guard !touched.isEmpty else { return }
    let outbox = world.server.outbox
    for key in touched {
      known.insert(key)
      let ends = outbox.history[key] ?? []
      if ends.count > 1 || (ends.count == 1 && outbox.deliveries[key] != nil) {
        world.violate(
          "A delivery has one terminal state.",
          "\(key.story): \(ends.map(\.outcome.word))\(outbox.deliveries[key] == nil ? "" : ", and is owed")")
      }
      if let end = ends.last { check(end, outbox) }
    }
  }

  private func check(_ end: MemoryHistory, _ outbox: MemoryOutbox) {
    if end.owner == nil { world.tell("server", "\(end.key.story) ends: \(end.outcome.word) \(end.reason ?? "")") }
    let isAccepted = !world.phones[end.key].isEmpty
    if end.outcome == .delivered || end.outcome == .deliveredLate, !isAccepted {
      world.violate("What is written down as delivered was accepted by its provider.", end.key.story)
    }
    let isInvite = end.kind == PushKind.invite.rawValue
    if isInvite, end.outcome == .void, outbox.calls[end.key.outboxID]?.state == .ringing {
      world.violate("No invite is void while its call rings.", end.key.story)
    }
  }

  /// A crash lost something about these.
  func didLose(_ keys: Set<DeliveryKey>) {
    for key in keys { lost[key] = world.now }
  }

  func didBeat(_ gateway: Int32) { lastBeat[gateway] = world.now }

  /// A clock jumped, the server's or a replica's: a lease is not what it seems for a while.
  func didJump() { lastJump = world.now }

  private var hasJumped: Bool { world.now - lastJump < 20_000_000_000 }

  /// A beat declared gateways dead.
  func didReap(_ gateways: Set<Int32>, by gateway: Int32) {
    declaredDead.formUnion(gateways)
    for dead in gateways.sorted() {
      world.tell("server", "gateway \(dead) is declared dead by gateway \(gateway)")
      let silentSince = max(lastBeat[dead] ?? 0, world.server.upSince)
      let silence = VirtualTime(MemoryOutbox.Limits.silence) * 1_000 - 10_000_000
      // A step of less than a beat is not noticed. A clock that jumps makes the reaper's connection seem older than it is: that
      // the server was away is then told by its own beats alone, and these do not tell a gap of less than two seconds.
      if world.now - silentSince < silence - (hasJumped ? 2_000_000_000 : 0) {
        world.violate(
          "Only a gateway is declared dead that was silent for three seconds in which the server was up.",
          "gateway \(dead) was silent for \((world.now - silentSince) / 1_000_000) ms")
      }
    }
    if !gateways.isEmpty { world.faults.temptAfterReap() }
  }

  // MARK: - Machines

  /// A machine is about to hear something.
  func willHear(_ event: DispatcherEvent, _ life: Life) {
    let id = ObjectIdentifier(life)
    switch event {
    case .endedFound(.success(let calls)): knownEnded[id, default: []].formUnion(calls)
    case .claimed(let number, .failure(let error)) where error.code == .answerLost:
      if let gateway = life.link.gateway { didLoseAnswer(of: number, gateway, life) }
    case .claimed(_, .success(let claimed)):
      if !claimed.unreadable.isEmpty, let gateway = life.link.gateway, let lease = claimed.unreadable.first?.lease {
        watch(life, seconds: 0) { [self] in
          for row in claimed.unreadable {
            guard let owed = world.server.outbox.deliveries[row.key], owed.owner == gateway, owed.lease == lease else {
              continue
            }
            world.violate("A delivery of a kind that nobody knows goes back within seconds.", owed.story)
          }
        }
      }
      // What somebody had before: a crash may give it back to them.
      if !claimed.deliveries.isEmpty {
        world.faults.tempt(life, claimed.deliveries.contains { $0.attempt > 1 } ? 0.2 : 0.02)
      }
      for delivery in claimed.deliveries {
        if delivery.call.isOver, delivery.kind == .invite { readEnded[id, default: []].insert(delivery.key) }
        let left = (delivery.deadline - life.localNow).count
        deadlines[delivery.key] = world.now + left
      }
    case .written(let batch, let answer):
      guard let settlements = batches[id]?.removeValue(forKey: batch), case .success(let said) = answer else { break }
      switch said {
      case .count(let count) where count == settlements.count:
        for settlement in settlements { settledBy[settlement.delivery.key] = life }
      case .count: break
      case .settled(let keys):
        for settlement in settlements where keys.contains(settlement.delivery.key) {
          settledBy[settlement.delivery.key] = life
        }
      }
    default: break
    }
    limits[id, default: LimitChecker()].willHear(event) { world.violate($0, "\(life.name): \($1)") }
  }

  /// A machine wants something done.
  func willDo(_ action: DispatcherAction, _ life: Life) {
    let id = ObjectIdentifier(life)
    switch action {
    case .reclaim, .confirmReclaimed, .forget, .sync: world.faults.tempt(life)
    case .write(let batch, .settle(let settlements)), .write(let batch, .settledAmong(let settlements)):
      batches[id, default: [:]][batch] = settlements
      world.faults.tempt(life)
    case .send(_, let requests):
      // The killers' victims.
      if requests.contains(where: { world.faults.killers.contains($0.key) }) {
        life.replica.crash(startAgainAfter: world.random.time(50...1_500))
      }
      world.faults.tempt(life)
    default: break
    }
    limits[id, default: LimitChecker()].willDo(action, life, world) { world.violate($0, "\(life.name): \($1)") }
  }

  // MARK: - Strays

  /// A claim's answer was lost: what it took goes back as soon as its gateway can see to that.
  func didLoseAnswer(of claim: Int32, _ gateway: Int32, _ life: Life) {
    watch(life, seconds: 0) { [self] in
      let strays = world.server.outbox.deliveries.values.filter {
        $0.state == .claimed && $0.owner == gateway && $0.lease == claim
      }
      guard let first = strays.min(by: { $0.key.pushNumber < $1.key.pushNumber }) else { return }
      world.violate(
        "What a claim took whose answer was lost goes back within seconds.", "\(first.story) of \(life.name)")
    }
  }

  /// Does something when a life was well for some seconds on end.
  private func watch(_ life: Life, seconds: Int, _ body: @escaping () -> Void) {
    guard !life.isDead else { return }
    if seconds == 5 { return body() }
    world.after(1_000_000_000) { [self] in watch(life, seconds: life.isWell ? seconds + 1 : 0, body) }
  }

  // MARK: - Pushes

  /// A request leaves for the wire.
  func willLeave(_ request: PushRequest, _ life: Life) {
    let key = request.key
    let id = ObjectIdentifier(life)
    world.tell(life.name, "\(key.story) leaves")
    let isDead = life.link.gateway.flatMap { world.server.outbox.gateways[$0] }.map { !$0.isAlive } ?? false
    if isDead, !hasJumped {
      world.violate("Nothing leaves in the name of a gateway that was declared dead.", "\(key.story) of \(life.name)")
    }
    if request.kind == .invite {
      if knownEnded[id]?.contains(key.outboxID) ?? false || readEnded[id]?.contains(key) ?? false {
        world.violate(
          "No invite leaves after its replica was told that the call has ended.", "\(key.story) of \(life.name)")
      }
    }
    // The deadline by an honest clock, and what a clock may be wrong by meanwhile.
    if let deadline = deadlines[key] {
      let tolerance = VirtualTime(Double(world.now) * ReplicaClock.driftMax * 2) + 1_000_000
      if world.now > deadline + tolerance {
        world.violate("Nothing leaves after its deadline.", "\(key.story) of \(life.name)")
      }
    }
    if let settler = settledBy[key], !isExcused(key, settler), !isDead {
      world.violate("What was settled is not sent again.", "\(key.story) of \(life.name), settled by \(settler.name)")
    }
  }

  /// A provider takes a push over.
  func didAccept(_ request: PushRequest, _ life: Life, _ gateway: Int32?) -> Acceptance {
    let acceptance = Acceptance(key: request.key, kind: request.kind, at: world.now, life: life, gateway: gateway)
    let earlier = world.phones[acceptance.key]
    world.tell("phone", "\(acceptance.key.story) \(request.kind) is accepted from \(life.name)")
    // What had left when its gateway was declared dead may arrive after what another has sent since.
    let isOfDead = !request.kind.isVisible && (gateway.map(declaredDead.contains) ?? true)
    for former in earlier where !isOfDead && !isExcused(former) {
      if !request.kind.isVisible {
        world.violate(
          "A push is accepted twice only if its gateway died or was silent, or nobody knew the first outcome.",
          "\(acceptance.key.story) from \(former.life.name), then from \(life.name)")
      } else if !isAtLeastOnce(acceptance.key) {
        world.violate(
          "What people see, they see once.",
          "\(acceptance.key.story) from \(former.life.name), then from \(life.name)")
      }
    }
    world.phones.note(acceptance)
    return acceptance
  }

  /// A crash of the server lost what was known of a delivery, and whoever remembers it is dead, too.
  private func isExcused(_ key: DeliveryKey, _ life: Life) -> Bool {
    lost[key] != nil && (life.isDead || !life.gateways.isDisjoint(with: declaredDead))
  }

  /// Whether there may be another push after this one.
  private func isExcused(_ former: Acceptance) -> Bool {
    guard !former.kind.isVisible else { return false }
    if isExcused(former.key, former.life) { return true }
    return !former.isCertain || former.life.isDead || former.gateway.map(declaredDead.contains) ?? true
  }

  private func isAtLeastOnce(_ key: DeliveryKey) -> Bool {
    let outbox = world.server.outbox
    guard let call = outbox.calls[key.outboxID] else { return false }
    return outbox.apps[call.app]?.isAtLeastOnce ?? false
  }

  // MARK: - Rings on a good day

  /// A call was enqueued: on a good day its phones ring at once.
  func didEnqueue(_ outboxID: Int64) {
    guard world.plan.isHarmless else { return }
    let keys = world.server.outbox.deliveries.rows.keys.filter { $0.outboxID == outboxID }.sorted {
      $0.pushNumber < $1.pushNumber
    }
    world.after(2_000_000_000) { [self] in
      guard world.server.outbox.calls[outboxID]?.state == .ringing else { return }
      for key in keys where world.phones[key].isEmpty {
        world.violate("On a day without faults that matter a phone rings within two seconds.", key.story)
      }
    }
  }

  // MARK: - The end

  /// Nothing is owed any more: everything that ever was has ended.
  func didEnd() {
    let outbox = world.server.outbox
    for key in known.sorted(by: { ($0.outboxID, $0.pushNumber) < ($1.outboxID, $1.pushNumber) })
    where outbox.calls[key.outboxID] != nil && lost[key] == nil && (outbox.history[key] ?? []).isEmpty {
      world.violate("A delivery ends in a terminal state.", key.story)
    }
  }
}
