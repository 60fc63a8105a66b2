// The backends: they enqueue calls and messages, and end calls at any time; users decline.

import Dialects
import MemoryOutbox
import Providers
import PushModel
import Queue

/// Two apps with some users each.
final class Backend {
  /// The capabilities of every phone in a simulation.
  private static let dialect = "intercom"
  private static let users = 12

  private unowned let world: World
  private let dialect: Dialect
  private var calls = 0
  private var extraCalls = 0
  private var temptations = 0
  private var notifications = 0

  init(_ world: World) {
    self.world = world
    guard let dialect = try? ShippedDialects.named(Self.dialect) else {
      preconditionFailure("the dialect \(Self.dialect) is shipped and has no faults")
    }
    self.dialect = dialect
  }

  func planner(of lane: SimulatedLane) -> CallPlanner { CallPlanner(dialect: dialect, provider: lane.provider) }

  /// Whether all planned calls and messages are enqueued.
  var isDone: Bool { calls - extraCalls == world.plan.calls && notifications == world.plan.notifications }

  func start() {
    // The first second is left to the start of the replicas.
    let bursts = (0..<3).map { _ in moment }
    for _ in 0..<world.plan.calls {
      let burst = world.random.pick(bursts) ?? 0
      let time = world.plan.isBursty ? burst + world.random.time(0...50) : moment
      world.at(time) { [self] in ring() }
    }
    for _ in 0..<world.plan.notifications { world.at(moment) { [self] in notify() } }
  }

  /// A random time while there are faults.
  private var moment: VirtualTime {
    world.random.time(1_500...max(2_000, world.plan.faultTime / 1_000_000 - 1_000))
  }

  private func later(_ body: @escaping () -> Void) { world.after(200_000_000, body) }

  // MARK: - Calls

  /// Enqueues another call at a bad moment, a few times.
  func ringNow() {
    guard world.hasFaults, temptations < 3, world.random.chance(0.5) else { return }
    temptations += 1
    ring(isExtra: true)
  }

  private func ring(isExtra: Bool = false) {
    // A backend retries until it reaches the server.
    guard world.server.isResponsive else { return later { [self] in ring(isExtra: isExtra) } }
    calls += 1
    if isExtra { extraCalls += 1 }
    let app = world.random.pick(SimulatedLane.apps) ?? "alpha"
    let isOverloaded = world.plan.isOverloaded
    let seconds = world.random.pick(isOverloaded ? [5, 10] : [2, 5, 10, 20, 30]) ?? 10
    let areMany = BadTokens.areMany(world.seed)
    let most = world.random.pick(isOverloaded ? [3, 8] : areMany ? [1, 1, 1, 1, Self.users] : [1, 1, 2, 3, 8]) ?? 1
    let recipients = recipients(of: app, most)
    let callID = "call-\(calls)"
    let id = world.server.change { outbox, now in
      outbox.enqueueCall(
        app: app, callID: callID, payload: Self.payload(callID), recipients: recipients,
        ring: Int64(seconds) * 1_000_000,
        at: now)
    }
    world.tell("backend", "\(callID) (outbox \(id)) rings \(recipients.count) users of \(app) for \(seconds) s")
    world.checker.didEnqueue(id)
    world.faults.poison(id)
    let call = Call(id: id, madeAt: world.server.outbox.calls[id]?.createdAt ?? 0, recipients: recipients)
    if world.random.chance(0.6) {
      let time = world.random.chance(0.3) ? world.random.time(0...100) : world.random.time(0...Int64(seconds) * 1_200)
      world.after(time) { [self] in end(call) }
    }
    if world.random.chance(0.4) {
      // Sometimes all of them, so that the last one ends the call.
      let share: Double = world.random.pick([0.3, 1]) ?? 1
      for recipient in recipients where world.random.chance(share) {
        world.after(world.random.time(0...Int64(seconds) * 700)) { [self] in decline(call, recipient.userID) }
      }
    }
  }

  /// A call as its backend knows it: after a fail-over another one may have its id.
  private struct Call {
    var id: Int64
    var madeAt: DatabaseTime
    var recipients: [MemoryRecipient]
  }

