// The server: it executes statements on the outbox in memory, crashes, and restarts.

import Dispatching
import MemoryOutbox
import Providers
import Queue

/// Postgres, as far as a gateway can tell.
final class DatabaseServer {
  /// Commits reach the disk at about this age.
  private static let syncInterval: VirtualTime = 200_000_000

  private unowned let world: World
  private(set) var outbox = MemoryOutbox()
  private(set) var isUp = true
  /// The server executes nothing before this time.
  private(set) var stillUntil: VirtualTime = 0
  private var stillSince: VirtualTime = 0
  /// Time since which it has run without an interruption that gateways notice, in true time.
  private(set) var upSince: VirtualTime = 0
  /// Increased by each crash and restart, which end all earlier sessions.
  private(set) var epoch = 0
  /// Offset of its clock.
  private var clockOffset: Int64 = 0
  /// Number of commits that were not on the disk, and that the standby lacked, at the last run of the WAL writer.
  private var unsynced = 0
  private var unreplicated = 0
  /// The gateway that last claimed each delivery.
  private var lastOwner: [DeliveryKey: Int32] = [:]

  init(_ world: World) {
    self.world = world
    for app in SimulatedLane.apps {
      outbox.apps[app] = MemoryApp(name: app, isAtLeastOnce: world.plan.isAtLeastOnce && app == SimulatedLane.apps[0])
    }
    for lane in world.lanes {
      outbox.lanes[lane.id] = MemoryLane(id: lane.id, app: lane.app, provider: lane.provider.rawValue)
    }
  }

  /// The time on its clock.
  var databaseNow: DatabaseTime { 1_750_000_000_000_000 + world.now / 1_000 + clockOffset }

  func start() { sync() }

  /// Whether backends can reach it.
  var isResponsive: Bool { isUp && stillUntil <= world.now }

  private func sync() {
    if stillUntil <= world.now {
      // The standby lags behind the disk, which lags behind the commits.
      outbox.replicate(upTo: unreplicated)
      outbox.sync(upTo: unsynced)
      unsynced = outbox.unsyncedCommits
      unreplicated = outbox.unreplicatedCommits
    }
    world.after(Self.syncInterval) { [self] in sync() }
  }

  // MARK: - Statements

  /// Executes a statement that is not from a gateway.
  func change<Result>(_ body: (inout MemoryOutbox, DatabaseTime) -> Result) -> Result {
    defer { didCommit() }
    return body(&outbox, databaseNow)
  }

  /// Begins a statement. Returns the locks that it holds until it ends.
  func begin(_ statement: Statement) -> Statement.Locks? { statement.begin(&outbox, at: databaseNow) }

  /// Whether a statement has to wait for a running claim.
  func mustWait(_ statement: Statement) -> Bool {
    statement.locksGateway && statement.gateway.map(outbox.isLocked) ?? false
  }

  /// Ends a statement.
  func finish(_ statement: Statement, _ locks: Statement.Locks?) -> Result<Statement.Answer, OutboxError> {
    defer { didCommit() }
    switch locks {
    case .claim(let claim): return .success(.claimed(finish(claim)))
    case .followUps(let run):
      let count = outbox.finish(run, at: databaseNow)
      if case .runJob = statement.action { return .success(.done) }
      return .success(.count(count))
    case nil: break
    }
    let living = statement.isBeat ? livingGateways : []
    let handedOn = statement.handsOn(outbox)
    do throws(OutboxError) {
      let answer = try statement.execute(&outbox, at: databaseNow)
      if let gateway = statement.gateway { world.promises.didHandOn(handedOn, by: gateway) }
      if case .beat = answer, let gateway = statement.gateway {
        world.checker.didReap(living.subtracting(livingGateways), by: gateway)
        world.checker.didBeat(gateway)
      }
      if case .registered(let gateway) = answer { world.checker.didBeat(gateway) }
      return .success(answer)
    } catch {
      return .failure(error)
    }
  }

