// Every decision of a pool of HTTP/2 connections, and nothing else: events in, actions out, no clock, no socket.
//
// A request is waiting or in flight. It waits while no connection has room, goes to the connection with the most room,
// and comes back to the front of the queue when the server certainly did not process it; that costs nothing but time,
// of which every request has until `giveUpAt`. A connection is connecting, ready or draining. A new one is opened when
// none is left, and when three quarters of the streams there are would be in use; not before `ReconnectLimiter` allows;
// and when a request would rather not have the only one there is.
// A hedge never takes the connection of the request it hedges. It goes to the one that was heard of last; if none was lately,
// another is opened for it, also beyond the configured count.
//
// A connection is in doubt if its health is, if it loses requests, and if it has left one unanswered whose hedge has been
// answered. It takes nothing new while there is or may be another. If no sound one is left, another is opened at once, also beyond
// the configured count: requests that the doubtful one loses find it ready. One that answers PINGs but no requests is given up
// when there is a sound one to take its requests: once, and again only after an answer or `abandonInterval`, for if nothing
// answers it is the provider that is slow, not a connection.

internal import Runtime

/// The pure part of `HTTP2ConnectionPool`.
struct HTTP2ConnectionPoolMachine {
  typealias ConnectionID = Int
  /// The owner's number for a request: small, for it is an index here.
  typealias RequestID = Int

  enum Event: Equatable {
    case started
    /// A request came, which would rather not have this connection.
    case submitted(RequestID, deadline: Instant, avoiding: ConnectionID?)
    /// A request is to be sent besides another one, which is in flight, over another connection.
    case hedged(RequestID, of: RequestID, deadline: Instant)
    /// The hedge of a request has been answered; the request has not.
    case overtaken(RequestID)
    /// Those of these requests that wait are not to be sent any more.
    case withdrawn(Set<RequestID>)
    /// A connection became ready, or the server changed its limit.
    case limited(ConnectionID, streamsMax: Int)
    /// What is known of a connection's health has changed.
    case healthChanged(ConnectionID, HTTP2ConnectionHealth)
    /// A request got its answer, which says this about the connection.
    case answered(RequestID, ConnectionID, HTTP2ConnectionPool.ExchangeEffect)
    /// A request was certainly not processed.
    case refused(RequestID, ConnectionID)
    /// A request ended in another way; lost: without an answer, while its connection goes on.
    case failed(RequestID, ConnectionID, isLost: Bool)
    /// The connection takes no new requests and will close.
    case goingAway(ConnectionID)
    case closed(ConnectionID)
    /// Nothing leaves until `resumed`.
    case paused
    case resumed
    /// What made connections fail may have been mended.
    case retried
    /// The time asked for by `wake`.
    case woken
    case shutDown
    /// Time is up for what is still in flight.
    case shutDownDeadline
  }

  enum Action: Equatable {
    case open(ConnectionID)
    case dispatch(RequestID, ConnectionID)
    /// Ends a request that was certainly not processed.
    case refuse(RequestID, reason: String)
    /// Ends a request that was certainly not processed and whose deadline has passed.
    case expire(RequestID)
    case drain(ConnectionID)
    /// Closes a connection that left its requests unanswered.
    case abandon(ConnectionID)
    case close(ConnectionID)
    case wake(Instant)
    case reportCapacity(Int)
    /// Shut down; nothing is left.
    case finish
  }

  private struct Request {
    var deadline: Instant
    var giveUpAt: Instant
    var avoided: ConnectionID?
    /// Which it was last dispatched to.
    var connection: ConnectionID?
    var isHedge = false
  }

