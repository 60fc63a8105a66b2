// A pool of HTTP/2 connections to one endpoint. It carries out the decisions of `HTTP2ConnectionPoolMachine`.
//
// The same pool serves APNs (a thousand streams a connection, connections that live for days, one stream until the
// first authorised answer) and FCM (a hundred streams, GOAWAY every hour); only the settings differ.

public import Logging
public import Runtime

/// The owner of a pool. All methods are called on the pool's loop.
public protocol HTTP2ConnectionPoolDelegate: AnyObject {
  /// Writes the head of a request and returns its body.
  ///
  /// Called when a connection has room, and again each time the request is sent again. The request therefore carries the
  /// credentials and the remaining time of that moment.
  func pool(
    _ pool: HTTP2ConnectionPool, write request: Int, at now: Instant, into head: inout HTTP2RequestHead
  ) -> [UInt8]
  /// A request ended. Called once for each `submit` and `hedge`, and once more for each resend that the returned effect asks for.
  ///
  /// - Parameter connection: the number of the connection on which the request ended; nil if it was on none.
  func pool(
    _ pool: HTTP2ConnectionPool, didEnd request: Int, _ exchange: HTTP2Exchange, on connection: Int?
  ) -> HTTP2ConnectionPool.ExchangeEffect
  /// A request was refused before it was processed, and waits again, or ends.
  func pool(_ pool: HTTP2ConnectionPool, didTakeBack request: Int)
  /// Whether a request may be written now. Asked only while one of the pool's permits has lapsed.
  func pool(_ pool: HTTP2ConnectionPool, maySend request: Int, at now: Instant) -> Bool
  /// Reports the maximum number of requests in flight; 0 while no connection is usable. Called at the end of a turn.
  func pool(_ pool: HTTP2ConnectionPool, capacityDidChange capacity: Int)
  /// The server sent GOAWAY on a connection, with this reason.
  func pool(_ pool: HTTP2ConnectionPool, isLeftBecause reason: String)
}

extension HTTP2ConnectionPoolDelegate {
  public func pool(_ pool: HTTP2ConnectionPool, didTakeBack request: Int) {}
  public func pool(_ pool: HTTP2ConnectionPool, isLeftBecause reason: String) {}
}

/// Connections to one endpoint and the requests that wait for them. Confined to its event loop.
public final class HTTP2ConnectionPool {
  /// A connection with its ID in the machine and its number for the pool's owner.
  private struct Member {
    let id: HTTP2ConnectionPoolMachine.ConnectionID
    let number: Int
    let connection: HTTP2Connection
    var health = HTTP2ConnectionHealth.sound
    var wasReady = false
    /// Whether it takes no more requests. If that counts as a replacement, it has been counted.
    var isLeft = false
  }

  public let endpoint: HTTP2Endpoint
  public let loop: EventLoop
  /// Set to nil when the pool has been shut down.
  public var delegate: (any HTTP2ConnectionPoolDelegate)?
  /// Maximum number of requests in flight.
  public private(set) var capacity = 0

  /// Number of connections being opened, and number of all others.
  public var connectionCounts: (connecting: Int, open: Int) { (machine.connectingCount, machine.openCount) }

  /// Number of connections replaced since the start, by reason.
  public private(set) var replacements: [ConnectionReplacement: Int] = [:]

  private let settings: HTTP2ConnectionPoolSettings
  private let logger: Logger
  /// Nil: requests may always be written.
  private let permits: SendPermits?
  private let nextNumber: () -> Int
  private var machine: HTTP2ConnectionPoolMachine
  private var members: [Member] = []
  private var actions: [HTTP2ConnectionPoolMachine.Action] = []
  private var isPerforming = false
  private var head = HTTP2RequestHead()
  private var wakeTimer: EventLoop.Timer?
  private var isCapacityReportScheduled = false
  private var lastReportedCapacity = 0
  private var shutDownTimer: EventLoop.Timer?
  private var shutDownCompletion: (() -> Void)?
  private var isFinished = false