  private func finish(_ claim: MemoryRunningClaim) -> [MemoryClaimedRow] {
    let rows = outbox.finish(claim, at: databaseNow)
    let hasChangedHands = rows.contains { row in
      if let before = lastOwner[row.delivery.key], before != row.delivery.owner { true } else { false }
    }
    for row in rows {
      lastOwner[row.delivery.key] = row.delivery.owner
      world.promises.didClaim(row.delivery, at: databaseNow)
      if let former = world.phones.expect(row.delivery) { world.checker.didReplace(former, by: row.delivery.key) }
    }
    if hasChangedHands { world.faults.temptAfterHandover() }
    return rows
  }

  private var livingGateways: Set<Int32> { Set(outbox.gateways.values.lazy.filter(\.isAlive).map(\.id)) }

  private func didCommit() {
    for notification in outbox.readNotifications() { world.faults.broadcast(notification) }
    world.checker.didCommit(outbox.takeTouched(), notes: outbox.takeTouchedNotes())
  }

  // MARK: - Bad days

  enum End {
    /// Nothing is lost.
    case stop
    /// What is not on the disk is lost, except a random part.
    case crash
    /// A standby takes its place: what that lacks is lost as well, except a random part.
    case failOver
  }

  /// The server ends, and it or another one is up after a while.
  func stop(_ end: End, for duration: VirtualTime) {
    guard isUp else { return }
    isUp = false
    stillSince = world.now
    stillUntil = 0
    epoch += 1
    switch end {
    case .stop:
      world.tell("server", "stops")
      outbox.stop()
    case .crash:
      let kept = world.random.count(0...outbox.unsyncedCommits)
      let lost = outbox.unsyncedCommits - kept
      didLose(outbox.crash(keeping: kept), "crashes, loses \(lost) commits", isFailOver: false)
    case .failOver:
      let kept = world.random.count(0...outbox.unreplicatedCommits)
      let lost = outbox.unreplicatedCommits - kept
      didLose(outbox.failOver(keeping: kept), "fails over, loses at least \(lost) commits", isFailOver: true)
    }
    unsynced = 0
    unreplicated = 0
    for replica in world.replicas { replica.life?.link.serverIsGone() }
    world.after(duration) { [self] in comeUp() }
  }

  private func didLose(_ keys: Set<DeliveryKey>, _ what: String, isFailOver: Bool) {
    world.tell("server", "\(what) about \(keys.map(\.story).sorted())")
    world.checker.didLose(keys, isFailOver: isFailOver)
    world.checker.didCommit(outbox.takeTouched(), notes: outbox.takeTouchedNotes())
  }

  /// The server executes nothing for a while and loses nothing; connections stay open.
  func standStill(for duration: VirtualTime) {
    guard isUp, stillUntil <= world.now else { return }
    stillSince = world.now
    stillUntil = world.now + duration
    world.tell("server", "stands still for \(duration / 1_000_000) ms")
    let until = stillUntil
    world.at(until) { [self] in if until == stillUntil { goOn() } }
  }

  private func goOn() {
    guard isUp else { return }
    noteInterruption()
    world.tell("server", "goes on")
  }

  /// A shorter one leaves no gap between heartbeats that the gateway that declares others dead would notice.
  private func noteInterruption() {
    if world.now - stillSince >= VirtualTime(MemoryOutbox.Limits.silence) * 2 / 3 * 1_000 { upSince = world.now }
  }

  private func comeUp() {
    guard !isUp else { return }
    isUp = true
    noteInterruption()
    world.tell("server", "is up")
  }

  /// Faults stop.
  func recover() {
    if stillUntil > world.now {
      stillUntil = world.now
      goOn()
    }
    comeUp()
  }

  /// Sets its clock.
  func jump(by microseconds: Int64) {
    clockOffset += microseconds
    world.tell("server", "clock jumps by \(microseconds / 1000) ms")
    world.checker.didJump()
  }
}

extension Statement {
  fileprivate var isBeat: Bool {
    if case .beat(_) = action { true } else { false }
  }

  /// The deliveries that it hands on, of those that its gateway still has.
  fileprivate func handsOn(_ outbox: MemoryOutbox) -> [DeliveryKey] {
    guard case .write(_, .park(let parkings)) = action else { return [] }
    return parkings.filter { parking in
      guard parking.isHandedOn, let row = outbox.deliveries[parking.lease.key] else { return false }
      return row.state == .claimed && row.owner == gateway && row.lease == parking.lease.lease
    }.map(\.lease.key)
  }
}
