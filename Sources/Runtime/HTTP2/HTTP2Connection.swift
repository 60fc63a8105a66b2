// A client's HTTP/2 connection: a TLS stream and a session, and the bookkeeping of the requests on them.
//
// States: connecting → ready (the server's SETTINGS arrived) → draining (GOAWAY from either side; requests in flight finish) →
// closed. All requests of one turn leave in one write at its end. Every request ends exactly once, with an `HTTP2Exchange.Result`,
// which says whether the server can have seen the request. Frames leave in the order of the output. So a server can have seen a
// request only if the socket took bytes beyond the position where its HEADERS begin.

/// One connection to one endpoint. Confined to its event loop.
public final class HTTP2Connection {
  private enum State {
    case connecting
    case ready
    case draining
    case closed
  }

  private struct Exchange {
    var tag: Int
    /// Distinguishes it from earlier requests in the same slot.
    var serial: Int
    /// The session's number for it.
    var request = 0
    var deadline: Instant
    /// The deadline that applies once the request has left.
    var answerDeadline: Instant
    var sentAt: Instant?
    /// Whether the owner was told of its end, and only the stream has still to close.
    var isReported = false
  }

  public let endpoint: HTTP2Endpoint
  public let loop: EventLoop
  /// Released when the connection is closed.
  public var delegate: (any HTTP2ConnectionDelegate)?

  private let settings: HTTP2ConnectionSettings
  private var session: HTTP2ClientSession
  private var state = State.connecting
  private var dialer: AddressDialer?
  /// Which of the addresses of the host, or of its proxy, it is connected to.
  private var address: SocketAddress?
  private var stream: TLSStream?
  /// Reused memory for the events of a turn.
  private var events: [HTTP2Event] = []
  private var isFlushScheduled = false

  /// A request's tag in the session: its serial, and in the low bits its slot.
  private static let slotBits = 24
  private static let slotMask = 1 << slotBits - 1
  private var exchanges = SlotTable<Exchange>()
  private var nextSerial = 0
  /// The index of the session's first departure that has not left.
  private var departuresStart = 0

  private var setUpTimer: EventLoop.Timer?
  private var noStreamsTimer: EventLoop.Timer?
  private var deadlineTimer: EventLoop.Timer?
  /// No deadline of an exchange is earlier.
  private var earliestDeadline = Instant.distantFuture
  private var liveness: HTTP2Liveness
  private var livenessTimer: EventLoop.Timer?
  /// When `livenessTimer` fires; `distantFuture` without one.
  private var livenessCheckAt = Instant.distantFuture
  private var reportedHealth = HTTP2ConnectionHealth.sound
  private var hasReceived = false

  /// Creates a connection. The owner sets the delegate and calls `connect`.
  public init(_ endpoint: HTTP2Endpoint, settings: HTTP2ConnectionSettings, loop: EventLoop) {
    self.endpoint = endpoint
    self.settings = settings
    self.loop = loop
    session = HTTP2ClientSession(settings: settings.session)
    liveness = HTTP2Liveness(settings: settings.liveness)
  }

  /// Whether requests are taken.
  public var isReady: Bool { state == .ready }

  // MARK: - API

  /// Starts to connect. `didLimitStreamsTo` or `didCloseWith` follows.
  public func connect() {
    var race = AddressRace.Settings()
    race.attemptTimeout = settings.connectTimeout
    let dialer = AddressDialer(
      host: endpoint.host, port: endpoint.port, context: endpoint.tls, proxy: endpoint.proxy, settings: race,
      keepalive: settings.keepalive, loop: loop, resolver: settings.resolver, book: settings.addresses
    ) { [self] result in dialed(result) }
    self.dialer = dialer
    dialer.start()
  }

  /// Sends a request at the end of the turn.
  ///
  /// - Parameters:
  ///   - body: empty for none.
  ///   - deadline: nothing is sent after it. The connection waits for an answer until `lateAnswerTimeout` after it;
  ///     `requestTimeout` may end the wait sooner.
  ///   - tag: comes back in `didEnd`, once.
  ///   - now: the loop's time, if the caller has it.
  /// - Returns: false if the connection takes no requests. Then nothing is sent and `didEnd` is not called.
  public func request(
    _ head: borrowing HTTP2RequestHead, body: [UInt8], deadline: Instant, tag: Int, now: Instant? = nil
  ) -> Bool {
    guard state == .ready else { return false }
    let now = now ?? loop.now
    let answerDeadline = min(deadline + settings.lateAnswerTimeout, now + settings.requestTimeout)
    let deadline = min(deadline, answerDeadline)
    let serial = nextSerial
    nextSerial += 1
    let slot = exchanges.insert(Exchange(tag: tag, serial: serial, deadline: deadline, answerDeadline: answerDeadline))
    guard let request = try? session.request(head, body: body, tag: serial << Self.slotBits | slot) else {
      exchanges.remove(slot)
      return false
    }
    exchanges[slot]?.request = request
    watchDeadline(deadline)
    if liveness.didRequest(now) { session.ping(UInt64(bitPattern: now.nanoseconds)) }
    watchLiveness()
    scheduleFlush()
    return true
  }