  private let settings: HTTP2ConnectionPoolSettings
  private var roster: HTTP2ConnectionPoolRoster
  private var limiter: ReconnectLimiter
  private var nextConnection = 0
  private var requests: [Request] = []
  private var waiting = HTTP2ConnectionPoolWaitingLine()
  /// Hedges that wait for a connection: apart, because what waits behind them has room elsewhere.
  private var hedges: [RequestID] = []
  /// No waiting request gives up earlier.
  private var earliestGiveUp = Instant.distantFuture
  private var wakeAt = Instant.distantFuture
  private var reportedCapacity = 0
  /// When a connection was last in doubt.
  private var lastDoubtAt = Instant(nanoseconds: .min)
  /// When the next unresponsive connection may be given up although no request was answered since the last.
  private var mayAbandonAt = Instant(nanoseconds: .min)
  /// A request had to take the connection it would rather not have had.
  private var lacksAlternative = false
  private var isStarted = false
  private var isPaused = false
  private var isShuttingDown = false

  /// - Parameter seed: where the jitter starts.
  init(settings: HTTP2ConnectionPoolSettings, seed: UInt64) {
    self.settings = settings
    roster = HTTP2ConnectionPoolRoster(settings: settings)
    limiter = ReconnectLimiter(settings: settings, seed: seed)
  }

  /// How many requests wait for a stream.
  var waitingCount: Int { waiting.count }

  /// How many connections are being made.
  var connectingCount: Int { roster.connections.count { $0.state == .connecting } }
  /// How many connections there are beside those.
  var openCount: Int { roster.connections.count - connectingCount }

  /// Whether a connection lets requests end without an answer, or later than their hedges.
  func losesRequests(_ id: ConnectionID) -> Bool {
    roster.index(of: id).map { roster[$0].losesRequests || roster[$0].isOvertaken } ?? false
  }

  /// The deadline of a request that is in the pool.
  func deadline(of request: RequestID) -> Instant { requests[request].deadline }

  /// Takes one event in and appends what is to be done about it, in order.
  mutating func handle(_ event: Event, now: Instant, _ actions: inout [Action]) {
    switch event {
    case .started: isStarted = true
    case .submitted(let request, let deadline, let avoided): submit(request, deadline, avoided, now, &actions)
    case .hedged(let hedge, let request, let deadline): self.hedge(request, by: hedge, deadline, now, &actions)
    case .overtaken(let request):
      lastDoubtAt = now
      if let id = requests[request].connection { roster.update(id) { $0.isOvertaken = true } }
    case .withdrawn(let requests): withdraw(requests, &actions)
    case .limited(let id, let streamsMax):
      roster.update(id) {
        if $0.state == .connecting { ($0.state, $0.busyUntil) = (.ready, now) }
        $0.streamsMax = streamsMax
        $0.heardAt = now
      }
    case .healthChanged(let id, let health):
      roster.update(id) { $0.health = health }
      if health != .sound { lastDoubtAt = now }
    case .answered(let request, let id, let effect): answered(request, id, effect, now, &actions)
    case .refused(let request, let id):
      let pause = now + settings.refusalPause
      roster.update(id) {
        $0.inFlight -= 1
        $0.busyUntil = now
        if $0.state == .ready { $0.pausedUntil = pause }
      }
      putBack(request, now, &actions)
    case .failed(_, let id, let isLost):
      roster.update(id) { $0.didFail(isLost: isLost, now) }
      if losesRequests(id) { lastDoubtAt = now }
    case .goingAway(let id):
      countIdleEnd(id, now)
      var pending = 0
      roster.update(id) {
        $0.state = .draining
        pending = $0.inFlight
      }
      countEnd(id, pending: pending, now)
    case .closed(let id): closed(id, now)
    case .paused: isPaused = true
    case .resumed: isPaused = false
    case .retried: limiter.tryNow()
    case .woken:
      if wakeAt <= now { wakeAt = .distantFuture }
    case .shutDown: shutDown(&actions)
    case .shutDownDeadline:
      for connection in roster.connections { actions.append(.close(connection.id)) }
    }
    settle(now, &actions)
  }

  // MARK: - Events