  /// - Parameters:
  ///   - permits: the permits of its requests; nil: they may always be written.
  ///   - nextNumber: returns the number of the next connection; greater at each call.
  ///   - seed: the seed of the reconnect jitter.
  public init(
    _ endpoint: HTTP2Endpoint, settings: HTTP2ConnectionPoolSettings, loop: EventLoop, logger: Logger,
    permits: SendPermits? = nil, nextNumber: @escaping () -> Int, seed: UInt64 = .random(in: .min ... .max)
  ) {
    self.endpoint = endpoint
    self.settings = settings
    self.loop = loop
    self.logger = logger
    self.permits = permits
    self.nextNumber = nextNumber
    machine = HTTP2ConnectionPoolMachine(settings: settings, seed: seed)
  }

  /// Opens the first connection. Requests submitted before wait for it.
  public func start() {
    handle(.started)
  }

  /// Accepts a request. It ends in `didEnd`, at the latest at its deadline.
  ///
  /// - Parameters:
  ///   - request: the owner's number for the request: a small number (of a slot), unique while the request is in the pool.
  ///   - avoided: the number of a connection that is used only if no other has room.
  ///   - isRepeat: whether its push was sent before. First tries come first.
  ///   - now: the loop's time if the caller has it already.
  public func submit(
    _ request: Int, deadline: Instant, avoiding avoided: Int? = nil, isRepeat: Bool = false, now: Instant? = nil
  ) {
    let avoided = avoided.flatMap { number in members.first { $0.number == number }?.id }
    handle(.submitted(request, deadline: deadline, avoiding: avoided, isRepeat: isRepeat), now: now)
  }

  /// Sends a second request (a hedge) for one that has not been answered. The hedge uses another connection or is not sent at all.
  /// In both cases it ends in `didEnd`. The first request continues.
  ///
  /// - Parameters:
  ///   - request: a request that is in flight in this pool.
  ///   - hedge: the owner's number for the second request.
  public func hedge(_ request: Int, by hedge: Int, deadline: Instant, now: Instant) {
    handle(.hedged(hedge, of: request, deadline: deadline), now: now)
  }

  /// Tells the pool that the hedge of this request was answered first. The request is still in flight in this pool.
  public func noteOvertaken(_ request: Int) {
    handle(.overtaken(request))
  }

  /// Refuses the given requests that still wait for a connection. Those in flight are not sent again.
  public func withdraw(_ requests: Set<Int>) {
    handle(.withdrawn(requests))
  }

  /// Sends no request until `resume`. Used while there are no credentials that the server would accept. Waiting requests
  /// time out as usual.
  public func pause() {
    handle(.paused)
  }

  /// Ends a `pause`.
  public func resume() {
    handle(.resumed)
  }

  /// Ends the wait before the next connection, because the cause of the failures may have been fixed.
  public func retry() {
    handle(.retried)
  }

  /// Refuses waiting requests, finishes the requests in flight, sends GOAWAY and closes.
  ///
  /// - Parameters:
  ///   - deadline: requests still in flight then end as lost.
  ///   - completion: called on the loop when every request has ended.
  public func shutDown(by deadline: Instant, completion: @escaping () -> Void) {
    guard !isFinished else { return completion() }
    shutDownCompletion = completion
    shutDownTimer = loop.schedule(at: deadline) { [self] in handle(.shutDownDeadline) }
    handle(.shutDown)
  }

  /// Ends a `shutDown` before its deadline. Requests in flight end as lost.
  public func cutOff() {
    guard shutDownCompletion != nil else { return }
    handle(.shutDownDeadline)
  }

  // MARK: - Machine

  private func handle(_ event: HTTP2ConnectionPoolMachine.Event, now: Instant? = nil) {
    let now = now ?? loop.now
    machine.handle(event, now: now, &actions)
    // If an action caused this event, the loop below also performs the event's actions, after those already listed.
    guard !isPerforming else { return }
    isPerforming = true
    var next = 0
    while next < actions.count {
      perform(actions[next], now)
      next += 1
    }
    actions.removeAll(keepingCapacity: true)
    isPerforming = false
  }

