// The connections of a pool as its machine knows them, and queries over all of them.

internal import Runtime

/// The connections of one pool, in the order in which they were opened.
struct HTTP2ConnectionPoolRoster {
  enum State {
    case connecting
    case ready
    case draining
  }

  /// What its requests have shown since its last answer. Later cases include what the earlier ones mean.
  enum Trouble: Int, Comparable {
    case none
    /// A request failed.
    case failed
    /// The hedge of one of its requests was answered first.
    case overtaken
    /// It lost the last two requests, or lost the last request while no other was in flight whose answer could show that it works. If it
    /// has answered no request yet, the first loss does not count. Otherwise a provider that loses the first request of each
    /// connection would never get a second request.
    case losing

    static func < (left: Self, right: Self) -> Bool { left.rawValue < right.rawValue }
  }

  struct Connection {
    let id: HTTP2ConnectionPoolMachine.ConnectionID
    let openedAt: Instant

    init(id: HTTP2ConnectionPoolMachine.ConnectionID, openedAt: Instant) {
      self.id = id
      self.openedAt = openedAt
    }

    var state = State.connecting
    var streamsMax = 0
    var inFlight = 0
    /// Number of answered requests.
    var answers = 0
    /// Whether it has given an authorised answer; or that the `ReconnectLimiter` has counted its end already.
    enum Record { case unproven, proven, counted }
    var record = Record.unproven
    var isProven: Bool { record != .unproven }
    /// When it became ready or last answered a request.
    var heardAt = Instant(nanoseconds: .min)
    /// When it became ready or its last request ended.
    var busyUntil = Instant(nanoseconds: .min)
    private(set) var health = HTTP2ConnectionHealth.sound
    /// While it answers only PINGs: number of requests in flight from before, and of those that have tested it in vain since.
    private var stuck = 0
    /// When a request was last sent.
    private(set) var dispatchedAt = Instant(nanoseconds: .min)
    /// Number of requests since the last answer that got no answer while the connection stayed open.
    private var lossesInARow = 0
    private(set) var trouble = Trouble.none
    var pausedUntil: Instant?

    var isSound: Bool { health == .sound && trouble < .overtaken }
    var isUsable: Bool { state == .ready && isSound && streamsMax > 0 }

    mutating func setHealth(_ health: HTTP2ConnectionHealth) {
      self.health = health
      stuck = inFlight
    }

    mutating func didDispatch(_ now: Instant) {
      inFlight += 1
      dispatchedAt = now
    }

    /// Whether a request tests whether it answers any.
    var isTested: Bool { answersOnlyPings && inFlight > stuck }

    private var answersOnlyPings: Bool { health == .unanswered || health == .unresponsive }

    /// The test got no answer in time, so another request may try.
    mutating func endTest() { stuck = inFlight }

    mutating func didAnswer(_ now: Instant) {
      inFlight -= 1
      answers += 1
      heardAt = now
      busyUntil = now
      (lossesInARow, trouble) = (0, .none)
    }

    /// - Parameter isLost: whether the request ended without an answer while the connection stays open.
    mutating func didFail(isLost: Bool, _ now: Instant) {
      inFlight -= 1
      busyUntil = now
      trouble = max(trouble, .failed)
      guard isLost else { return }
      lossesInARow += 1
      if lossesInARow > 1 || isProven && inFlight == 0 { trouble = .losing }
    }

    mutating func didOvertake() { trouble = max(trouble, .overtaken) }

    /// Number of further requests that the connection takes now.
    func room(probes: Bool) -> Int {
      guard state == .ready, pausedUntil == nil else { return 0 }
      return limit(probes: probes) - inFlight
    }

    /// Maximum number of requests in flight. A connection in doubt takes a single request, which tests it. One that answers PINGs
    /// takes it beside those that it has not answered: they may be the only ones that get no answer.
    func limit(probes: Bool) -> Int {
      if answersOnlyPings { return min(streamsMax, min(stuck, inFlight) + 1) }
      return !isSound || (probes && !isProven) ? min(streamsMax, 1) : streamsMax
    }

