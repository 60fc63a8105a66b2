// A connection of a replica to the server. Bytes keep their order. When the connection breaks, the client notices it at
// once or much later, and does not know whether the server executed the pending statements.

import Queue

/// The client's end of a connection.
final class Connection {
  private struct Pending {
    var statement: Statement
    var complete: (Result<Statement.Answer, OutboxError>) -> Void
  }

  let name: String
  private unowned let life: Life
  private unowned let world: World
  private var session: ServerSession?
  private(set) var isUp = false
  /// How often it was opened.
  private(set) var openings = 0
  /// Increased when the connection breaks: answers of earlier connections are ignored.
  private var generation = 0
  /// Whether the connection is broken; the client may not have noticed.
  private var isBroken = false
  private var pending: [Int: Pending] = [:]
  private var nextID = 0
  /// The arrival time of the last bytes in each direction.
  private var lastArrival: VirtualTime = 0
  private var lastAnswer: VirtualTime = 0
  /// What packets that are lost add to the travel time of statements or of answers, in milliseconds.
  private var loss: (delay: ClosedRange<Int64>, areAnswers: Bool)?
  var onChange: () -> Void = {}

  init(_ name: String, _ life: Life, _ world: World) {
    self.name = name
    self.life = life
    self.world = world
  }

  /// Whether notifications of the server arrive.
  var canHear: Bool { isUp && !isBroken && session?.isAlive == true }

  // MARK: - Statements

  func send(_ statement: Statement, complete: @escaping (Result<Statement.Answer, OutboxError>) -> Void) {
    guard isUp else { return later { complete(.failure(OutboxError(.unavailable, "there is no connection"))) } }
    if world.hasFaults, world.random.chance(world.plan.probability(.refusedStatement, 0.02)) {
      return later { complete(.failure(OutboxError(.transient, "deadlock detected"))) }
    }
    let id = nextID
    nextID += 1
    pending[id] = Pending(statement: statement, complete: complete)
    guard !isBroken else { return }  // lost
    let isLost = world.hasFaults && world.random.chance(world.plan.probability(.lostStatement, 0.01))
    if isLost { return breakOff(noticedAfter: noticeTime) }
    let isLate = world.hasFaults && world.random.chance(world.plan.probability(.lateStatement, 0.01))
    if isLate { return delay(statement) }
    let isAnswerLost = world.hasFaults && world.random.chance(world.plan.probability(.lostAnswer, 0.01))
    let generation = generation
    let session = session
    world.after(statement.patience) { [life] in
      life.whenRunning { [self] in
        if generation == self.generation, pending[id] != nil { breakOff(noticedAfter: 0) }
      }
    }
    lastArrival = max(lastArrival, world.now + travelTime(ofAnswers: false)) + 1
    world.at(lastArrival) { [self] in
      let job = ServerSession.Job(statement: statement) { [self] result in
        guard generation == self.generation else { return }
        if isAnswerLost { breakOff(noticedAfter: noticeTime) } else { answer(id, result) }
      }
      guard generation != self.generation else { return session?.receive(job) ?? () }
      // Statements sent before the connection broke may still arrive, sometimes late.
      guard world.random.chance(0.5) else { return }
      deliver(job, to: session, after: world.random.latency(0...5, longest: 3_000))
    }
  }

  /// The connection is lost and only the client notices: its statement still arrives and is executed.
  private func delay(_ statement: Statement) {
    let session = session
    breakOff(noticedAfter: noticeTime)
    deliver(
      ServerSession.Job(statement: statement) { _ in }, to: session,
      after: world.random.latency(0...1_500, longest: 5_000))
  }

  private func deliver(_ job: ServerSession.Job, to session: ServerSession?, after time: VirtualTime) {
    world.after(time) { [world] in
      // The worst moment: no gateway will learn which deliveries this claim takes.
      if job.statement.claimNumber != nil { world.backend.ringNow() }
      session?.receive(job)
    }
  }

  private func answer(_ id: Int, _ result: Result<Statement.Answer, OutboxError>) {
    let generation = generation
    lastAnswer = max(lastAnswer, world.now + travelTime(ofAnswers: true)) + 1
    world.at(lastAnswer) { [self] in
      guard generation == self.generation, let answered = pending.removeValue(forKey: id) else { return }
      life.whenRunning { answered.complete(result) }
    }
  }

  private func later(_ body: @escaping () -> Void) {
    world.after(10_000) { [life] in life.whenRunning(body) }
  }

  // MARK: - Up and down

  private var noticeTime: VirtualTime {
    world.random.chance(0.7) ? world.random.time(0...5) : world.random.time(100...6_000)
  }

  /// The connection breaks.
  ///
  /// - Parameter time: time until the client notices.
  func breakOff(noticedAfter time: VirtualTime) {
    guard isUp, !isBroken else { return }
    isBroken = true
    generation += 1
    session?.orphan()
    world.tell(life.name, "\(name): the connection breaks, noticed after \(time / 1_000_000) ms")
    world.after(time) { [self] in life.whenRunning { [self] in notice() } }
  }

  private func notice() {
    guard isBroken else { return }
    isBroken = false
    isUp = false
    session = nil
    let failed = pending.sorted { $0.key < $1.key }.map(\.value)
    pending = [:]
    onChange()
    for entry in failed { entry.complete(.failure(OutboxError(.answerLost, "the connection broke"))) }
    reconnect()
  }

  /// From now on its path loses packets in one direction. They are sent again, and arrive late.
  ///
  /// - Parameter delay: in milliseconds.
  func losePackets(delay: ClosedRange<Int64>, areAnswers: Bool) { loss = (delay, areAnswers) }

  private func travelTime(ofAnswers: Bool) -> VirtualTime {
    let time = world.random.latency(0...1, longest: 5)
    guard world.hasFaults, let loss, loss.areAnswers == ofAnswers else { return time }
    return time + world.random.time(loss.delay)
  }

  /// Tries to connect until it succeeds.
  func reconnect() {
    world.after(world.random.time(20...400)) { [self] in
      life.whenRunning { [self] in
        guard !isUp else { return }
        guard world.server.isResponsive, !life.link.isPartitioned else { return reconnect() }
        session = ServerSession(world)
        isUp = true
        openings += 1
        lastArrival = world.now
        lastAnswer = world.now
        onChange()
      }
    }
  }

  /// The process has ended.
  func abandon() {
    generation += 1
    pending = [:]
    session?.orphan()
  }
}
