// A provider in one replica: requests wait for a stream, are sent if the permit and the deadline still allow it, and
// get exactly one outcome each. In some seeds the messages of Expo share requests, as `ExpoSendQueue` divides them.

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
  /// The messages of each request, by a number that is unique, unlike a tag. Without those that did not leave.
  private var underWay: [Int: [PushRequest]] = [:]
  /// The requests as the queue made them.
  private var made: [Int: [PushRequest]] = [:]
  /// The messages that wait, if they share requests.
  private var queue: ExpoSendQueue?
  /// Requests that are suspected to hang because of one of their messages.
  private var doubted: Set<Int> = []
  private var written = 0
  /// The number of the connection in use.
  private var connection = 0
  /// The connection to Expo, if idle ones are forgotten.
  private var idle: IdleConnection?
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
    guard world.lanes[lane].provider == .expo else { return }
    if BadTokens.areMany(world.seed) || IdleConnection.areForgotten(world.seed) {
      queue = ExpoSendQueue(messagesMax: 100, requestsMax: 6)
    }
    if IdleConnection.areForgotten(world.seed) {
      idle = IdleConnection(world.seed, replica: life.replica.index, lane: lane)
    }
  }

  /// Pushes that have no outcome yet.
  var unanswered: Int {
    waiting.count + underWay.values.reduce(queue?.count ?? 0) { $0 + $1.count }
  }

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
    if let busy = queue?.append(batch, life.localNow) {
      for request in busy { report(request, .deferred(reason: "TimedOut", after: .seconds(5)), sentAt: nil) }
    } else {
      waiting += batch
    }
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
    if queue?.isFull == true, let youngest = doubted.max() { giveUp(youngest) }
    while isUp || isClosing, let batch = next() { write(batch) }
    // Requests do not wait for a stream beyond the deadline.
    let now = life.localNow
    for request in queue?.removeExpired(at: now) ?? [] { report(request, .expired, sentAt: nil) }
    for request in waiting where request.deadline <= now {
      waiting.removeAll { $0 === request }
      report(request, .expired, sentAt: nil)
    }
    if !waiting.isEmpty || queue?.isEmpty == false { planPump(after: 50_000_000) }
  }

  /// The messages of the next request that may be made now.
  private func next() -> [PushRequest]? {
    if queue != nil { return queue?.next(life.localNow) }
    return underWay.count < world.plan.capacity && !waiting.isEmpty ? [waiting.removeFirst()] : nil
  }

  /// Sends a request, or drops messages of it.
  private func write(_ whole: [PushRequest]) {
    let now = life.localNow
    let batch = whole.filter { request in
      let objection: PushOutcome? =
        isClosing
        ? .refused(reason: "ShuttingDown")
        : request.deadline <= now ? .expired : life.permit <= now ? .refused(reason: "LeaseUnconfirmed") : nil
      if let objection { report(request, objection, sentAt: nil) }
      return objection == nil
    }
    guard !batch.isEmpty else {
      queue?.finish(whole)
      return
    }
    let number = written
    written += 1
    underWay[number] = batch
    made[number] = whole
    let path = Paths.path(world.seed, replica: life.replica.index, lane: index)
    var ill: (illness: PathIllness, isForToken: Bool)?
    for request in batch {
      (request.leftAt, request.batch) = (now, batch.count > 1 ? number : nil)
      world.checker.willLeave(request, life)
      let token = String(decoding: request.token, as: UTF8.self)
      let illness =
        world.paths.illness(of: path, for: Array(request.token), at: world.now)
        ?? (world.hasFaults ? world.paths.passingFailure(of: Array(request.token), over: path) : nil)
      world.promises.willLeave(request, over: path, illness)
      if let illness { ill = (illness, false) }
      if ill == nil, world.hasFaults, let illness = world.badTokens.illness(of: token, lane: lane.id) {
        ill = (illness, true)
      }
    }
    if world.hasFaults, idle?.use(world.now) == false { ill = (.silent, false) }
    if queue != nil { world.after(2_000_000_000) { [self] in life.whenRunning { [self] in doubt(number) } } }
    if let ill, ill.illness != .slow { return suffer(ill.illness, number, now, isForToken: ill.isForToken) }
    answer(number, batch, isSlow: ill != nil, over: path, sentAt: now)
  }

  /// The provider gets a request, and answers it.
  private func answer(
    _ number: Int, _ batch: [PushRequest], isSlow: Bool, over path: Paths.Path, sentAt: Instant
  ) {
    let gateway = life.link.gateway
    var fates = batch.map {
      world.faults.fate(of: $0, in: lane, isTroubled: isTroubled, isUnauthorized: isUnauthorized)
    }
    if isSlow { fates[0].answerAfter = world.random.time(1_000...6_000) }
    world.after(world.random.latency(world.providerTime, longest: 300)) { [self] in
      let acceptances = zip(batch, fates).map { request, fate in
        fate.isAccepted ? world.checker.didAccept(request, life, gateway) : nil
      }
      world.after(fates.map(\.answerAfter).max() ?? 0) { [self] in
        life.whenRunning { [self] in
          // Its connection broke meanwhile, which was reported.
          guard end(number, hasFailed: false) != nil else { return }
          for ((request, fate), acceptance) in zip(zip(batch, fates), acceptances) {
            acceptance?.isCertain = fate.isCertain
            if let acceptance, fate.isCertain { world.promises.didAnswer(acceptance, over: path) }
            report(request, fate.outcome, status: fate.status, sentAt: sentAt)
          }
          pump()
        }
      }
    }
  }

  /// Ends a request. Returns its messages; nil if it has ended before.
  private func end(_ number: Int, hasFailed: Bool) -> [PushRequest]? {
    guard let batch = underWay.removeValue(forKey: number), let whole = made.removeValue(forKey: number) else {
      return nil
    }
    queue?.finish(whole)
    let wasDoubted = doubted.remove(number) != nil
    if !hasFailed {
      queue?.didTake(batch, life.localNow)
    } else if !wasDoubted, let sentAt = batch[0].leftAt {
      queue?.didFail(whole, sentAt: sentAt, life.localNow)
    }
    return batch
  }

  /// A request has no answer for long.
  private func doubt(_ number: Int) {
    guard let whole = made[number], let sentAt = underWay[number]?[0].leftAt, doubted.insert(number).inserted else {
      return
    }
    queue?.didFail(whole, sentAt: sentAt, isUnderWay: true, life.localNow)
    idle?.replace(world.now)
    planPump(after: 0)
  }

  private func giveUp(_ number: Int) {
    guard let batch = end(number, hasFailed: true) else { return }
    for request in batch { report(request, .unknown(reason: "TimedOut"), sentAt: request.leftAt) }
  }

  /// A request leaves over an ill path, so that the provider never gets it; or the provider fails at one of its tokens.
  private func suffer(_ illness: PathIllness, _ number: Int, _ sentAt: Instant, isForToken: Bool) {
    guard let batch = underWay[number] else { return }
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
    let deadline = batch.map(\.deadline).max() ?? sentAt
    let time =
      illness == .silent
      ? min(max(0, (deadline - sentAt).count) + 5_000_000_000, 10_000_000_000)
      : world.random.latency(world.providerTime, longest: 300)
    world.after(time) { [self] in
      life.whenRunning { [self] in
        let isSuspect = queue?.isSuspect(batch) ?? false
        guard end(number, hasFailed: true) != nil else { return }
        if illness == .throttling, !isForToken {
          world.promises.didPause(Paths.path(world.seed, replica: life.replica.index, lane: index))
        }
        let isShared = isForToken && queue == nil
        for request in batch {
          report(
            request, outcome, status: status, sentAt: sentAt, connection: isShared ? connection : number,
            concernsLane: !isSuspect)
        }
        if isShared, illness == .closing { loseAll() }
        pump()
      }
    }
  }

  /// A connection is lost, and what else was in flight on it.
  private func loseAll() {
    let lost = underWay.keys.sorted().compactMap { end($0, hasFailed: true) }.flatMap(\.self)
    for request in lost {
      report(
        request, .unknown(reason: PushOutcome.connectionLostReason), sentAt: life.localNow, connection: connection)
    }
    connection += 1
  }

  private func report(
    _ request: PushRequest, _ outcome: PushOutcome, status: UInt16 = 0, sentAt: Instant?, connection: Int = -1,
    concernsLane: Bool = true
  ) {
    // Not within the turn that passed the request.
    let result = { [life] in
      var result = PushResult(
        tag: request.tag, outcome: outcome, status: status, sentAt: sentAt, answeredAt: life.localNow,
        connection: connection)
      result.concernsLane = concernsLane
      return result
    }
    world.after(1_000) { [self] in
      life.whenRunning { [self] in life.handle(.provider(.results([result()]), lane: index)) }
    }
  }

  /// Takes back requests that were not sent.
  func withdraw(_ tags: Set<UInt64>, areOverdue: Bool) {
    let withdrawn = waiting.filter { tags.contains($0.tag) } + (queue?.remove(tags) ?? [])
    waiting.removeAll { tags.contains($0.tag) }
    for request in withdrawn { report(request, .refused(reason: "Withdrawn"), sentAt: nil) }
    guard areOverdue, queue != nil else { return }
    for (number, batch) in underWay where batch.contains(where: { tags.contains($0.tag) }) { doubt(number) }
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
        let lost = underWay.keys.sorted().compactMap { end($0, hasFailed: true) }.flatMap(\.self)
        for request in lost { report(request, .unknown(reason: "ShuttingDown"), sentAt: life.localNow) }
      }
    }
  }
}