  /// Takes no more requests, finishes those in flight, then sends GOAWAY and closes.
  ///
  /// - Parameter isAddressAtFault: whether to try the host's other addresses first from now on.
  public func drain(isAddressAtFault: Bool = false) {
    if isAddressAtFault { blameAddress() }
    switch state {
    case .connecting: close("not needed any more")
    case .ready:
      state = .draining
      scheduleFlush()
    case .draining, .closed: break
    }
  }

  /// Sends GOAWAY and closes at once. Requests in flight end as `lost`, or as `refused` if they had not left.
  public func close(_ reason: String) {
    guard state != .closed else { return }
    if let stream, stream.isOpen, withholdRequests() {
      session.goAway()
      session.drainOutput(into: &stream.output)
      stream.flush()
    }
    end(reason: reason, error: nil)
  }

  // MARK: - Set-up

  private func dialed(_ result: Result<DialedConnection, TLSError>) {
    dialer = nil
    switch result {
    case .failure(let error): end(reason: error.description, error: HTTP2Error(error.description))
    case .success(let dialed):
      guard case .tls(let stream) = dialed.link else { preconditionFailure("dialed with TLS, and got none") }
      address = dialed.address
      self.stream = stream
      stream.delegate = self
      setUpTimer = loop.schedule(at: loop.now + settings.settingsTimeout) { [self] in
        let what = session.hasPeerSettings ? "no streams are allowed" : "no SETTINGS"
        blameAddress()
        fail("\(endpoint.host): \(what) within \(settings.settingsTimeout.seconds) s of the TLS handshake")
      }
      scheduleFlush()
    }
  }

  // MARK: - Output

  private func scheduleFlush() {
    guard !isFlushScheduled else { return }
    isFlushScheduled = true
    loop.atEndOfTurn { [self] in
      isFlushScheduled = false
      flush()
    }
  }

  private func flush() {
    guard let stream, stream.isOpen else { return }
    if state == .draining, exchanges.isEmpty { return close("drained") }
    guard withholdRequests() else { return }
    repeat {
      session.outputLimit = settings.outputBytesMax - stream.bytesPending
      guard session.outputLimit > 0 else { break }
      session.openWaiting()
      session.drainOutput(into: &stream.output)
      stream.flush()
    } while stream.bytesPending == 0 && session.hasWaiting && stream.isOpen
    stampDepartures()
    processEvents()  // sending ends requests, too, when no stream ids are left
    guard session.isExhausted, state == .ready else { return }
    state = .draining
    if exchanges.isEmpty { scheduleFlush() }
    delegate?.connection(self, isGoingAwayBecause: "all stream ids of the connection have been used")
  }

  /// Stops requests that may not be written. Returns whether anything is left to write.
  ///
  /// Requests cannot be removed from the middle of the output, because the peer must decode all header blocks. So if unsent output
  /// has requests, the connection is closed. That happens only to a process that is stopped in the middle of a turn, or whose peer
  /// does not read.
  private func withholdRequests() -> Bool {
    let now = loop.now
    guard let delegate, !delegate.connection(self, mayWriteRequestsAt: now) else { return true }
    session.refuseUnfinished { mustWithhold($0, delegate, now) }
    stampDepartures()
    guard session.departures[departuresStart...].contains(where: { mustWithhold($0.tag, delegate, now) }) else {
      return true
    }
    end(reason: "requests may not be written now", error: nil)
    return false
  }

  /// - Parameter tag: the request's tag in the session.
  private func mustWithhold(_ tag: Int, _ delegate: any HTTP2ConnectionDelegate, _ now: Instant) -> Bool {
    guard let exchange = exchanges[tag & Self.slotMask], exchange.serial == tag >> Self.slotBits, !exchange.isReported
    else { return true }
    return !delegate.connection(self, mayWrite: exchange.tag, at: now)
  }

