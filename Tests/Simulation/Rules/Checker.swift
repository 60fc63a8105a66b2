// The rules that must hold at every step. Each is one sentence. The first violation ends the simulation.

import Dispatching
import MemoryOutbox
import Providers
import PushModel
import Queue
import Runtime

/// Observes everything and changes nothing.
final class Checker {
  private unowned let world: World
  /// The gateway that settled a delivery and got the confirmation.
  private var settledBy: [DeliveryKey: Life] = [:]
  /// Deliveries with changes that a crash or a fail-over of the server lost.
  private var lost: Set<DeliveryKey> = []
  /// Deliveries whose claim a fail-over lost, although it was on the disk.
  private var lostOnDisk: Set<DeliveryKey> = []
  private var lastFailOver: VirtualTime = -1_000_000_000_000
  private var declaredDead: Set<Int32> = []
  private var lastBeat: [Int32: VirtualTime] = [:]
  /// Time of the last jump of a clock.
  private var lastJump: VirtualTime = -1_000_000_000_000
  /// The latest true time at which a delivery may be sent, from the remaining time in the claim.
  private var deadlines: [DeliveryKey: VirtualTime] = [:]
  /// The last claim that brought a life each delivery.
  private var claims: [ObjectIdentifier: [DeliveryKey: Int32]] = [:]
  /// Batches of settlements being written to the outbox.
  private var batches: [ObjectIdentifier: [Int: [Settlement]]] = [:]
  private var limits: [ObjectIdentifier: LimitChecker] = [:]
  private var lookUps: [ObjectIdentifier: LookUpChecker] = [:]
  /// Calls that a life knows to be over, or to be declined by some users, and invites that it has read as ended.
  private var knownEnded: [ObjectIdentifier: EndedRings] = [:]
  private var readEnded: [ObjectIdentifier: Set<DeliveryKey>] = [:]
  private var known: Set<DeliveryKey> = []
  /// What each life has handed on to others.
  private var handedOn: [ObjectIdentifier: Set<DeliveryKey>] = [:]
  private var ends = EndChecker()
  /// When calls ended, by their ids.
  private var endedAt: [Int64: VirtualTime] = [:]

  init(_ world: World) { self.world = world }

  // MARK: - The database

  /// A statement was committed.
  func didCommit(_ touched: [DeliveryKey], notes: [Int64]) {
    guard !touched.isEmpty || !notes.isEmpty else { return }
    let outbox = world.server.outbox
    for key in touched {
      known.insert(key)
      let ends = outbox.history[key] ?? []
      if ends.count > 1 || (ends.count == 1 && outbox.deliveries[key] != nil) {
        world.violate(
          "A delivery has one terminal state.",
          "\(key.story): \(ends.map(\.outcome.word))\(outbox.deliveries[key] == nil ? "" : ", and still unfinished")")
      }
      if let end = ends.last { check(end, outbox) }
    }
    for note in notes.compactMap({ outbox.notes[$0] }) where note.cause == .ended && endedAt[note.outboxID] == nil {
      endedAt[note.outboxID] = world.now
    }
    ends.didCommit(touched, notes: notes, outbox) { world.violate($0, $1) }
  }

  private func check(_ end: MemoryHistory, _ outbox: MemoryOutbox) {
    if end.owner == nil { world.tell("server", "\(end.key.story) ends: \(end.outcome.word) \(end.reason ?? "")") }
    let isAccepted = !world.phones[end.key].isEmpty
    if end.outcome == .delivered || end.outcome == .deliveredLate, !isAccepted {
      world.violate("A delivery that is recorded as delivered was accepted by its provider.", end.key.story)
    }
    if end.kind == PushKind.invite.rawValue, end.outcome == .dead,
      Paths.areIll(world.seed) || BadTokens.exist(world.seed)
    {
      world.violate("A ring is dead only if the provider says so of its token.", end.key.story)
    }
    // A gateway may know of an end that the fail-over has lost.
    let hasFailedOver = world.now - lastFailOver < 20_000_000_000
    if end.kind == PushKind.invite.rawValue, end.outcome == .void, !hasFailedOver,
      outbox.calls[end.key.outboxID]?.rings(for: end.userID) ?? false
    {
      world.violate("No invite is void while its call rings for its user.", end.key.story)
    }
  }