  private mutating func submit(
    _ request: RequestID, _ deadline: Instant, _ avoided: ConnectionID?, _ now: Instant, _ actions: inout [Action]
  ) {
    guard !isShuttingDown else { return actions.append(.refuse(request, reason: "ShuttingDown")) }
    guard deadline > now else { return actions.append(.expire(request)) }
    guard waiting.count < settings.waitingMax else {
      return actions.append(.refuse(request, reason: "TooManyWaiting"))
    }
    let entry = Request(deadline: deadline, giveUpAt: min(deadline, now + settings.waitTimeout), avoided: avoided)
    note(request, entry)
    waiting.append(request)
  }

  private mutating func hedge(
    _ request: RequestID, by hedge: RequestID, _ deadline: Instant, _ now: Instant, _ actions: inout [Action]
  ) {
    guard !isShuttingDown, deadline > now, let connection = requests[request].connection else {
      return actions.append(.refuse(hedge, reason: "NotHedged"))
    }
    note(
      hedge,
      Request(
        deadline: deadline, giveUpAt: min(deadline, now + settings.waitTimeout), avoided: connection, isHedge: true))
    hedges.append(hedge)
  }

  private mutating func note(_ request: RequestID, _ entry: Request) {
    while requests.count <= request { requests.append(entry) }
    requests[request] = entry
    earliestGiveUp = min(earliestGiveUp, entry.giveUpAt)
  }

  private mutating func withdraw(_ withdrawn: Set<RequestID>, _ actions: inout [Action]) {
    var kept = HTTP2ConnectionPoolWaitingLine()
    while let request = waiting.popFirst() {
      if withdrawn.contains(request) {
        actions.append(.refuse(request, reason: "Withdrawn"))
      } else {
        kept.append(request)
      }
    }
    waiting = kept
    for hedge in hedges where withdrawn.contains(hedge) { actions.append(.refuse(hedge, reason: "Withdrawn")) }
    hedges.removeAll { withdrawn.contains($0) }
  }

  private mutating func answered(
    _ request: RequestID, _ id: ConnectionID, _ effect: HTTP2ConnectionPool.ExchangeEffect, _ now: Instant,
    _ actions: inout [Action]
  ) {
    var becameWorn = false
    var wasProven = false
    roster.update(id) {
      $0.didAnswer(now)
      wasProven = $0.isProven
      switch effect.connection {
      case .proven: $0.isProven = true
      case .unproven: break
      case .worn:
        becameWorn = $0.state == .ready
        $0.state = .draining
      }
    }
    mayAbandonAt = now
    if effect.connection == .proven { limiter.didWork() }
    if becameWorn {
      if wasProven { countEnd(id, now) } else { limiter.didFail(now) }
      actions.append(.drain(id))
    }
    if effect.resends { putBack(request, now, &actions) }
  }

  private mutating func closed(_ id: ConnectionID, _ now: Instant) {
    countIdleEnd(id, now)
    countEnd(id, now)
    guard let connection = roster.remove(id), !connection.isProven, !connection.isEndCounted, !isShuttingDown else {
      return
    }
    // One that was never ready has failed however long it took.
    if connection.state == .connecting || connection.openedAt + settings.stableAfter > now {
      limiter.didFail(atRequest: connection.state != .connecting && connection.hasFailed, now)
    }
  }

  /// A connection that was ready, and has had nothing to do for a while, is closed by the peer: not for what it did.
  private mutating func countIdleEnd(_ id: ConnectionID, _ now: Instant) {
    guard let index = roster.index(of: id), !isShuttingDown else { return }
    let connection = roster[index]
    guard connection.state == .ready, !connection.isEndCounted, connection.inFlight == 0,
      connection.busyUntil + settings.idleAfter <= now
    else { return }
    roster[index].isEndCounted = true
    if connection.openedAt + settings.stableAfter > now { limiter.didEndIdle(now) }
  }

  /// A connection that has worked comes to its end, or is about to after `pending` more answers at most.
  private mutating func countEnd(_ id: ConnectionID, pending: Int = 0, _ now: Instant) {
    guard let index = roster.index(of: id), roster[index].isProven, !roster[index].isEndCounted else { return }
    roster[index].isEndCounted = limiter.didEnd(
      openedAt: roster[index].openedAt, answers: roster[index].answers + pending, atRequest: roster[index].hasFailed,
      owesNothing: roster[index].inFlight == 0, now)
  }

