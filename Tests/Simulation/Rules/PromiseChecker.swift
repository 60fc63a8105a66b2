// Checks that a ring goes to whoever can ring it.

import MemoryOutbox
import Providers
import PushModel
import Queue
import Runtime

/// The promise of each invite, in seeds with ill paths or bad tokens.
final class PromiseChecker {
  /// How long a bad token may delay the rings of others, or a forgotten connection its own.
  private let longestDelay: VirtualTime
  /// How much longer it takes a ring for each other replica that it meets and that cannot ring it, either.
  private static let otherDelay: VirtualTime = 1_500_000_000
  private static let mostInASecond = 10
  /// Within this time all replicas act on an answer that one of them has got.
  private static let writeTime: VirtualTime = 1_500_000_000
  /// How many new rings a replica may try whose lane is sick, in this time, while another replica is well.
  private static let (triesMax, triesTime): (Int, VirtualTime) = (2, 9_000_000_000)

  /// What the requests over a path have shown since it last worked.
  private struct Failures {
    var last: (token: [UInt8], at: VirtualTime)?
    /// When its replica knew that the lane is sick, at the latest.
    var sickSince: VirtualTime?
    /// When it tried new rings since.
    var tries: [VirtualTime] = []
  }

  private unowned let world: World
  /// How long a path must work. A ring may meet each of the other replicas once, which costs its rescue time and its rest. That time is
  /// longer where answers were slow before.
  private let time: VirtualTime
  /// When each ring was sent.
  private var sent: [DeliveryKey: [VirtualTime]] = [:]
  /// Until when nothing is to be sent over a path, as its replica was told.
  private var pauses: [Paths.Path: VirtualTime] = [:]
  /// When a replica first heard that a ring was accepted.
  private var accepted: [DeliveryKey: VirtualTime] = [:]
  /// When a request was last sent over a path that worked, if all since then were.
  private var worked: [Paths.Path: VirtualTime] = [:]
  private var failures: [Paths.Path: Failures] = [:]
  /// Who has handed each ring on, until somebody does so for the second time.
  private var rounds: [DeliveryKey: [Int32]] = [:]
  /// Number of promises that were kept.
  private(set) var kept = 0

  init(_ world: World) {
    self.world = world
    longestDelay =
      3_000_000_000
      + (IdleConnection.areForgotten(world.seed) ? Self.otherDelay * VirtualTime(world.plan.replicas - 1) : 0)
    let others = VirtualTime(max(0, world.plan.replicas - 2))
    time = 3_000_000_000 + Self.otherDelay * others + (Paths.areSlow(world.seed) ? 3_000_000_000 * (others + 1) : 0)
  }

  func didEnqueue(_ outboxID: Int64) {
    let areTokensBad = BadTokens.exist(world.seed)
    guard Paths.areIll(world.seed) || areTokensBad, let call = world.server.outbox.calls[outboxID],
      call.state == .ringing
    else { return }
    let end = world.now + (call.deadlineAt - call.createdAt) * 1_000
    for key in call.pushes {
      guard let row = world.server.outbox.deliveries[key], row.isInvite,
        let lane = world.lanes.firstIndex(where: { $0.id == row.lane })
      else { continue }
      guard world.badTokens.illness(of: row.token, lane: row.lane) == nil else { continue }
      let due =
        areTokensBad
        ? world.now + longestDelay : world.paths.works(lane: lane, from: world.now, for: time) + time
      guard due < end else { continue }
      world.at(due) { [self] in check(key, row.userID) }
    }
  }

