// Every decision of a pool of HTTP/2 connections, and nothing else: events in, actions out, no clock, no socket.
//
// A request is waiting or in flight. It waits while no connection has room, goes to the connection with the most room,
// and comes back to the front of the queue when the server certainly did not process it; that costs nothing but time,
// of which every request has until `giveUpAt`. A connection is connecting, ready or draining. A new one is opened when
// none is left, and when three quarters of the streams there are would be in use; after a failure not before the
// backoff allows; and when a request would rather not have the only one there is.

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
    /// A connection became ready, or the server changed its limit.
    /// Those of them that wait are not to be sent any more.
    case withdrawn(Set<RequestID>)
    case limited(ConnectionID, streamsMax: Int)
    /// A request got its answer, which says this about the connection.
    case answered(RequestID, ConnectionID, HTTP2ConnectionPool.Verdict)
    /// A request was certainly not processed.
    case refused(RequestID, ConnectionID)
    /// A request ended in another way.
    case failed(RequestID, ConnectionID)
    /// The connection takes no new requests and will close.
    case goingAway(ConnectionID)
    case closed(ConnectionID)
    /// Nothing leaves until `resumed`.
    case paused
    case resumed
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
    case close(ConnectionID)
    case wake(Instant)
    case reportCapacity(Int)
    /// Shut down; nothing is left.
    case finish
  }

  private enum State {
    case connecting
    case ready
    case draining
  }

  private struct Connection {
    let id: ConnectionID
    var state = State.connecting
    var openedAt: Instant
    var streamsMax = 0
    var inFlight = 0
    var isProven = false
    var pausedUntil: Instant?

    /// How many more requests the connection takes.
    func room(probes: Bool) -> Int {
      guard state == .ready, pausedUntil == nil else { return 0 }
      return limit(probes: probes) - inFlight
    }

    func limit(probes: Bool) -> Int {
      probes && !isProven ? min(streamsMax, 1) : streamsMax
    }
  }

  private struct Request {
    var deadline: Instant
    var giveUpAt: Instant
    var avoided: ConnectionID?
  }

  private let settings: HTTP2ConnectionPoolSettings
  private var random: SplitMix64
  private var connections: [Connection] = []
  private var nextConnection = 0
  private var requests: [Request] = []
  private var waiting = HTTP2ConnectionPoolWaitingLine()
  /// No waiting request gives up earlier.
  private var earliestGiveUp = Instant.distantFuture
  private var failures = 0
  private var mayOpenAt = Instant(nanoseconds: .min)
  private var wakeAt = Instant.distantFuture
  private var reportedCapacity = 0
  /// A request had to take the connection it would rather not have had.
  private var lacksAlternative = false
  private var isStarted = false
  private var isPaused = false
  private var isShuttingDown = false

  /// - Parameter seed: where the jitter starts.
  init(settings: HTTP2ConnectionPoolSettings, seed: UInt64) {
    self.settings = settings
    random = SplitMix64(state: seed)
  }

  /// How many requests wait for a stream.
  var waitingCount: Int { waiting.count }

  /// How many connections are being made.
  var connectingCount: Int { connections.count { $0.state == .connecting } }
  /// How many connections there are beside those.
  var openCount: Int { connections.count - connectingCount }

  /// The deadline of a request that is in the pool.
  func deadline(of request: RequestID) -> Instant { requests[request].deadline }

  /// Takes one event in and appends what is to be done about it, in order.
  mutating func handle(_ event: Event, now: Instant, _ actions: inout [Action]) {
    switch event {
    case .started: isStarted = true
    case .submitted(let request, let deadline, let avoided): submit(request, deadline, avoided, now, &actions)
    case .withdrawn(let requests): withdraw(requests, &actions)
    case .limited(let id, let streamsMax):
      update(id) {
        if $0.state == .connecting { $0.state = .ready }
        $0.streamsMax = streamsMax
      }
    case .answered(let request, let id, let verdict): answered(request, id, verdict, now, &actions)
    case .refused(let request, let id):
      let pause = now + settings.refusalPause
      update(id) {
        $0.inFlight -= 1
        if $0.state == .ready { $0.pausedUntil = pause }
      }
      putBack(request, now, &actions)
    case .failed(_, let id): update(id) { $0.inFlight -= 1 }
    case .goingAway(let id): update(id) { $0.state = .draining }
    case .closed(let id): closed(id, now)
    case .paused: isPaused = true
    case .resumed: isPaused = false
    case .woken:
      if wakeAt <= now { wakeAt = .distantFuture }
    case .shutDown: shutDown(&actions)
    case .shutDownDeadline:
      for connection in connections { actions.append(.close(connection.id)) }
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
    while requests.count <= request { requests.append(entry) }
    requests[request] = entry
    waiting.append(request)
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
  }

  private mutating func answered(
    _ request: RequestID, _ id: ConnectionID, _ verdict: HTTP2ConnectionPool.Verdict, _ now: Instant,
    _ actions: inout [Action]
  ) {
    var becameWorn = false
    var wasProven = false
    update(id) {
      $0.inFlight -= 1
      wasProven = $0.isProven
      switch verdict.connection {
      case .proven: $0.isProven = true
      case .unproven: break
      case .worn:
        becameWorn = $0.state == .ready
        $0.state = .draining
      }
    }
    if verdict.connection == .proven { failures = 0 }
    if becameWorn {
      if !wasProven { countFailure(now) }
      actions.append(.drain(id))
    }
    if verdict.resends { putBack(request, now, &actions) }
  }

  private mutating func closed(_ id: ConnectionID, _ now: Instant) {
    guard let index = connections.firstIndex(where: { $0.id == id }) else { return }
    let connection = connections.remove(at: index)
    // One that was never ready has failed however long it took.
    let wasGood =
      connection.isProven
      || (connection.state != .connecting && connection.openedAt + settings.stableAfter <= now)
    if !wasGood, !isShuttingDown { countFailure(now) }
  }

  private mutating func shutDown(_ actions: inout [Action]) {
    guard !isShuttingDown else { return }
    isShuttingDown = true
    while let request = waiting.popFirst() { actions.append(.refuse(request, reason: "ShuttingDown")) }
    for index in connections.indices where connections[index].state != .draining {
      connections[index].state = .draining
      actions.append(.drain(connections[index].id))
    }
  }

  /// Back to the front of the line, if there is time left.
  private mutating func putBack(_ request: RequestID, _ now: Instant, _ actions: inout [Action]) {
    if isShuttingDown { return actions.append(.refuse(request, reason: "ShuttingDown")) }
    guard !giveUpIfLate(request, now, &actions) else { return }
    waiting.prepend(request)
    earliestGiveUp = min(earliestGiveUp, requests[request].giveUpAt)
  }

  private mutating func countFailure(_ now: Instant) {
    failures += 1
    mayOpenAt = max(mayOpenAt, now + settings.backoff.delay(afterFailures: failures, random: random.next()))
  }

  // MARK: - After every event

  private mutating func settle(_ now: Instant, _ actions: inout [Action]) {
    endPauses(now)
    if earliestGiveUp <= now { giveUpLate(now, &actions) }
    dispatch(now, &actions)
    openIfNeeded(now, &actions)
    askToBeWoken(now, &actions)
    let capacity = self.capacity
    if capacity != reportedCapacity {
      reportedCapacity = capacity
      actions.append(.reportCapacity(capacity))
    }
    if isShuttingDown, connections.isEmpty { actions.append(.finish) }
  }

  private var capacity: Int {
    if isShuttingDown || isPaused { return 0 }
    return connections.reduce(0) { sum, connection in
      connection.state == .ready ? sum + connection.limit(probes: settings.probes) : sum
    }
  }

  private mutating func endPauses(_ now: Instant) {
    for index in connections.indices {
      if let until = connections[index].pausedUntil, until <= now { connections[index].pausedUntil = nil }
    }
  }

  private mutating func giveUpLate(_ now: Instant, _ actions: inout [Action]) {
    earliestGiveUp = .distantFuture
    var kept = HTTP2ConnectionPoolWaitingLine()
    while let request = waiting.popFirst() {
      if giveUpIfLate(request, now, &actions) { continue }
      kept.append(request)
      earliestGiveUp = min(earliestGiveUp, requests[request].giveUpAt)
    }
    waiting = kept
  }

  private func giveUpIfLate(_ request: RequestID, _ now: Instant, _ actions: inout [Action]) -> Bool {
    guard requests[request].giveUpAt <= now else { return false }
    let isExpired = requests[request].deadline <= now
    actions.append(isExpired ? .expire(request) : .refuse(request, reason: "NoConnection"))
    return true
  }

  private mutating func dispatch(_ now: Instant, _ actions: inout [Action]) {
    guard !isPaused else { return }
    while let request = waiting.first, let index = roomiest(avoiding: requests[request].avoided) {
      _ = waiting.popFirst()
      if connections[index].id == requests[request].avoided { lacksAlternative = true }
      connections[index].inFlight += 1
      actions.append(.dispatch(request, connections[index].id))
    }
  }

  /// The index of the connection with the most room, the avoided one only if no other has any; nil when none has.
  private func roomiest(avoiding avoided: ConnectionID?) -> Int? {
    var best: (index: Int, room: Int)?
    var lastResort: Int?
    for (index, connection) in connections.enumerated() {
      let room = connection.room(probes: settings.probes)
      guard room > best?.room ?? 0 else { continue }
      if connection.id == avoided { lastResort = index } else { best = (index, room) }
    }
    return best?.index ?? lastResort
  }

  private var needsConnection: Bool {
    guard isStarted, !isShuttingDown else { return false }
    var usable = 0
    var streams = 0
    var inFlight = 0
    for connection in connections where connection.state != .draining {
      guard connection.state == .ready else { return false }  // one at a time
      usable += 1
      streams += connection.streamsMax
      inFlight += connection.inFlight
    }
    if usable == 0 { return true }
    return usable < settings.connectionsMax && (lacksAlternative || (inFlight + waiting.count) * 4 > streams * 3)
  }

  private mutating func openIfNeeded(_ now: Instant, _ actions: inout [Action]) {
    guard needsConnection, mayOpenAt <= now else { return }
    connections.append(Connection(id: nextConnection, openedAt: now))
    actions.append(.open(nextConnection))
    nextConnection += 1
    lacksAlternative = false
  }

  private mutating func askToBeWoken(_ now: Instant, _ actions: inout [Action]) {
    var next = waiting.isEmpty ? Instant.distantFuture : earliestGiveUp
    if mayOpenAt > now, needsConnection { next = min(next, mayOpenAt) }
    for connection in connections {
      if let until = connection.pausedUntil { next = min(next, until) }
    }
    guard next < wakeAt else { return }
    wakeAt = next
    actions.append(.wake(next))
  }

  private mutating func update(_ id: ConnectionID, _ change: (inout Connection) -> Void) {
    guard let index = connections.firstIndex(where: { $0.id == id }) else { return }
    change(&connections[index])
  }
}

/// A small generator for jitter (Steele, Lea, Flood 2014).
private struct SplitMix64: RandomNumberGenerator {
  var state: UInt64
  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var mixed = state
    mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
    return mixed ^ (mixed >> 31)
  }
}