  /// Stores the time of sending for every request whose first bytes the socket has taken.
  private func stampDepartures() {
    guard departuresStart < session.departures.count, let written = stream?.bytesWritten else { return }
    let now = loop.now
    while departuresStart < session.departures.count {
      let departure = session.departures[departuresStart]
      guard departure.outputBefore < written else { break }
      let slot = departure.tag & Self.slotMask
      if exchanges[slot]?.serial == departure.tag >> Self.slotBits { exchanges[slot]?.sentAt = now }
      departuresStart += 1
    }
    if departuresStart == session.departures.count {
      session.departures.removeAll(keepingCapacity: true)
      departuresStart = 0
    }
  }

  // MARK: - Input

  private func processEvents() {
    var batch: [HTTP2Event] = []
    swap(&batch, &events)  // the delegate may close the connection, which handles events, too
    session.drainEvents(into: &batch)
    if !batch.isEmpty {
      let now = loop.now
      for index in batch.indices {
        var event = HTTP2Event.settings
        // Moved, not copied: a copy would count references to every buffer of an answer, and memory with two owners cannot be
        // used again.
        swap(&event, &batch[index])
        handle(consume event, now)
      }
    }
    swap(&batch, &events)
    if state == .draining, exchanges.isEmpty { scheduleFlush() }
  }

  private func handle(_ event: consuming HTTP2Event, _ now: Instant) {
    switch consume event {
    case .settings: limitChanged()
    case .ended(let tag, let code, let response):
      let slot = tag & Self.slotMask
      let exchange = exchanges.remove(slot)
      if exchanges.isEmpty { liveness.didBecomeIdle() }
      guard let exchange, !exchange.isReported else { return }
      liveness.didAnswer(now, inFlight: exchanges.count)
      reportHealth()  // first, so that a doubt that this answer ends does not make the pool leave the connection
      guard let response else { return report(exchange, failure(code), now) }
      report(exchange, .response(response), now)
      session.recycle(response)
    case .goAway(_, let code, let debugData):
      guard state == .ready || state == .connecting else { return }
      state = .draining
      delegate?.connection(self, isGoingAwayBecause: "GOAWAY \(code)\(HTTP2GoAwayWord.word(debugData))")
    case .pong: break  // like any other bytes
    }
  }

  private func limitChanged() {
    let isClosedToRequests = session.peerStreamsMax == 0
    if state == .connecting {
      if isClosedToRequests { return }  // until `setUpTimer` fires
      state = .ready
      setUpTimer?.cancel()
    }
    guard state == .ready else { return }
    noStreamsTimer?.cancel()
    if isClosedToRequests {
      noStreamsTimer = loop.schedule(at: loop.now + settings.settingsTimeout) { [self] in leaveForNoStreams() }
    }
    delegate?.connection(self, didLimitStreamsTo: min(session.peerStreamsMax, settings.streamsMax))
  }

  /// The server has allowed no streams for too long. Requests in flight finish; another connection is opened.
  private func leaveForNoStreams() {
    guard state == .ready else { return }
    state = .draining
    scheduleFlush()
    delegate?.connection(self, isGoingAwayBecause: "no streams are allowed")
  }

  private func failure(_ code: HTTP2ErrorCode) -> HTTP2Exchange.Result {
    if code == .refusedStream { return .refused("StreamRefused") }
    return .lost("stream ended without a complete answer: \(code)")
  }

  private func report(_ exchange: Exchange, _ result: consuming HTTP2Exchange.Result, _ now: Instant) {
    delegate?.connection(
      self, didEnd: exchange.tag, HTTP2Exchange(result, sentAt: exchange.sentAt, endedAt: now))
  }

  // MARK: - Time

  private func watchDeadline(_ deadline: Instant) {
    guard deadline < earliestDeadline else { return }
    earliestDeadline = deadline
    deadlineTimer?.cancel()
    deadlineTimer = loop.schedule(at: deadline) { [self] in endOverdue() }
  }

  private func endOverdue() {
    let now = loop.now
    var next = Instant.distantFuture
    var overdue: [(exchange: Exchange, isUnfinished: Bool)] = []
    for slot in exchanges.occupied {
      guard let exchange = exchanges[slot], !exchange.isReported else { continue }
      let deadline = exchange.sentAt == nil ? exchange.deadline : exchange.answerDeadline
      if deadline > now {
        next = min(next, deadline)
      } else {
        exchanges[slot]?.isReported = true
        overdue.append((exchange, isUnfinished(exchange)))
        session.cancel(exchange.request)
      }
    }
    earliestDeadline = .distantFuture
    if next < .distantFuture { watchDeadline(next) }
    for (exchange, isUnfinished) in overdue {
      report(exchange, isUnfinished ? .refused("BodyNotSent") : .timedOut, now)
    }
    scheduleFlush()
  }

