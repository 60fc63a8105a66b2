// A replica: it runs the process of a gateway, which dies and is started again.

import Runtime

/// A machine with a clock and a process.
final class Replica {
  let index: Int
  private unowned let world: World
  private(set) var life: Life?
  private(set) var clock: ReplicaClock
  private var lives = 0
  /// Whether it is never started again.
  private(set) var isGone = false

  init(_ index: Int, _ world: World) {
    self.index = index
    self.world = world
    let isOff = world.plan.has(.drift)
    let drift = isOff ? Double(world.random.count(-1000...1000)) / 1000 * ReplicaClock.driftMax : 0
    clock = ReplicaClock(startingAt: world.random.time(1_000...1_000_000), drift: drift, at: 0)
  }

  var name: String { "replica \(index)" }

  func start() {
    guard life == nil else { return }
    isGone = false
    lives += 1
    let life = Life(self, number: lives, world)
    self.life = life
    world.keep(life)
    world.tell(life.name, "starts")
    life.start()
  }

  /// The life has ended.
  func didEnd(_ ended: Life) {
    if life === ended { life = nil }
  }

  /// The process dies; it is started again after a while.
  func crash(startAgainAfter time: VirtualTime?) {
    guard let life else { return }
    world.tell(life.name, "dies")
    life.die()
    guard let time else { return isGone = true }
    world.after(time) { [self] in
      if !isGone { start() }
    }
  }

  /// It shuts down cleanly.
  func leave() {
    isGone = true
    life?.drain(until: world.random.time(100...6_000))
  }

  /// From now on it runs, and is restarted after it shuts down.
  func stay() {
    isGone = false
    if life == nil { start() }
    if life?.isDraining ?? false { world.after(500_000_000) { [self] in stay() } }
  }

  /// It is on the same machine as another replica.
  func share(clockOf other: Replica) { clock = other.clock }

  func jumpClock(by nanoseconds: Int64) {
    clock.jump(by: nanoseconds, at: world.now)
    world.checker.didJump()
    guard let life else { return }
    world.tell(life.name, "clock jumps by \(nanoseconds / 1_000_000) ms")
    life.setAlarm()
  }

  /// Faults stop.
  func recover() { life?.recover() }
}
