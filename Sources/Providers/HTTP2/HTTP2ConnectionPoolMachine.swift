// Makes every decision of a pool of HTTP/2 connections: events in, actions out, no clock, no socket.
//
// A request is waiting or in flight. It waits while no connection has room and goes to the connection with the most room. If the
// server certainly did not process it, it returns to the front of the queue. It gives up at `giveUpAt` at the latest.
//
// A connection is connecting, ready or draining. `ReconnectLimiter` decides how early the next connection may be opened. One is
// opened when no usable one is left, when more than three quarters of all streams would be in use, and when a request had to use
// the connection that it wanted to avoid. First tries do not wait long for a connection that is being made, or whose only stream is
// taken: another is opened beside it. Repeats wait behind all first tries, and get no connection so.
//
// A hedge never uses the connection of the request that it hedges. It uses the connection with the latest sign of life. If no
// connection showed a recent one, another is opened for the hedge, even above the configured count.
//
// A connection is in doubt if its health is, if it loses requests, or if the hedge of one of its requests was answered first. It
// takes no new requests while there is another connection or one can be opened. If no sound connection is left, another is opened
// at once, even above the configured count, so that it is ready for the requests that the doubtful connection loses. A connection
// that answers PINGs but no requests is never closed, because the provider may only be slow: it takes no new requests, and is drained
// when it has none left. Until then, one request at a time tests it: the provider may leave only some requests without an answer. If no
// usable connection is left and there are as many as allowed, an unresponsive one makes place for another, at most once in
// `answerTimeout`.

internal import Runtime

/// The pure part of `HTTP2ConnectionPool`.
struct HTTP2ConnectionPoolMachine {
  typealias ConnectionID = Int
  /// The owner's number for a request. A small number, because it is an index of `requests`.
  typealias RequestID = Int

  enum Event: Equatable {
    case started
    /// A new request, the connection that it avoids if another has room, and whether its push was sent before.
    case submitted(RequestID, deadline: Instant, avoiding: ConnectionID?, isRepeat: Bool)
    /// The first request is a hedge of the second, which is in flight. The hedge is to use another connection.
    case hedged(RequestID, of: RequestID, deadline: Instant)
    /// The hedge of a request has been answered; the request has not.
    case overtaken(RequestID)
    /// The given requests that still wait must not be sent.
    case withdrawn(Set<RequestID>)
    /// A connection became ready, or the server changed its limit.
    case limited(ConnectionID, streamsMax: Int)
    /// The health of a connection has changed.
    case healthChanged(ConnectionID, HTTP2ConnectionHealth)
    /// A request got an answer with this effect.
    case answered(RequestID, ConnectionID, HTTP2ConnectionPool.ExchangeEffect)
    /// A request was certainly not processed.
    case refused(RequestID, ConnectionID)
    /// A request ended in another way. `isLost`: it got no answer although its connection stays open.
    case failed(RequestID, ConnectionID, isLost: Bool)
    /// The connection takes no new requests and will close.
    case goingAway(ConnectionID)
    case closed(ConnectionID)
    /// No request is sent until `resumed`.
    case paused
    case resumed
    /// The cause of failed connections may have been fixed.
    case retried
    /// The instant requested by `wake` has come.
    case woken
    case shutDown
    /// The requests still in flight have no more time.
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
    case close(ConnectionID)
    case wake(Instant)
    case reportCapacity(Int)
    /// Shutdown is complete: no connection is left.
    case finish
  }

  private struct Request {
    var deadline: Instant
    var giveUpAt: Instant
    var avoided: ConnectionID?
    /// The connection to which the request was last dispatched.
    var connection: ConnectionID?
    /// The request that it hedges; nil if it is not a hedge.
    var hedged: RequestID?
    /// Whether it was withdrawn while it was in flight. It is not sent again.
    var isWithdrawn = false
  }

  private let settings: HTTP2ConnectionPoolSettings
  private var roster: HTTP2ConnectionPoolRoster
  private var limiter: ReconnectLimiter
  private var nextConnection = 0
  private var requests: [Request] = []
  private var waiting = WaitingLine<RequestID>()
  /// Hedges that wait for a connection. They have a list of their own so that they do not block other waiting requests, which can
  /// use connections that a hedge cannot.
  private var hedges: [RequestID] = []
  /// No waiting request gives up earlier.
  private var earliestGiveUp = Instant.distantFuture
  private var wakeAt = Instant.distantFuture
  private var reportedCapacity = 0
  /// When the next unresponsive connection may make place for another.
  private var mayMakePlaceAt = Instant(nanoseconds: .min)
  /// Whether a request had to use the connection that it wanted to avoid.
  private var lacksAlternative = false
  private var isStarted = false
  private var isPaused = false
  private var isShuttingDown = false

