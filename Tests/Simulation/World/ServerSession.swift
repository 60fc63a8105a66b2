// A session of the server: it executes the statements of its connection one after the other, and continues for a while
// when the connection is gone.

import MemoryOutbox
import Queue

/// The server's end of a connection.
final class ServerSession {
  struct Job {
    var statement: Statement
    var reply: (Result<Statement.Answer, OutboxError>) -> Void
  }

  private unowned let world: World
  private let epoch: Int
  private var jobs: [Job] = []
  private var isBusy = false
  /// The running statement takes too long: it waits for a lock.
  private var busyUntil: VirtualTime = 0

  init(_ world: World) {
    self.world = world
    epoch = world.server.epoch
  }

  var isAlive: Bool { epoch == world.server.epoch && world.server.isUp }

  /// A statement has arrived.
  func receive(_ job: Job) {
    jobs.append(job)
    startNext()
  }

  /// The connection is gone: a statement that has begun continues, sometimes for long; other statements that have
  /// arrived may still run.
  func orphan() {
    if world.random.chance(0.5) { jobs.removeAll() }
    if world.random.chance(0.3) { busyUntil = world.now + world.random.time(0...3_000) }
  }

  private func startNext() {
    guard !isBusy, isAlive, !jobs.isEmpty else { return }
    guard world.server.stillUntil <= world.now else {
      return world.at(world.server.stillUntil) { [self] in startNext() }
    }
    isBusy = true
    let job = jobs.removeFirst()
    let isSlow = world.hasFaults && world.random.chance(world.plan.probability(.slowStatements, 0.05))
    let time = isSlow ? world.random.time(5...1_500) : world.random.latency(0...1, longest: 5)
    let locks = world.server.begin(job.statement)
    world.after(time) { [self] in finish(job, locks) }
  }

  private func finish(_ job: Job, _ locks: Statement.Locks?) {
    guard isAlive else { return }
    let waitUntil = max(busyUntil, world.server.stillUntil)
    guard waitUntil <= world.now, !world.server.mustWait(job.statement) else {
      world.at(max(waitUntil, world.now + 1_000_000)) { [self] in finish(job, locks) }
      return
    }
    let result = world.server.finish(job.statement, locks)
    world.tell("server", "\(job.statement.name) \(job.statement.story): \(result.story)")
    isBusy = false
    job.reply(result)
    startNext()
  }
}