  private func perform(_ action: HTTP2ConnectionPoolMachine.Action, _ now: Instant) {
    switch action {
    case .open(let id): open(id)
    case .dispatch(let request, let id): dispatch(request, id, now)
    case .refuse(let request, let reason): end(request, .refused(reason))
    case .expire(let request): end(request, .timedOut)
    case .drain(let id): drain(id)
    case .close(let id): connection(id)?.close("shut down before the answer came")
    case .wake(let instant):
      wakeTimer?.cancel()
      wakeTimer = loop.schedule(at: instant) { [self] in handle(.woken) }
    case .reportCapacity(let capacity):
      self.capacity = capacity
      scheduleCapacityReport()
    case .finish: finish()
    }
  }

  private func open(_ id: Int) {
    let connection = HTTP2Connection(endpoint, settings: settings.connection, loop: loop)
    connection.delegate = self
    members.append(Member(id: id, number: nextNumber(), connection: connection))
    connection.connect()
  }

  private func drain(_ id: Int) {
    guard let index = members.firstIndex(where: { $0.id == id }) else { return }
    if let reason = members[index].health.replacement ?? (machine.losesRequests(id) ? .lost : nil) {
      leave(index, reason)
    } else {
      members[index].isLeft = true  // surplus connection or shutdown
    }
    let isUnresponsive = members[index].health == .unresponsive
    if isUnresponsive {
      logger.warning(
        "http2 connection answers pings but no requests and is replaced",
        metadata: ["host": "\(endpoint.host)", "connection": .stringConvertible(members[index].number)])
    }
    members[index].connection.drain(isAddressAtFault: isUnresponsive)
  }

  /// Notes that a connection takes no more requests, and counts the reason. Only the first reason of a connection counts.
  private func leave(_ index: Int, _ reason: ConnectionReplacement) {
    guard !members[index].isLeft else { return }
    members[index].isLeft = true
    replacements[reason, default: 0] += 1
  }

  private func dispatch(_ request: Int, _ id: Int, _ now: Instant) {
    guard let connection = connection(id), connection.isReady, let delegate else {
      handle(.goingAway(id))
      return handle(.refused(request, id))
    }
    guard permits?.allowAll(now) ?? true || delegate.pool(self, maySend: request, at: now) else {
      end(request, .refused(SendPermit.lapsedReason))
      return handle(.failed(request, id, isLost: false))
    }
    let body = delegate.pool(self, write: request, at: now, into: &head)
    let deadline = machine.deadline(of: request)
    guard connection.request(head, body: body, deadline: deadline, tag: request, now: now) else {
      handle(.goingAway(id))
      return takeBack(request, id, now)
    }
  }

  private func takeBack(_ request: Int, _ id: Int, _ now: Instant) {
    delegate?.pool(self, didTakeBack: request)
    handle(.refused(request, id), now: now)
  }

  /// Ends a request that is not on a connection.
  private func end(_ request: Int, _ result: HTTP2Exchange.Result) {
    _ = delegate?.pool(self, didEnd: request, HTTP2Exchange(result, sentAt: nil, endedAt: loop.now), on: nil)
  }

  private func scheduleCapacityReport() {
    guard !isCapacityReportScheduled else { return }
    isCapacityReportScheduled = true
    loop.atEndOfTurn { [self] in
      isCapacityReportScheduled = false
      guard capacity != lastReportedCapacity else { return }
      lastReportedCapacity = capacity
      delegate?.pool(self, capacityDidChange: capacity)
    }
  }

  private func finish() {
    guard !isFinished else { return }
    isFinished = true
    shutDownTimer?.cancel()
    wakeTimer?.cancel()
    let completion = shutDownCompletion
    shutDownCompletion = nil
    completion?()
    loop.atEndOfTurn { [self] in delegate = nil }  // after the report that there is no capacity
  }