  /// A request is sent over a path, which is ill or not.
  func willLeave(_ request: PushRequest, over path: Paths.Path, _ illness: PathIllness?) {
    guard Paths.areIll(world.seed) else { return }
    if let until = pauses[path], world.now < until {
      world.violate("A provider that asks for a pause gets it, from the replica that it told.", "\(path)")
    }
    var isNew = false
    if !request.kind.isVisible {
      let key = world.phones.delivery(of: request).key
      isNew = sent[key] == nil
      let times = sent[key, default: []].filter { $0 + 1_000_000_000 > world.now } + [world.now]
      sent[key] = times
      if let at = accepted[key], at + Self.writeTime < world.now {
        world.violate("A ring that was accepted is not sent again, whoever was told.", key.story)
      }
      if times.count > Self.mostInASecond {
        world.violate("Replicas do not pass a ring to and fro: it is sent at most ten times in a second.", key.story)
      }
    }
    // A path that asks for a pause gets one. One that is slow has shown nothing yet, nor one that fails for some tokens or speaks of one.
    if let illness, illness != .throttling, illness != .rationing, illness != .slow, !Paths.areChoosy(world.seed) {
      worked[path] = nil
      noteFailure(Array(request.token), over: path, isSilent: illness == .silent, isNew: isNew)
    } else {
      worked[path] = illness == nil ? world.now : nil
      failures[path] = nil
    }
  }

  /// A replica is told to pause, and has a moment to hear it.
  func didPause(_ path: Paths.Path) {
    let begin = world.now + 50_000_000
    world.at(begin) { [self] in pauses[path] = begin + Paths.pause.count - 100_000_000 }
  }

  /// A replica is told that a push was accepted. What failed before, or fails later that was sent before, shows no sickness.
  func didAnswer(_ acceptance: Acceptance, over path: Paths.Path) {
    failures[path] = nil
    guard Paths.areIll(world.seed), accepted[acceptance.key] == nil else { return }
    accepted[acceptance.key] = world.now
  }

  /// A gateway hands rings on.
  func didHandOn(_ keys: [DeliveryKey], by gateway: Int32) {
    for key in keys { rounds[key] = rounds[key].flatMap { $0.contains(gateway) ? nil : $0 + [gateway] } ?? [gateway] }
  }

  /// A gateway has claimed a push that is due at `row.dueAt` for those that had it in this round.
  func didClaim(_ row: MemoryDelivery, at now: DatabaseTime) {
    guard Paths.areIll(world.seed), let owner = row.owner, rounds[row.key]?.contains(owner) ?? false,
      row.dueAt > now + MemoryOutbox.Limits.othersFirst * Int64(world.plan.replicas)
    else { return }
    world.violate(
      "Nobody has a ring for a second time before its rest is over: until then, it is for the others.", row.key.story)
  }

  private func noteFailure(_ token: [UInt8], over path: Paths.Path, isSilent: Bool, isNew: Bool) {
    var failures = failures[path] ?? Failures()
    // A request without an answer shows nothing if its call ends before.
    if !isSilent {
      if let last = failures.last, last.token != token, world.now - last.at < 8_000_000_000 {
        failures.sickSince = failures.sickSince ?? world.now + 500_000_000
      }
      failures.last = (token, world.now)
    }
    if isNew, let sickSince = failures.sickSince, sickSince < world.now, isWell(anotherThan: path) {
      failures.tries = failures.tries.filter { $0 + Self.triesTime > world.now } + [world.now]
      if failures.tries.count > Self.triesMax * (Paths.areShared(world.seed) ? 2 : 1) {
        world.violate("A replica whose lane is sick leaves new rings to others, but for one in ten seconds.", "\(path)")
      }
    }
    self.failures[path] = failures
  }

  /// Whether another replica knows that its path to the same provider works.
  private func isWell(anotherThan path: Paths.Path) -> Bool {
    worked.contains {
      $0.key.lane == path.lane && $0.key.replica != path.replica && $0.value + 200_000_000 < world.now
        && world.paths.hasWorked($0.key, since: $0.value, at: world.now)
    }
  }

  private func check(_ key: DeliveryKey, _ userID: String) {
    let call = world.server.outbox.calls[key.outboxID]
    if !world.phones[key].isEmpty {
      kept += 1
    } else if call?.rings(for: userID) ?? false {
      world.violate(promise, key.story)
    }
  }

  private var promise: String {
    if IdleConnection.areForgotten(world.seed) {
      return "A connection that the network has forgotten delays no ring by more than 3 s."
    }
    return BadTokens.exist(world.seed)
      ? "A token at whose pushes the provider fails delays nobody else's ring by more than 3 s."
      : "If some replica has had a path that works for 3 s of a call's window, its phone has rung."
  }
}