  /// Whether only a part of a request has left, because of flow control or a peer that does not read. No peer acts on a request
  /// whose end it has not seen, so it may be sent again.
  private func isUnfinished(_ exchange: Exchange) -> Bool {
    exchange.sentAt != nil && !session.isWhole(exchange.request, within: stream?.bytesWritten ?? .max)
  }

  /// Sets the timer for the next check of liveness.
  private func watchLiveness() {
    let due = liveness.due
    guard due < livenessCheckAt, state != .closed else { return }
    livenessTimer?.cancel()
    livenessCheckAt = due
    livenessTimer = loop.schedule(at: due) { [self] in checkLiveness() }
  }

  private func checkLiveness() {
    livenessCheckAt = .distantFuture
    // After a stall of the loop, timers fire before the bytes that have arrived meanwhile are read.
    if liveness.due <= loop.now { stream?.receiveNow() }
    guard state != .closed else { return }
    let now = loop.now
    switch liveness.check(now) {
    case .nothing: break
    case .ping:
      session.ping(UInt64(bitPattern: now.nanoseconds))
      scheduleFlush()
    case .fail:
      blameAddress()
      return fail("\(endpoint.host): no answer to PING within \(settings.liveness.pingTimeout.seconds) s")
    }
    reportHealth()
    watchLiveness()
  }

  private func reportHealth() {
    guard liveness.health != reportedHealth else { return }
    reportedHealth = liveness.health
    delegate?.connection(self, didBecome: reportedHealth)
  }

  /// Makes the next connections prefer other addresses of the host, or of its proxy, if there are any.
  private func blameAddress() {
    guard let address else { return }
    let name = endpoint.proxy.map { AddressDialer.bookName($0.host, $0.port) }
    settings.addresses.didFail(
      address.description, of: name ?? AddressDialer.bookName(endpoint.host, endpoint.port), now: loop.now)
  }

  // MARK: - The end

  private func fail(_ reason: String) {
    guard state != .closed else { return }
    if let stream, stream.isOpen, withholdRequests() {
      session.drainOutput(into: &stream.output)  // the session's GOAWAY, if any
      stream.flush()
    }
    end(reason: reason, error: HTTP2Error(reason))
  }

  private func end(reason: String, error: HTTP2Error?) {
    guard state != .closed else { return }
    state = .closed
    stampDepartures()
    let unfinished = Set(
      exchanges.occupied.filter { slot in exchanges[slot].map { !$0.isReported && isUnfinished($0) } ?? false })
    for timer in [setUpTimer, noStreamsTimer, deadlineTimer, livenessTimer] { timer?.cancel() }
    dialer?.cancel()
    dialer = nil
    stream?.delegate = nil
    stream?.close()
    stream = nil
    var batch: [HTTP2Event] = []
    session.drainEvents(into: &batch)
    let now = loop.now
    for event in batch {
      if case .ended = event { handle(event, now) }
    }
    for slot in exchanges.occupied {
      guard let exchange = exchanges.remove(slot), !exchange.isReported else { continue }
      let isRefused = exchange.sentAt == nil || unfinished.contains(slot)
      report(exchange, isRefused ? .refused(reason) : .lost(reason), now)
    }
    delegate?.connection(self, didCloseWith: error)
    delegate = nil
  }
}

extension HTTP2Connection: TLSStreamDelegate {
  public func streamDidOpen(_ stream: TLSStream) {}

  public func stream(_ stream: TLSStream, didReceive bytes: UnsafeRawBufferPointer) {
    guard state != .closed else { return }
    hasReceived = true
    do {
      try unsafe session.receive(bytes)
    } catch {
      blameAddress()
      fail("\(endpoint.host): \(error)")
    }
  }

  public func streamDidProgress(_ stream: TLSStream) {
    guard state != .closed else { return }
    if hasReceived {
      hasReceived = false
      let now = loop.now
      liveness.didReceive(now, inFlight: exchanges.count)
      session.refillBudget(now)
      reportHealth()
    }
    stampDepartures()
    processEvents()
    guard state != .closed else { return }
    watchLiveness()
    scheduleFlush()
  }

  public func streamMayWrite(_ stream: TLSStream) -> Bool { withholdRequests() }

  public func stream(_ stream: TLSStream, didCloseWith error: TLSError?) {
    processEvents()
    let isInOrder = error == nil && exchanges.isEmpty && state != .connecting
    let reason = error?.description ?? "\(endpoint.host) closed the connection"
    end(reason: reason, error: isInOrder ? nil : HTTP2Error(reason))
  }
}
