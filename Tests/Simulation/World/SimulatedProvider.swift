// A provider in one replica: requests wait for a stream, are sent if the permit and the deadline still allow it, and
// get exactly one outcome each.

import Dispatching
import Providers
import Queue
import Runtime

/// One lane's provider in one life of a replica.
final class SimulatedProvider {
  private unowned let life: Life
  private unowned let world: World
  private let index: Int
  private var lane: SimulatedLane { world.lanes[index] }
  private var waiting: [PushRequest] = []
  /// By a number that is unique, unlike a request's tag.
  private var underWay: [Int: PushRequest] = [:]
  private var written = 0
  /// The number of the connection in use.
  private var connection = 0
  private var isUp = false
  private var isClosing = false
  private var isPumping = false
  /// Fails, or refuses credentials, until this time.
  private var troubledUntil: VirtualTime = 0
  private var unauthorizedUntil: VirtualTime = 0

  init(_ life: Life, lane: Int, _ world: World) {
    self.life = life
    self.world = world
    index = lane
  }

  /// Requests that have no outcome yet.
  var unanswered: Int { waiting.count + underWay.count }

  func start() { becomeUp(after: world.random.time(5...200)) }

  private func becomeUp(after time: VirtualTime) {
    world.after(time) { [self] in
      life.whenRunning { [self] in
        guard !isClosing else { return }
        isUp = true
        life.handle(.provider(.capacity(world.plan.capacity), lane: index))
        pump()
      }
    }
  }

  // MARK: - Requests

  func send(_ batch: [PushRequest]) {
    waiting += batch
    planPump(after: 0)
  }

  private func planPump(after time: VirtualTime) {
    guard !isPumping else { return }
    isPumping = true
    world.after(time) { [self] in
      life.whenRunning { [self] in
        isPumping = false
        pump()
      }
    }
  }

  private func pump() {
    while isUp || isClosing, underWay.count < world.plan.capacity, !waiting.isEmpty {
      write(waiting.removeFirst())
    }
    // Requests do not wait for a stream beyond the deadline.
    let now = life.localNow
    for request in waiting where request.deadline <= now {
      waiting.removeAll { $0 === request }
      report(request, .expired, sentAt: nil)
    }
    if !waiting.isEmpty { planPump(after: 50_000_000) }
  }

  /// Sends a request, or drops it.
  private func write(_ request: PushRequest) {
    let now = life.localNow
    if isClosing { return report(request, .refused(reason: "ShuttingDown"), sentAt: nil) }
    if request.deadline <= now { return report(request, .expired, sentAt: nil) }
    if life.permit <= now { return report(request, .refused(reason: "LeaseUnconfirmed"), sentAt: nil) }
    let number = written
    written += 1
    underWay[number] = request
    let gateway = life.link.gateway
    world.checker.willLeave(request, life)
    let path = Paths.path(world.seed, replica: life.replica.index, lane: index)
    let illness =
      world.paths.illness(of: path, for: Array(request.token), at: world.now)
      ?? (world.hasFaults ? world.paths.passingFailure(of: Array(request.token), over: path) : nil)
    world.promises.willLeave(request, over: path, illness)
    if let illness, illness != .slow { return suffer(illness, number, now) }
    let token = String(decoding: request.token, as: UTF8.self)
    if world.hasFaults, let illness = world.badTokens.illness(of: token, lane: lane.id) {
      return suffer(illness, number, now, isForToken: true)
    }
    var fate = world.faults.fate(of: request, in: lane, isTroubled: isTroubled, isUnauthorized: isUnauthorized)
    if illness == .slow { fate.answerAfter = world.random.time(1_000...6_000) }
    world.after(world.random.latency(world.providerTime, longest: 300)) { [self] in
      var acceptance: Acceptance?
      if fate.isAccepted { acceptance = world.checker.didAccept(request, life, gateway) }
      world.after(fate.answerAfter) { [self] in
        life.whenRunning { [self] in
          // Its connection broke meanwhile, which was reported.
          guard underWay.removeValue(forKey: number) != nil else { return }
          acceptance?.isCertain = fate.isCertain
          if let acceptance, fate.isCertain { world.promises.didAnswer(acceptance) }
          report(request, fate.outcome, status: fate.status, sentAt: now)
          pump()
        }
      }
    }
  }