  /// - Parameter seed: the seed of the jitter.
  init(settings: HTTP2ConnectionPoolSettings, seed: UInt64) {
    self.settings = settings
    roster = HTTP2ConnectionPoolRoster(settings: settings)
    limiter = ReconnectLimiter(settings: settings, seed: seed)
  }

  /// Number of requests that wait for a stream.
  var waitingCount: Int { waiting.count }

  /// Number of connections being opened.
  var connectingCount: Int { roster.connections.count { $0.state == .connecting } }
  /// Number of all other connections.
  var openCount: Int { roster.connections.count - connectingCount }

  /// Whether a connection loses requests, or answers later than the hedge did.
  func losesRequests(_ id: ConnectionID) -> Bool {
    roster.index(of: id).map { roster[$0].trouble >= .overtaken } ?? false
  }

  /// The deadline of a request that is in the pool.
  func deadline(of request: RequestID) -> Instant { requests[request].deadline }

  /// Processes one event and appends the resulting actions in order.
  mutating func handle(_ event: Event, now: Instant, _ actions: inout [Action]) {
    switch event {
    case .started: isStarted = true
    case .submitted(let request, let deadline, let avoided, let isRepeat):
      submit(request, deadline, avoided, isRepeat: isRepeat, now, &actions)
    case .hedged(let hedge, let request, let deadline): self.hedge(request, by: hedge, deadline, now, &actions)
    case .overtaken(let request):
      if let id = requests[request].connection { roster.update(id) { $0.didOvertake() } }
    case .withdrawn(let requests): withdraw(requests, &actions)
    case .limited(let id, let streamsMax):
      roster.update(id) {
        if $0.state == .connecting { ($0.state, $0.busyUntil) = (.ready, now) }
        $0.streamsMax = streamsMax
        $0.heardAt = now
      }
    case .healthChanged(let id, let health):
      roster.update(id) { $0.setHealth(health) }
    case .answered(let request, let id, let effect): answered(request, id, effect, now, &actions)
    case .refused(let request, let id):
      let pause = now + settings.refusalPause
      roster.update(id) {
        $0.inFlight -= 1
        $0.busyUntil = now
        if $0.state == .ready { $0.pausedUntil = pause }
      }
      putBack(request, now, &actions)
    case .failed(let request, let id, let isLost):
      roster.update(id) { $0.didFail(isLost: isLost, now) }
      refuseHedge(of: request, &actions)
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
    _ request: RequestID, _ deadline: Instant, _ avoided: ConnectionID?, isRepeat: Bool, _ now: Instant,
    _ actions: inout [Action]
  ) {
    guard !isShuttingDown else { return actions.append(.refuse(request, reason: "ShuttingDown")) }
    guard deadline > now else { return actions.append(.expire(request)) }
    guard waiting.count < settings.waitingMax else {
      return actions.append(.refuse(request, reason: "TooManyWaiting"))
    }
    let entry = Request(deadline: deadline, giveUpAt: min(deadline, now + settings.waitTimeout), avoided: avoided)
    note(request, entry)
    if isRepeat { waiting.appendLast(request) } else { waiting.append(request) }
  }

  private mutating func hedge(
    _ request: RequestID, by hedge: RequestID, _ deadline: Instant, _ now: Instant, _ actions: inout [Action]
  ) {
    guard !isShuttingDown, deadline > now, let connection = requests[request].connection else {
      return actions.append(.refuse(hedge, reason: "NotHedged"))
    }
    // It waits as long as its request does. A connection may become usable at any time.
    note(hedge, Request(deadline: deadline, giveUpAt: deadline, avoided: connection, hedged: request))
    hedges.append(hedge)
  }

  /// Refuses the hedge that still waits when its request is no longer in flight. What is sent next is for the owner to decide.
  private mutating func refuseHedge(of request: RequestID, _ actions: inout [Action]) {
    guard let index = hedges.firstIndex(where: { requests[$0].hedged == request }) else { return }
    actions.append(.refuse(hedges.remove(at: index), reason: "NotHedged"))
  }

  private mutating func note(_ request: RequestID, _ entry: Request) {
    while requests.count <= request { requests.append(entry) }
    requests[request] = entry
    earliestGiveUp = min(earliestGiveUp, entry.giveUpAt)
  }

  private mutating func withdraw(_ withdrawn: Set<RequestID>, _ actions: inout [Action]) {
    for request in withdrawn where request < requests.count { requests[request].isWithdrawn = true }
    let gone = waiting.remove(where: withdrawn.contains) + hedges.filter(withdrawn.contains)
    for request in gone { actions.append(.refuse(request, reason: "Withdrawn")) }
    hedges.removeAll(where: withdrawn.contains)
  }

  private mutating func answered(
    _ request: RequestID, _ id: ConnectionID, _ effect: HTTP2ConnectionPool.ExchangeEffect, _ now: Instant,
    _ actions: inout [Action]
  ) {
    var becameWorn = false
    roster.update(id) {
      $0.didAnswer(now)
      switch effect.connection {
      case .proven where !$0.isProven: $0.record = .proven
      case .proven, .unproven: break
      case .worn:
        becameWorn = $0.state == .ready
        $0.state = .draining
      }
    }
    if effect.connection == .proven { limiter.didWork() }
    if becameWorn {
      if roster.index(of: id).map({ roster[$0].isProven }) == true { countEnd(id, now) } else { limiter.didFail(now) }
      actions.append(.drain(id))
    }
    if effect.resends { putBack(request, now, &actions) }
  }

  private mutating func closed(_ id: ConnectionID, _ now: Instant) {
    countIdleEnd(id, now)
    countEnd(id, now)
    guard let connection = roster.remove(id), connection.record == .unproven, !isShuttingDown else { return }
    // A connection that was never ready has failed, however long it took.
    if connection.state == .connecting || connection.openedAt + settings.stableAfter > now {
      limiter.didFail(wasReady: connection.state != .connecting, atRequest: connection.trouble > .none, now)
    }
  }

  /// Counts the end of a connection that was ready and idle for a while. Peers close idle connections, so this is not a failure.
  private mutating func countIdleEnd(_ id: ConnectionID, _ now: Instant) {
    guard let index = roster.index(of: id), !isShuttingDown else { return }
    let connection = roster[index]
    guard connection.state == .ready, connection.record != .counted, connection.inFlight == 0,
      connection.busyUntil + settings.idleAfter <= now
    else { return }
    roster[index].record = .counted
    if connection.openedAt + settings.stableAfter > now { limiter.didEndIdle(now) }
  }

  /// Counts the end of a connection that has worked. The connection has ended or ends after at most `pending` more answers.
  ///
  /// - Parameter atRequest: whether it is given up because of its requests.
  private mutating func countEnd(_ id: ConnectionID, pending: Int = 0, atRequest: Bool = false, _ now: Instant) {
    guard let index = roster.index(of: id), roster[index].record == .proven else { return }
    let isEarly = limiter.didEnd(
      openedAt: roster[index].openedAt, answers: roster[index].answers + pending,
      atRequest: atRequest || roster[index].trouble > .none, owesNothing: roster[index].inFlight == 0, now)
    if isEarly { roster[index].record = .counted }
  }

  private mutating func shutDown(_ actions: inout [Action]) {
    guard !isShuttingDown else { return }
    isShuttingDown = true
    while let request = waiting.popFirst() { actions.append(.refuse(request, reason: "ShuttingDown")) }
    for hedge in hedges { actions.append(.refuse(hedge, reason: "ShuttingDown")) }
    hedges = []
    for connection in roster.connections where connection.state != .draining { drain(connection.id, &actions) }
  }

  /// Puts a request back at the front of the line if it has time left.
  private mutating func putBack(_ request: RequestID, _ now: Instant, _ actions: inout [Action]) {
    if isShuttingDown { return actions.append(.refuse(request, reason: "ShuttingDown")) }
    refuseHedge(of: request, &actions)
    if requests[request].isWithdrawn { return actions.append(.refuse(request, reason: "Withdrawn")) }
    guard requests[request].giveUpAt > now else { return giveUp(request, now, &actions) }
    // The hedged request is still in flight. That is enough.
    if requests[request].hedged != nil { return actions.append(.refuse(request, reason: "NotHedged")) }
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
    roster.endTests(now)
    if earliestGiveUp <= now { giveUpLate(now, &actions) }
    leaveUnhealthy(now, &actions)
    makePlace(now, &actions)
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
    let requests = requests
    var next = Instant.distantFuture
    func isLate(_ request: RequestID) -> Bool {
      let giveUpAt = requests[request].giveUpAt
      if giveUpAt > now { next = min(next, giveUpAt) }
      return giveUpAt <= now
    }
    for request in waiting.remove(where: isLate) + hedges.filter(isLate) { giveUp(request, now, &actions) }
    hedges.removeAll(where: isLate)
    earliestGiveUp = next
  }

  private func giveUp(_ request: RequestID, _ now: Instant, _ actions: inout [Action]) {
    let isExpired = requests[request].deadline <= now
    actions.append(isExpired ? .expire(request) : .refuse(request, reason: "NoConnection"))
  }

  private mutating func dispatch(_ now: Instant, _ actions: inout [Action]) {
    guard !isPaused else { return }
    while let request = waiting.first, let choice = roster.roomiest(avoiding: requests[request].avoided) {
      if choice.isDoubtful, mayHopeForAnother(now) { return }
      _ = waiting.popFirst()
      let id = roster[choice.index].id
      if id == requests[request].avoided { lacksAlternative = true }
      dispatch(request, choice.index, now, &actions)
    }
  }

  private mutating func dispatch(_ request: RequestID, _ index: Int, _ now: Instant, _ actions: inout [Action]) {
    roster[index].didDispatch(now)
    requests[request].connection = roster[index].id
    actions.append(.dispatch(request, roster[index].id))
  }

  /// Dispatches the waiting hedges. A connection without a recent sign of life may be as dead as the one that does not answer, so
  /// another is opened before such a connection is used.
  private mutating func dispatchHedges(_ now: Instant, _ actions: inout [Action]) {
    guard !isPaused else { return }
    let waits =
      roster.isConnecting(now) || lacksFreshConnection(now) && needsConnection(now) && limiter.mayOpenAt <= now
    for hedge in hedges {
      let index = roster.lastHeard(besides: requests[hedge].avoided)
      guard let index, roster[index].heardAt >= freshSince(now) || !waits else { continue }
      hedges.removeAll { $0 == hedge }
      dispatch(hedge, index, now, &actions)
    }
  }

  private func freshSince(_ now: Instant) -> Instant { now - settings.connection.liveness.idleBeforePing }

  /// Whether a hedge waits and no connection other than that of its request showed a recent sign of life.
  private func lacksFreshConnection(_ now: Instant) -> Bool {
    hedges.contains { !roster.hasHeard(besides: requests[$0].avoided, since: freshSince(now)) }
  }

  /// Whether a request should wait for another connection rather than use one that is in doubt.
  private func mayHopeForAnother(_ now: Instant) -> Bool {
    if roster.isConnecting(now) { return true }
    return switch lack(now) {
    case .nothing: roster.hasUsable
    case .connection: roster.hasUsable || limiter.mayOpenAt <= now
    case .place: false
    }
  }

  /// Drains idle connections that are in doubt.
  private mutating func leaveUnhealthy(_ now: Instant, _ actions: inout [Action]) {
    guard roster.connections.contains(where: { !$0.isSound }), !isShuttingDown else { return }
    let hasUsable = roster.hasUsable
    for connection in roster.connections
    where !connection.isSound && connection.state == .ready && connection.inFlight == 0 {
      // No answer can come that would show that it works.
      guard hasUsable || connection.health == .unresponsive else { continue }
      countEnd(connection.id, now)
      drain(connection.id, &actions)
    }
  }

  /// Lets an unresponsive connection take no new requests, so that another can be opened in its place. All connections may have lost
  /// their servers while a new one would get servers that work.
  private mutating func makePlace(_ now: Instant, _ actions: inout [Action]) {
    guard mayMakePlaceAt <= now, let index = roster.leastHopeful, lack(now) == .place else { return }
    mayMakePlaceAt = now + settings.connection.liveness.answerTimeout
    countEnd(roster[index].id, atRequest: true, now)
    drain(roster[index].id, &actions)
  }

  private func needsConnection(_ now: Instant) -> Bool { lack(now) == .connection }

  private func lack(_ now: Instant) -> HTTP2ConnectionPoolRoster.Lack {
    guard isStarted, !isShuttingDown else { return .nothing }
    return roster.lack(
      waiting: waiting.count, areTriesWaiting: waiting.hasFirst, lacksAlternative: lacksAlternative,
      lacksFresh: !hedges.isEmpty && lacksFreshConnection(now), now)
  }

  /// Drains connections above the configured count that nobody has needed for long.
  private mutating func drainSurplus(_ now: Instant, _ actions: inout [Action]) {
    while !isShuttingDown, let index = roster.surplus(now) { drain(roster[index].id, &actions) }
  }

  private mutating func openIfNeeded(_ now: Instant, _ actions: inout [Action]) {
    guard needsConnection(now), limiter.mayOpenAt <= now else { return }
    roster.add(nextConnection, now)
    actions.append(.open(nextConnection))
    nextConnection += 1
    lacksAlternative = false
  }

  private mutating func askToBeWoken(_ now: Instant, _ actions: inout [Action]) {
    var next = waiting.isEmpty && hedges.isEmpty ? Instant.distantFuture : earliestGiveUp
    if limiter.mayOpenAt > now, needsConnection(now) { next = min(next, limiter.mayOpenAt) }
    if mayMakePlaceAt > now, roster.leastHopeful != nil, lack(now) == .place { next = min(next, mayMakePlaceAt) }
    if let end = roster.earliestPauseEnd { next = min(next, end) }
    if !waiting.isEmpty {
      next = min(next, roster.earliestTestEnd ?? next, roster.earliestBlock(after: now) ?? next)
    }
    guard next < wakeAt else { return }
    wakeAt = next
    actions.append(.wake(next))
  }
}