  private mutating func shutDown(_ actions: inout [Action]) {
    guard !isShuttingDown else { return }
    isShuttingDown = true
    while let request = waiting.popFirst() { actions.append(.refuse(request, reason: "ShuttingDown")) }
    for hedge in hedges { actions.append(.refuse(hedge, reason: "ShuttingDown")) }
    hedges = []
    for connection in roster.connections where connection.state != .draining { drain(connection.id, &actions) }
  }

  /// Back to the front of the line, if there is time left.
  private mutating func putBack(_ request: RequestID, _ now: Instant, _ actions: inout [Action]) {
    if isShuttingDown { return actions.append(.refuse(request, reason: "ShuttingDown")) }
    guard !giveUpIfLate(request, now, &actions) else { return }
    // What a hedge is sent besides is still in flight: that is enough.
    if requests[request].isHedge { return actions.append(.refuse(request, reason: "NotHedged")) }
    requests[request].connection = nil
    waiting.prepend(request)
    earliestGiveUp = min(earliestGiveUp, requests[request].giveUpAt)
  }

  private mutating func drain(_ id: ConnectionID, _ actions: inout [Action]) {
    roster.update(id) { $0.state = .draining }
    actions.append(.drain(id))
  }

  // MARK: - After every event

  private mutating func settle(_ now: Instant, _ actions: inout [Action]) {
    roster.endPauses(now)
    if earliestGiveUp <= now { giveUpLate(now, &actions) }
    leaveUnhealthy(now, &actions)
    dispatch(now, &actions)
    if !hedges.isEmpty { dispatchHedges(now, &actions) }
    drainSurplus(now, &actions)
    openIfNeeded(now, &actions)
    askToBeWoken(now, &actions)
    let capacity = self.capacity
    if capacity != reportedCapacity {
      reportedCapacity = capacity
      actions.append(.reportCapacity(capacity))
    }
    if isShuttingDown, roster.isEmpty { actions.append(.finish) }
  }

  private var capacity: Int { isShuttingDown || isPaused ? 0 : roster.capacity }

  private mutating func giveUpLate(_ now: Instant, _ actions: inout [Action]) {
    earliestGiveUp = .distantFuture
    var kept = HTTP2ConnectionPoolWaitingLine()
    while let request = waiting.popFirst() {
      if giveUpIfLate(request, now, &actions) { continue }
      kept.append(request)
      earliestGiveUp = min(earliestGiveUp, requests[request].giveUpAt)
    }
    waiting = kept
    let waitingHedges = hedges
    hedges = []
    for hedge in waitingHedges where !giveUpIfLate(hedge, now, &actions) {
      hedges.append(hedge)
      earliestGiveUp = min(earliestGiveUp, requests[hedge].giveUpAt)
    }
  }

  private func giveUpIfLate(_ request: RequestID, _ now: Instant, _ actions: inout [Action]) -> Bool {
    guard requests[request].giveUpAt <= now else { return false }
    let isExpired = requests[request].deadline <= now
    actions.append(isExpired ? .expire(request) : .refuse(request, reason: "NoConnection"))
    return true
  }

  private mutating func dispatch(_ now: Instant, _ actions: inout [Action]) {
    guard !isPaused else { return }
    while let request = waiting.first, let choice = roster.roomiest(avoiding: requests[request].avoided) {
      if choice.isDoubtful, mayHopeForAnother(now) { return }
      _ = waiting.popFirst()
      let id = roster[choice.index].id
      if id == requests[request].avoided { lacksAlternative = true }
      dispatch(request, choice.index, &actions)
    }
  }

  private mutating func dispatch(_ request: RequestID, _ index: Int, _ actions: inout [Action]) {
    roster[index].inFlight += 1
    requests[request].connection = roster[index].id
    actions.append(.dispatch(request, roster[index].id))
  }