  /// A request leaves over an ill path, so that the provider never gets it; or the provider fails at its token.
  private func suffer(_ illness: PathIllness, _ number: Int, _ sentAt: Instant, isForToken: Bool = false) {
    guard let request = underWay[number] else { return }
    let (outcome, status): (PushOutcome, UInt16) =
      switch illness {
      case .silent, .slow: (.unknown(reason: "TimedOut"), 0)
      case .closing, .closingSome: (.unknown(reason: PushOutcome.connectionLostReason), 0)
      case .refusing, .refusingSome: (.unauthorized(reason: "InvalidProviderToken"), 403)
      case .ill: (.unavailable(reason: "HTTP502", after: nil), 502)
      case .postponing: (.unavailable(reason: "ServiceUnavailable", after: Paths.longPause), 503)
      case .rationing: (.throttled(reason: "TooManyRequests", after: Paths.longPause, isLaneWide: false), 429)
      case .throttling: (.throttled(reason: "TooManyRequests", after: Paths.pause, isLaneWide: !isForToken), 429)
      }
    let time =
      illness == .silent
      ? min(max(0, (request.deadline - sentAt).count) + 5_000_000_000, 10_000_000_000)
      : world.random.latency(world.providerTime, longest: 300)
    world.after(time) { [self] in
      life.whenRunning { [self] in
        guard underWay.removeValue(forKey: number) != nil else { return }
        if illness == .throttling, !isForToken {
          world.promises.didPause(Paths.path(world.seed, replica: life.replica.index, lane: index))
        }
        report(request, outcome, status: status, sentAt: sentAt, connection: isForToken ? connection : number)
        if isForToken, illness == .closing { loseAll() }
        pump()
      }
    }
  }

  /// A connection is lost, and what else was in flight on it.
  private func loseAll() {
    let lost = underWay.sorted { $0.key < $1.key }.map(\.value)
    underWay = [:]
    for request in lost {
      report(
        request, .unknown(reason: PushOutcome.connectionLostReason), sentAt: life.localNow, connection: connection)
    }
    connection += 1
  }

  private func report(
    _ request: PushRequest, _ outcome: PushOutcome, status: UInt16 = 0, sentAt: Instant?, connection: Int = -1
  ) {
    // Not within the turn that passed the request.
    let result = { [life] in
      PushResult(
        tag: request.tag, outcome: outcome, status: status, sentAt: sentAt, answeredAt: life.localNow,
        connection: connection)
    }
    world.after(1_000) { [self] in
      life.whenRunning { [self] in life.handle(.provider(.results([result()]), lane: index)) }
    }
  }

  /// Takes back requests that were not sent.
  func withdraw(_ tags: Set<UInt64>) {
    let withdrawn = waiting.filter { tags.contains($0.tag) }
    waiting.removeAll { tags.contains($0.tag) }
    for request in withdrawn { report(request, .refused(reason: "Withdrawn"), sentAt: nil) }
  }

  // MARK: - Bad days

  private var isTroubled: Bool { world.now < troubledUntil }
  private var isUnauthorized: Bool { world.now < unauthorizedUntil }

  func trouble(for time: VirtualTime) { troubledUntil = world.now + time }
  func refuseCredentials(for time: VirtualTime) { unauthorizedUntil = world.now + time }

  /// Its connections are lost; sent requests have no outcome.
  func breakOff(for time: VirtualTime) {
    life.whenRunning { [self] in
      guard isUp, !isClosing else { return }
      isUp = false
      life.handle(.provider(.capacity(0), lane: index))
      loseAll()
      becomeUp(after: time)
    }
  }

  /// Faults stop.
  func recover() {
    troubledUntil = 0
    unauthorizedUntil = 0
  }

  /// Waiting requests are returned; sent requests have until the deadline.
  func shutDown(within time: VirtualTime) {
    isClosing = true
    planPump(after: 0)
    world.after(time) { [self] in
      life.whenRunning { [self] in
        let lost = underWay.sorted { $0.key < $1.key }.map(\.value)
        underWay = [:]
        for request in lost { report(request, .unknown(reason: "ShuttingDown"), sentAt: life.localNow) }
      }
    }
  }
}