  /// Executes a statement that changes a call, when nobody else has locked it.
  private func change(_ call: Call, _ what: String, _ body: @escaping (inout MemoryOutbox, DatabaseTime) -> Bool) {
    let outbox = world.server.outbox
    guard world.server.isResponsive else { return later { [self] in change(call, what, body) } }
    guard outbox.calls[call.id]?.createdAt == call.madeAt else { return }  // lost in a fail-over
    guard !outbox.isLocked(call: call.id) else {
      return world.after(1_000_000) { [self] in change(call, what, body) }
    }
    if world.server.change(body) { world.tell("backend", "outbox \(call.id): \(what)") }
  }

  private func end(_ call: Call) {
    let reason = world.random.pick(["ended", "declined", "answered"]) ?? "ended"
    let user = world.random.pick(call.recipients)?.userID
    let server = world.server!
    guard world.random.chance(0.1), server.isResponsive, !server.outbox.isLocked(call: call.id) else {
      return change(call, reason) { outbox, now in Self.end(call.id, reason, by: user, &outbox, now) }
    }
    // Its transaction has locked the call's row for a while.
    let epoch = server.epoch
    server.change { outbox, _ in outbox.lock(call: call.id) }
    world.after(world.random.time(0...1_500)) { [self] in
      if epoch == server.epoch { server.change { outbox, _ in outbox.unlock(call: call.id) } }
      change(call, reason) { outbox, now in Self.end(call.id, reason, by: user, &outbox, now) }
    }
  }

  private static func end(
    _ id: Int64, _ reason: String, by user: String?, _ outbox: inout MemoryOutbox, _ now: DatabaseTime
  ) -> Bool {
    reason == "answered" ? outbox.answer(id, by: user, at: now) : outbox.end(id, reason: reason, at: now)
  }

  private func decline(_ call: Call, _ user: String) {
    let reason = world.random.chance(0.3) ? "busy" : "declined"
    change(call, "\(user) has \(reason)") { outbox, now in outbox.decline(call.id, by: user, reason: reason, at: now) }
  }

  // MARK: - Messages

  private func notify() {
    guard world.server.isResponsive else { return later { [self] in notify() } }
    notifications += 1
    let app = world.random.pick(SimulatedLane.apps) ?? "alpha"
    let recipients = recipients(of: app, world.random.pick([1, 2, 5]) ?? 1)
    let callID = "message-\(notifications)"
    let isUnknown = world.plan.has(.unknownKind) && world.random.chance(0.5)
    // No version that knows the kind may ever start: the message then expires.
    let seconds: Int64 = isUnknown ? 12 : world.random.pick([8, 60, 3_600]) ?? 60
    let id = world.server.change { outbox, now in
      outbox.enqueueNotification(
        app: app, callID: callID, payload: Self.payload(callID), recipients: recipients, life: seconds * 1_000_000,
        kindCode: isUnknown ? 9 : PushKind.notification.rawValue, at: now)
    }
    world.tell(
      "backend",
      "\(callID) (outbox \(id)) for \(recipients.count) users of \(app)\(isUnknown ? ", of a kind nobody knows" : "")")
    world.faults.poison(id)
  }

  // MARK: - Users

  private func recipients(of app: String, _ count: Int) -> [MemoryRecipient] {
    let lanes = world.lanes.filter { $0.app == app }
    var users = Set<Int>()
    while users.count < min(count, Self.users) { users.insert(world.random.count(1...Self.users)) }
    return users.sorted().map { user in
      func channel(_ provider: ProviderKind, _ use: String) -> MemoryChannel? {
        lanes.first { $0.provider == provider }.map { MemoryChannel(lane: $0.id, token: "\(use)-\(app)-\(user)") }
      }
      // Some users have an iPhone, some an Android phone, some several channels.
      let ringing: [MemoryChannel?] =
        switch user % 4 {
        case _ where BadTokens.areMany(world.seed) || IdleConnection.areForgotten(world.seed): [channel(.expo, "expo")]
        case 0: [channel(.apns, "voip")]
        case 1: [channel(.apns, "voip"), channel(.fcm, "fcm"), channel(.expo, "expo")]
        case 2: [channel(.fcm, "fcm"), channel(.expo, "expo")]
        default: [channel(.fcm, "fcm")]
        }
      return MemoryRecipient(
        userID: "user-\(user)", channels: ringing.compactMap { $0 },
        missedCall: user % 4 < 2 ? channel(.apns, "alert") : channel(.fcm, "fcm"))
    }
  }

  private static func payload(_ callID: String) -> String {
    #"{"callId":"\#(callID)","from":"door-1","fromName":"Front door","channelName":"\#(callID)","text":"Hello"}"#
  }
}