  private func connection(_ id: Int) -> HTTP2Connection? {
    for index in members.indices where members[index].id == id { return members[index].connection }
    return nil
  }

  /// The index of a connection in `members`.
  private func index(of connection: HTTP2Connection) -> Int? {
    for index in members.indices where members[index].connection === connection { return index }
    return nil
  }
}

extension HTTP2ConnectionPool: HTTP2ConnectionDelegate {
  public func connection(_ connection: HTTP2Connection, mayWriteRequestsAt now: Instant) -> Bool {
    permits?.allowAll(now) ?? true
  }

  public func connection(_ connection: HTTP2Connection, mayWrite request: Int, at now: Instant) -> Bool {
    delegate?.pool(self, maySend: request, at: now) ?? true
  }

  public func connection(_ connection: HTTP2Connection, didLimitStreamsTo streamsMax: Int) {
    guard let index = index(of: connection) else { return }
    members[index].wasReady = true
    logger.debug(
      "http2 connection limit",
      metadata: [
        "host": "\(endpoint.host)", "connection": .stringConvertible(members[index].number),
        "streams_max": .stringConvertible(streamsMax),
      ])
    handle(.limited(members[index].id, streamsMax: streamsMax))
  }

  public func connection(_ connection: HTTP2Connection, didEnd request: Int, _ exchange: HTTP2Exchange) {
    guard let index = index(of: connection) else { return }
    let id = members[index].id
    let number = members[index].number
    switch exchange.result {
    case .response:
      let effect = delegate?.pool(self, didEnd: request, exchange, on: number) ?? .done
      if effect.connection == .worn, let index = self.index(of: connection) { leave(index, .worn) }
      handle(.answered(request, id, effect), now: exchange.endedAt)
    case .refused: takeBack(request, id, exchange.endedAt)
    case .timedOut:
      _ = delegate?.pool(self, didEnd: request, exchange, on: number)
      handle(.failed(request, id, isLost: false), now: exchange.endedAt)
    case .lost:
      let isOpen = connection.isReady
      _ = delegate?.pool(self, didEnd: request, exchange, on: number)
      handle(.failed(request, id, isLost: isOpen), now: exchange.endedAt)
    }
  }

  public func connection(_ connection: HTTP2Connection, didBecome health: HTTP2ConnectionHealth) {
    guard let index = index(of: connection) else { return }
    members[index].health = health
    logger.info(
      "http2 connection health",
      metadata: [
        "host": "\(endpoint.host)", "connection": .stringConvertible(members[index].number), "health": "\(health)",
      ])
    handle(.healthChanged(members[index].id, health))
  }

  public func connection(_ connection: HTTP2Connection, isGoingAwayBecause reason: String) {
    guard let index = index(of: connection) else { return }
    let isGoAway = reason.hasPrefix("GOAWAY")
    leave(index, isGoAway ? .goaway : .exhausted)
    logger.info(
      "http2 connection going away",
      metadata: [
        "host": "\(endpoint.host)", "connection": .stringConvertible(members[index].number), "reason": "\(reason)",
      ])
    if isGoAway { delegate?.pool(self, isLeftBecause: reason) }
    handle(.goingAway(members[index].id))
  }

  public func connection(_ connection: HTTP2Connection, didCloseWith error: HTTP2Error?) {
    guard let index = index(of: connection) else { return }
    if members[index].wasReady { leave(index, members[index].health.replacement ?? .lost) }
    let member = members.remove(at: index)
    if let error {
      logger.warning(
        "http2 connection failed",
        metadata: ["host": "\(endpoint.host)", "connection": .stringConvertible(member.number), "error": "\(error)"])
    } else {
      logger.debug(
        "http2 connection closed",
        metadata: ["host": "\(endpoint.host)", "connection": .stringConvertible(member.number)])
    }
    handle(.closed(member.id))
  }
}