    /// What it adds to the capacity of the pool.
    func capacity(probes: Bool) -> Int { isSound ? limit(probes: probes) : min(streamsMax, 1) }
  }

  /// A connection with room for a request.
  struct Choice {
    var index: Int
    /// Whether it is in doubt. No sound connection has room then.
    var isDoubtful: Bool
  }

  /// What the pool lacks.
  enum Lack {
    case nothing
    /// Another connection should be opened.
    case connection
    /// No connection is usable, except those that may be blocked by a request without an answer, and there are as many as allowed.
    case place
  }

  private let settings: HTTP2ConnectionPoolSettings
  private(set) var connections: [Connection] = []

  init(settings: HTTP2ConnectionPoolSettings) {
    self.settings = settings
  }

  var isEmpty: Bool { connections.isEmpty }

  subscript(index: Int) -> Connection {
    get { connections[index] }
    _modify { yield &connections[index] }
  }

  mutating func add(_ id: HTTP2ConnectionPoolMachine.ConnectionID, _ now: Instant) {
    connections.append(Connection(id: id, openedAt: now))
  }

  mutating func remove(_ id: HTTP2ConnectionPoolMachine.ConnectionID) -> Connection? {
    guard let index = index(of: id) else { return nil }
    return connections.remove(at: index)
  }

  func index(of id: HTTP2ConnectionPoolMachine.ConnectionID) -> Int? {
    for index in connections.indices where connections[index].id == id { return index }
    return nil
  }

  /// Changes a connection, if it is still there.
  mutating func update(_ id: HTTP2ConnectionPoolMachine.ConnectionID, _ change: (inout Connection) -> Void) {
    guard let index = index(of: id) else { return }
    change(&connections[index])
  }

  // MARK: - All of them

  // These run several times a request. They go by index because a loop over the elements would copy each of them.

  /// Maximum number of requests in flight. A connection in doubt counts as one.
  var capacity: Int {
    connections.indices.reduce(0) { sum, index in
      connections[index].state == .ready ? sum + connections[index].capacity(probes: settings.probes) : sum
    }
  }

  /// When the earliest test of a connection that answers only PINGs is over.
  var earliestTestEnd: Instant? {
    connections.indices.lazy.filter { connections[$0].isTested }.map { testEnd($0) }.min()
  }

  mutating func endTests(_ now: Instant) {
    for index in connections.indices where connections[index].isTested && testEnd(index) <= now {
      connections[index].endTest()
    }
  }

  /// When the next connection that is being made, or whose only stream is taken, is not waited for any more; nil if there is none.
  func earliestBlock(after now: Instant) -> Instant? {
    connections.indices.lazy.compactMap { blockedAt($0) }.filter { $0 > now }.min()
  }

  private func isProbing(_ index: Int) -> Bool {
    guard settings.probes, connections[index].state == .ready else { return false }
    return !connections[index].isProven && connections[index].inFlight > 0
  }

  /// When requests wait no longer for a connection that has no stream for them yet; nil for others.
  private func blockedAt(_ index: Int) -> Instant? {
    if connections[index].state == .connecting { return connections[index].openedAt + settings.connectPatience }
    return isProbing(index) ? connections[index].dispatchedAt + settings.probeTimeout : nil
  }

  private func isBlocked(_ index: Int, _ now: Instant) -> Bool { blockedAt(index).map { $0 <= now } ?? false }

  private func testEnd(_ index: Int) -> Instant {
    connections[index].dispatchedAt + settings.connection.liveness.answerTimeout
  }

  /// Whether a connection is being made that requests should wait for.
  func isConnecting(_ now: Instant) -> Bool {
    connections.indices.contains { connections[$0].state == .connecting && !isBlocked($0, now) }
  }

  var hasUsable: Bool { connections.contains { $0.isUsable } }

  /// The earliest end of a pause.
  var earliestPauseEnd: Instant? { connections.indices.lazy.compactMap { connections[$0].pausedUntil }.min() }