  /// A connection of which nothing was heard for long may be as dead as the one that does not answer: another is opened before
  /// such a one is taken.
  private mutating func dispatchHedges(_ now: Instant, _ actions: inout [Action]) {
    guard !isPaused else { return }
    let waits = roster.isConnecting || lacksFreshConnection(now) && needsConnection(now) && limiter.mayOpenAt <= now
    for hedge in hedges {
      let index = roster.lastHeard(besides: requests[hedge].avoided)
      guard let index, roster[index].heardAt >= freshSince(now) || !waits else { continue }
      hedges.removeAll { $0 == hedge }
      dispatch(hedge, index, &actions)
    }
  }

  private func freshSince(_ now: Instant) -> Instant { now - settings.connection.liveness.idleBeforePing }

  /// Whether a hedge waits, and no connection besides that of its request has been heard of lately.
  private func lacksFreshConnection(_ now: Instant) -> Bool {
    hedges.contains { !roster.hasHeard(besides: requests[$0].avoided, since: freshSince(now)) }
  }

  /// Whether a request should rather wait than take a connection that is in doubt.
  private func mayHopeForAnother(_ now: Instant) -> Bool {
    roster.isConnecting || roster.hasUsable || (needsConnection(now) && limiter.mayOpenAt <= now)
  }

  /// Parts with connections that are in doubt and with those that answer no requests.
  private mutating func leaveUnhealthy(_ now: Instant, _ actions: inout [Action]) {
    guard roster.connections.contains(where: { !$0.isSound }), !isShuttingDown else { return }
    let hasUsable = roster.hasUsable
    for connection in roster.connections where !connection.isSound && connection.state != .connecting {
      if connection.inFlight == 0 {
        // Nothing can show any more that it works.
        guard connection.state == .ready, hasUsable || connection.health == .unresponsive else { continue }
        countEnd(connection.id, now)
        drain(connection.id, &actions)
      } else if connection.health == .unresponsive, hasUsable, mayAbandonAt <= now {
        mayAbandonAt = now + settings.abandonInterval
        countEnd(connection.id, now)
        roster.update(connection.id) { $0.state = .draining }
        actions.append(.abandon(connection.id))
      }
    }
  }

  /// Whether an unresponsive connection waits for its end.
  private var isAbandonmentPending: Bool {
    roster.connections.contains { $0.health == .unresponsive && $0.inFlight > 0 }
  }

  private func needsConnection(_ now: Instant) -> Bool {
    isStarted && !isShuttingDown
      && roster.needsAnother(
        waiting: waiting.count, lacksAlternative: lacksAlternative,
        lacksFresh: !hedges.isEmpty && lacksFreshConnection(now))
  }

  /// When a connection beyond the configured count has had its time; nil while there is none.
  private var surplusEnds: Instant? {
    roster.hasSurplus && !isShuttingDown ? lastDoubtAt + settings.replacementTime : nil
  }

  private mutating func drainSurplus(_ now: Instant, _ actions: inout [Action]) {
    while let end = surplusEnds, end <= now, let index = roster.leastBusy { drain(roster[index].id, &actions) }
  }

  private mutating func openIfNeeded(_ now: Instant, _ actions: inout [Action]) {
    guard needsConnection(now), limiter.mayOpenAt <= now else { return }
    if !hedges.isEmpty { lastDoubtAt = now }  // it stays as long as one opened for a doubt
    roster.add(nextConnection, now)
    actions.append(.open(nextConnection))
    nextConnection += 1
    lacksAlternative = false
  }

  private mutating func askToBeWoken(_ now: Instant, _ actions: inout [Action]) {
    var next = waiting.isEmpty && hedges.isEmpty ? Instant.distantFuture : earliestGiveUp
    if limiter.mayOpenAt > now, needsConnection(now) { next = min(next, limiter.mayOpenAt) }
    if mayAbandonAt > now, isAbandonmentPending { next = min(next, mayAbandonAt) }
    if let end = surplusEnds { next = min(next, end) }
    if let end = roster.earliestPauseEnd { next = min(next, end) }
    guard next < wakeAt else { return }
    wakeAt = next
    actions.append(.wake(next))
  }
}