  /// A crash or a fail-over lost changes of these deliveries.
  func didLose(_ keys: Set<DeliveryKey>, isFailOver: Bool) {
    let outbox = world.server.outbox
    lost.formUnion(keys)
    for key in keys where outbox.history[key]?.isEmpty ?? true {
      guard settledBy.removeValue(forKey: key) != nil, !isFailOver else { continue }
      world.violate("A settlement that was confirmed is not lost in a crash.", key.story)
    }
    guard isFailOver else { return }
    lastFailOver = world.now
    lostOnDisk.formUnion(keys.filter { outbox.deliveries[$0]?.state != .claimed })
    // Ends are lost as well.
    for id in knownEnded.keys { knownEnded[id] = EndedRings() }
    readEnded = [:]
  }

  /// A crash or a fail-over lost a delivery, and it was made again. Requests show no difference: what is known of the lost one goes for
  /// the new one.
  func didReplace(_ former: DeliveryKey, by key: DeliveryKey) {
    guard lost.contains(former) else { return world.violate("Two deliveries have the same numbers.", key.story) }
    lost.insert(key)
    if lostOnDisk.contains(former) { lostOnDisk.insert(key) }
  }

  func didBeat(_ gateway: Int32) { lastBeat[gateway] = world.now }

  /// The clock of the server or of a replica jumped: leases are not reliable for a while.
  func didJump() { lastJump = world.now }

  private var hasJumped: Bool { world.now - lastJump < 20_000_000_000 }

  /// A heartbeat declared gateways dead.
  func didReap(_ gateways: Set<Int32>, by gateway: Int32) {
    declaredDead.formUnion(gateways)
    for dead in gateways.sorted() {
      world.tell("server", "gateway \(dead) is declared dead by gateway \(gateway)")
      // A clock that jumps makes the reaper's connection seem older than it is. Then only its own heartbeats show that the
      // server was away, and they do not show a gap below two seconds: the silence before it counts, too.
      let silentSince = hasJumped ? lastBeat[dead] ?? 0 : max(lastBeat[dead] ?? 0, world.server.upSince)
      let silence = VirtualTime(MemoryOutbox.Limits.silence) * 1_000 - 10_000_000
      // A step shorter than the interval of heartbeats is not noticed. After a step ahead and back, a heartbeat of in between is of
      // the future: its gateway is doubted for half a second, and then declared dead.
      if world.now - silentSince < silence - (hasJumped ? 2_500_000_000 : 0) {
        world.violate(
          "A gateway is declared dead only after it was silent for three seconds in which the server was up.",
          "gateway \(dead) was silent for \((world.now - silentSince) / 1_000_000) ms")
      }
    }
    if !gateways.isEmpty { world.faults.temptAfterReap() }
  }

  // MARK: - Machines