  mutating func endPauses(_ now: Instant) {
    for index in connections.indices {
      if let until = connections[index].pausedUntil, until <= now { connections[index].pausedUntil = nil }
    }
  }

  /// The connection with the most room. The avoided one is chosen only if no other sound one has room, and one in doubt only if no
  /// sound one has room.
  func roomiest(avoiding avoided: HTTP2ConnectionPoolMachine.ConnectionID?) -> Choice? {
    var best: (index: Int, room: Int)?
    var lastResort: Int?
    var doubtful: Int?
    for index in connections.indices {
      let room = connections[index].room(probes: settings.probes)
      guard room > best?.room ?? 0 else { continue }
      if !connections[index].isSound {
        doubtful = index
      } else if connections[index].id == avoided {
        lastResort = index
      } else {
        best = (index, room)
      }
    }
    if let index = best?.index ?? lastResort { return Choice(index: index, isDoubtful: false) }
    return doubtful.map { Choice(index: $0, isDoubtful: true) }
  }

  /// The sound connection with room and the latest sign of life.
  func lastHeard(besides avoided: HTTP2ConnectionPoolMachine.ConnectionID?) -> Int? {
    connections.indices
      .filter {
        connections[$0].isUsable && connections[$0].id != avoided && connections[$0].room(probes: settings.probes) > 0
      }
      .max { connections[$0].heardAt < connections[$1].heardAt }
  }

  /// Whether a sound connection, with room or without, showed a sign of life since then.
  func hasHeard(besides avoided: HTTP2ConnectionPoolMachine.ConnectionID?, since: Instant) -> Bool {
    connections.contains { $0.isUsable && $0.id != avoided && $0.heardAt >= since }
  }

  /// What the pool lacks.
  ///
  /// - Parameters:
  ///   - waiting: number of requests that wait for a stream.
  ///   - areTriesWaiting: whether there are some among them whose pushes were not sent before.
  ///   - lacksAlternative: whether a request had to use the connection that it wanted to avoid.
  ///   - lacksFresh: whether a hedge finds no connection with a recent sign of life.
  func lack(waiting: Int, areTriesWaiting: Bool, lacksAlternative: Bool, lacksFresh: Bool, _ now: Instant) -> Lack {
    var total = 0
    // The request that proves a connection may get no answer, or a slow one, and the packets of a new connection may be lost. First
    // tries do not wait for that.
    var blocked = 0
    var usable = 0
    var streams = 0
    var inFlight = 0
    for index in connections.indices where connections[index].state != .draining {
      total += 1
      if areTriesWaiting, isBlocked(index, now) {
        blocked += 1
        continue
      }
      guard connections[index].state == .ready else { return .nothing }  // one at a time
      guard connections[index].isUsable else { continue }
      usable += 1
      streams += connections[index].streamsMax
      inFlight += connections[index].inFlight
    }
    let most = settings.connectionsMax + settings.replacementsMax
    guard total < most + min(blocked, most) else {
      return usable == 0 ? .place : .nothing
    }
    if usable == 0 || lacksFresh { return .connection }
    let isFull = lacksAlternative || (inFlight + waiting) * 4 > streams * 3
    return usable < settings.connectionsMax && isFull ? .connection : .nothing
  }

  /// The unresponsive connection whose place another can use best: the oldest of those that never worked, because they may have no
  /// stream left for a test; otherwise the oldest.
  var leastHopeful: Int? {
    let unresponsive = connections.indices.filter {
      connections[$0].state == .ready && connections[$0].health == .unresponsive
    }
    return unresponsive.first { !connections[$0].isProven } ?? unresponsive.first
  }

  /// A sound connection that had no request for long, if there are more sound ones than configured.
  func surplus(_ now: Instant) -> Int? {
    guard connections.count > settings.connectionsMax, connections.count(where: \.isUsable) > settings.connectionsMax
    else { return nil }
    return connections.firstIndex {
      $0.isUsable && $0.inFlight == 0 && $0.busyUntil + settings.surplusTime <= now
    }
  }
}