  /// A machine is about to receive an event.
  func willHear(_ event: DispatcherEvent, _ life: Life) {
    let id = ObjectIdentifier(life)
    switch event {
    case .endedFound(.success(let ended)):
      // What leaves in the same turn may leave before this is acted on.
      world.after(1) { [self] in knownEnded[id, default: EndedRings()].add(ended) }
    case .claimed(let number, .failure(let error)) where error.code == .answerLost:
      if let gateway = life.link.gateway { didLoseAnswer(of: number, gateway, life) }
    case .claimed(_, .success(let claimed)):
      if !claimed.unreadable.isEmpty, let gateway = life.link.gateway, let lease = claimed.unreadable.first?.lease {
        watch(life, seconds: 0) { [self] in
          for row in claimed.unreadable {
            // A fail-over may lose its return. Then a scan finds it, when its connection works.
            guard let owed = world.server.outbox.deliveries[row.key], owed.owner == gateway, owed.lease == lease,
              !lost.contains(row.key)
            else { continue }
            world.violate("A delivery of an unknown kind is ready again within seconds.", owed.story)
          }
        }
      }
      // Deliveries that another gateway had before: a crash may return them to it.
      if !claimed.deliveries.isEmpty {
        world.faults.tempt(life, claimed.deliveries.contains { $0.attempt > 1 } ? 0.2 : 0.02)
      }
      for delivery in claimed.deliveries {
        claims[id, default: [:]][delivery.key] = delivery.lease.lease
        if delivery.isEndedInvite { readEnded[id, default: []].insert(delivery.key) }
        let left = (delivery.deadline - life.localNow).count
        // The server's clock may have been set since an earlier claim, which is the one that its gateway goes by.
        deadlines[delivery.key] = max(deadlines[delivery.key] ?? 0, world.now + left)
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
    lookUps[id, default: LookUpChecker()].willHear(event)
    limits[id, default: LimitChecker()].willHear(event) { world.violate($0, "\(life.name): \($1)") }
  }

  /// A machine returned an action.
  func willDo(_ action: DispatcherAction, _ life: Life) {
    let id = ObjectIdentifier(life)
    switch action {
    case .forget, .sync, .followUp, .write(_, .disown): world.faults.tempt(life)
    case .write(let batch, .settle(let settlements)), .write(let batch, .settledAmong(let settlements)):
      batches[id, default: [:]][batch] = settlements
      world.faults.tempt(life)
    case .write(_, .park(let parkings)):
      handedOn[id, default: []].formUnion(parkings.lazy.filter(\.isHandedOn).map(\.lease.key))
    case .send(_, let requests):
      // Gateways killed by a delivery.
      if requests.contains(where: { world.faults.killers.contains(world.phones.delivery(of: $0).key) }) {
        life.replica.crash(startAgainAfter: world.random.time(50...1_500))
      }
      world.faults.tempt(life)
    default: break
    }
    lookUps[id, default: LookUpChecker()].willDo(action, { world.phones.delivery(of: $0).key }) {
      world.violate($0, "\(life.name): \($1)")
    }
    limits[id, default: LimitChecker()].willDo(action, life, world) { world.violate($0, "\(life.name): \($1)") }
  }

  // MARK: - Strays

  /// A claim's answer was lost: its deliveries must be returned as soon as its gateway can do so. A crash may lose a later claim of the
  /// gateway that brought it some of them, and the return before it. Then the gateway has them, whatever their rows say.
  func didLoseAnswer(of claim: Int32, _ gateway: Int32, _ life: Life) {
    watch(life, seconds: 0) { [self] in
      let strays = world.server.outbox.deliveries.values.filter {
        $0.state == .claimed && $0.owner == gateway && $0.lease == claim
          && !(lost.contains($0.key) && claims[ObjectIdentifier(life)]?[$0.key] ?? 0 > claim)
      }
      guard let first = strays.min(by: { $0.key.pushNumber < $1.key.pushNumber }) else { return }
      world.violate(
        "The rows of a claim whose answer was lost are ready again within seconds.", "\(first.story) of \(life.name)")
    }
  }

  /// Runs `body` once the life has been well for five seconds in a row.
  private func watch(_ life: Life, seconds: Int, _ body: @escaping () -> Void) {
    guard !life.isDead else { return }
    if seconds == 5 { return body() }
    world.after(1_000_000_000) { [self] in watch(life, seconds: life.isWell ? seconds + 1 : 0, body) }
  }

  // MARK: - Pushes

  /// A request is sent.
  func willLeave(_ request: PushRequest, _ life: Life) {
    let delivery = world.phones.delivery(of: request)
    let key = delivery.key
    let id = ObjectIdentifier(life)
    world.tell(life.name, "\(key.story) leaves")
    let isDead = life.link.gateway.flatMap { world.server.outbox.gateways[$0] }.map { !$0.isAlive } ?? false
    if isDead, !hasJumped {
      world.violate("No push is sent in the name of a gateway that was declared dead.", "\(key.story) of \(life.name)")
    }
    if request.kind == .invite {
      let ended = knownEnded[id, default: EndedRings()]
      if ended.calls.contains(key.outboxID) || readEnded[id]?.contains(key) ?? false {
        world.violate(
          "No invite is sent after its replica received the end of the call, or the decline of the user.",
          "\(key.story) of \(life.name)")
      }
      // A hint may be lost. What says that the call rings is then as old as the gateway's lease at most.
      // Where the database answers, it is looked up every 2 s.
      let longest: VirtualTime = world.plan.isDatabaseWell ? 3_000_000_000 : 5_000_000_000
      if let ended = endedAt[key.outboxID], world.now - ended > longest,
        world.server.outbox.calls[key.outboxID]?.state != .ringing
      {
        world.violate("No invite is sent long after the end of its call.", "\(key.story) of \(life.name)")
      }
      if ended.decliners[key.outboxID]?.contains(Array(delivery.userID.utf8)) ?? false {
        world.violate("Nobody is rung after their decline was known.", "\(key.story) of \(life.name)")
      }
    }
    // The deadline by true time, and the possible error of a clock.
    if let deadline = deadlines[key] {
      let tolerance = VirtualTime(Double(world.now) * ReplicaClock.driftMax * 2) + 1_000_000
      if world.now > deadline + tolerance {
        world.violate("No push is sent after its deadline.", "\(key.story) of \(life.name)")
      }
    }
    // A gateway whose claim was lost may not know what another one has settled.
    if let settler = settledBy[key], !lost.contains(key), !isDead {
      world.violate(
        "A delivery that was settled is not sent again.", "\(key.story) of \(life.name), settled by \(settler.name)")
    }
  }

  /// A provider accepts a push.
  func didAccept(_ request: PushRequest, _ life: Life, _ gateway: Int32?) -> Acceptance {
    let acceptance = Acceptance(
      world.phones.delivery(of: request), kind: request.kind, at: world.now, life: life, gateway: gateway)
    let earlier = world.phones[acceptance.key]
    world.tell("phone", "\(acceptance.key.story) \(request.kind) is accepted from \(life.name)")
    // A request sent before its gateway was declared dead may arrive after one that another gateway has sent since.
    let isOfDead = !request.kind.isVisible && (gateway.map(declaredDead.contains) ?? true)
    let isLate = wasHandedOn(acceptance.key, by: life)
    for former in earlier where !isOfDead && !(isLate && !request.kind.isVisible) && !isExcused(former) {
      if !request.kind.isVisible {
        world.violate(
          "A push is accepted twice only if its gateway died or was silent, the first outcome was unknown or late, or a crash lost its claim.",
          "\(acceptance.key.story) from \(former.life.name), then from \(life.name)")
      } else if !isAtLeastOnce(acceptance.key) {
        world.violate(
          "A message or missed call is shown once.",
          "\(acceptance.key.story) from \(former.life.name), then from \(life.name)")
      }
    }
    world.phones.note(acceptance)
    return acceptance
  }

  /// Whether another push may follow this one.
  private func isExcused(_ former: Acceptance) -> Bool {
    guard !former.kind.isVisible else { return lostOnDisk.contains(former.key) }
    return lost.contains(former.key) || !former.isCertain || former.life.isDead
      || wasHandedOn(former.key, by: former.life)
      || former.gateway.map(declaredDead.contains) ?? true
  }

  private func wasHandedOn(_ key: DeliveryKey, by life: Life) -> Bool {
    handedOn[ObjectIdentifier(life)]?.contains(key) ?? false
  }

  private func isAtLeastOnce(_ key: DeliveryKey) -> Bool {
    let outbox = world.server.outbox
    guard let call = outbox.calls[key.outboxID] else { return false }
    return outbox.apps[call.app]?.isAtLeastOnce ?? false
  }

  // MARK: - Rings on a good day

  /// A call was enqueued: without faults its phones must ring at once.
  func didEnqueue(_ outboxID: Int64) {
    // After a fail-over it may have the id of a call that was lost.
    endedAt[outboxID] = nil
    for id in knownEnded.keys {
      knownEnded[id]?.calls.remove(outboxID)
      knownEnded[id]?.decliners[outboxID] = nil
    }
    world.promises.didEnqueue(outboxID)
    guard world.plan.isHarmless else { return }
    let keys = world.server.outbox.deliveries.rows.keys.filter { $0.outboxID == outboxID }.sorted {
      $0.pushNumber < $1.pushNumber
    }
    world.after(2_000_000_000) { [self] in
      let outbox = world.server.outbox
      guard let call = outbox.calls[outboxID], call.state == .ringing else { return }
      for key in keys where world.phones[key].isEmpty {
        if let end = outbox.history[key]?.last, !call.rings(for: end.userID) { continue }
        world.violate("In a run without faults that matter, a phone rings within two seconds.", key.story)
      }
    }
  }

  // MARK: - The end

  /// The run is over: every delivery must have ended.
  func didEnd() {
    let outbox = world.server.outbox
    for key in known.sorted(by: { ($0.outboxID, $0.pushNumber) < ($1.outboxID, $1.pushNumber) })
    where !lost.contains(key) && (outbox.history[key] ?? []).isEmpty {
      world.violate("A delivery ends in a terminal state.", key.story)
    }
    ends.didEnd(outbox, accepted: world.phones.log, lost: lost) { world.violate($0, $1) }
  }
}

extension EndedRings {
  fileprivate mutating func add(_ other: EndedRings) {
    calls.formUnion(other.calls)
    decliners.merge(other.decliners) { $0.union($1) }
  }
}
