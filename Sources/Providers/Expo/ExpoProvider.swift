// The provider for Expo's push service: many messages in a request, over a few connections of libcurl.
//
// Expo gets no hedges, for three reasons. libcurl neither tells which connection a request uses nor lets a request avoid one. A
// hedge of one message would also repeat the other messages of its request. An invite over Expo is a banner, so people would see
// it twice.

internal import PushModel
public import Runtime

/// Sends through one Expo project.
///
/// The messages that `send` accepts in one turn of the loop are sent in one request. If no further request may be made yet, they
/// are sent later, together with the messages that arrive until then (`ExpoSendQueue`). `ExpoAnswer` reads the answers. A request
/// that was refused as a whole is sent again in parts. That does not count as an attempt. The messages of a request that failed
/// are sent in smaller ones at their next attempt, so that a message at which Expo fails takes no others with it.
public actor ExpoProvider: PushProvider {
  public nonisolated let loop: EventLoop
  public nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  private let configuration: ExpoConfiguration
  private let clock: any GatewayClock
  private let permits: SendPermits?
  private var accessToken: String?
  private var client: CurlClient?
  private var report: (@Sendable (PushProviderEvent) -> Void)?

  private var queue: ExpoSendQueue
  private var flights: [ObjectIdentifier: ExpoFlight] = [:]
  private var requestsMade = 0
  private var queueTimer: EventLoop.Timer?
  private var gate: ConnectGate
  private var reportedCapacity = 0
  private var results: [PushResult] = []
  private var isTurnEndAwaited = false
  private var isShuttingDown = false
  private var whenIdle: CheckedContinuation<Void, Never>?
  private var skewMeter = ClockSkewMeter()
  private var unanswered = UnansweredTime()
  private var latency = RecentLatency()

  /// - Parameters:
  ///   - permits: the permits of its requests; nil: they may always be written.
  ///   - clock: gives the wall time with which a Retry-After date is compared.
  public init(
    configuration: ExpoConfiguration, loop: EventLoop, permits: SendPermits? = nil,
    clock: any GatewayClock = SystemClock()
  ) {
    self.permits = permits
    self.configuration = configuration
    self.loop = loop
    self.clock = clock
    accessToken = configuration.accessToken
    queue = ExpoSendQueue(
      messagesMax: configuration.messagesMax, requestsMax: configuration.requestsMax,
      placeTime: configuration.placeTime)
    gate = ConnectGate(backoff: configuration.backoff, seed: .random(in: .min ... .max))
  }

  // MARK: - PushProvider

  public func start(report: @escaping @Sendable (PushProviderEvent) -> Void) {
    precondition(client == nil, "an ExpoProvider is started once")
    var connections = configuration.connections
    connections.caFile = configuration.caFile
    connections.connectionsPerHostMax = queue.placesMax
    connections.totalTimeout = configuration.requestTimeout
    connections.responseSizeMax = configuration.answerBytesMax
    client = CurlClient(loop: loop, configuration: connections)
    self.report = report
    reportCapacity(loop.now)
  }

  public func send(_ batch: [PushRequest]) {
    guard client != nil, !isShuttingDown else {
      finish(batch, with: .refused(reason: "ShuttingDown"))
      return
    }
    append(batch)
    awaitTurnEnd()
  }

  public func shutDown(by deadline: Instant) async {
    guard let client, !isShuttingDown else { return }
    isShuttingDown = true
    reportCapacity(loop.now)
    finish(queue.removeAll(), with: .refused(reason: "ShuttingDown"))
    if !flights.isEmpty {
      let timer = loop.schedule(at: deadline) { self.giveUp() }
      await withCheckedContinuation { whenIdle = $0 }
      timer.cancel()
    }
    client.close()
    self.client = nil
    queueTimer?.cancel()
    endTurn()
  }

  public func preview(_ request: PushRequest) -> PushPreview? {
    let made = self.request(
      ExpoRequestWriter.path, body: ExpoRequestWriter.body([request], now: loop.now), deadline: request.deadline)
    let headers = made.headers.map { name, value in
      (name: name.lowercased(), value: name == "Authorization" ? "Bearer \(PushPreview.ellipsis)" : value)
    }
    return PushPreview(url: made.url, headers: headers, body: made.body)
  }

  public var condition: ProviderCondition {
    var condition = ProviderCondition()
    condition.openConnections = flights.count
    condition.unanswered = unanswered.time(loop.now)
    return condition
  }

  public func withdraw(_ tags: Set<UInt64>) {
    finish(queue.remove(tags), with: .refused(reason: "Withdrawn"))
    for flight in flights.values { add(flight.withdraw(tags, loop.now)) }
  }

  public func giveUp(on tags: Set<UInt64>) {
    withdraw(tags)
    let now = loop.now
    for flight in flights.values where flight.giveUp(on: tags) { doubt(flight, now) }
    awaitTurnEnd()
  }

  /// From now on, uses another access token, or none if nil. Pushes under way that are refused because of the old token are sent
  /// again with the new one.
  public func rotate(accessToken: String?) {
    self.accessToken = accessToken
    report?(.renewed)
  }

  public func retryConnections() {
    gate.tryNow()
    makeRequests()
    report?(.renewed)
  }

  // MARK: - Receipts

  /// Requests the receipts of pushes that Expo accepted. Receipts are available about 15 minutes after the push, for one day.
  ///
  /// - Parameter tickets: the IDs of accepted pushes, at most `ExpoConfiguration.receiptsMax`.
  public func receipts(of tickets: [String]) async -> ExpoReceiptsAnswer {
    precondition(tickets.count <= configuration.receiptsMax, "more tickets than Expo takes in one request")
    guard !tickets.isEmpty else { return .receipts([:]) }
    let body = ExpoRequestWriter.body(receiptsOf: tickets)
    while let client, !isShuttingDown {
      let sentWith = accessToken
      let answer: ExpoReceiptsAnswer
      switch await client.perform(
        request(ExpoRequestWriter.receiptsPath, body: body, deadline: loop.now + configuration.requestTimeout))
      {
      case .success(let response):
        tellClockSkew(of: response)
        answer = ExpoReceiptsAnswer(response, tickets: tickets, wallMilliseconds: clock.wallMilliseconds())
      case .failure(let failure): answer = ExpoReceiptsAnswer(failure)
      }
      guard case .failed(.unauthorized) = answer, sentWith != accessToken else { return answer }
    }
    return .failed(.refused(reason: "ShuttingDown"))
  }

  // MARK: - Requests

  private func request(_ path: String, body: [UInt8], deadline: Instant) -> CurlRequest {
    var headers = [(name: "Content-Type", value: "application/json"), (name: "Accept", value: "application/json")]
    if let accessToken { headers.append((name: "Authorization", value: "Bearer \(accessToken)")) }
    return CurlRequest(
      url: configuration.url + path, headers: headers, body: body, isCompressible: true, deadline: deadline)
  }

  private func makeRequests() {
    let now = loop.now
    finish(queue.removeExpired(at: now), with: .expired)
    if permits?.allowAll(now) == false {
      finish(queue.removeWithheld(at: now), with: .refused(reason: SendPermit.lapsedReason))
    }
    if queue.isFull, let youngest = flights.values.filter(\.isDoubted).max(by: { $0.startedAt < $1.startedAt }) {
      client?.cancel(ObjectIdentifier(youngest))
    }
    // Those that have left need no connection any more.
    while let client, gate.admits(beside: flights.values.count { !$0.hasLeft }, now), let batch = queue.next(now) {
      makeRequest(batch, on: client, now: now)
    }
    reportCapacity(now)
    queueTimer?.cancel()
    let next = min(
      queue.earliestDeadline ?? .distantFuture, queue.nextPlaceAt(after: now) ?? .distantFuture,
      gate.opensAt > now ? gate.opensAt : .distantFuture)
    queueTimer = next == .distantFuture ? nil : loop.schedule(at: next) { self.makeRequests() }
  }

  /// None while no request may be made; while no connection could be made, a single message that tries.
  private func reportCapacity(_ now: Instant) {
    var capacity = configuration.requestsMax * configuration.messagesMax
    if gate.failures > 0 { capacity = gate.opensAt <= now ? 1 : 0 }
    if isShuttingDown { capacity = 0 }
    guard capacity != reportedCapacity else { return }
    reportedCapacity = capacity
    report?(.capacity(capacity))
  }

  private func makeRequest(_ batch: [PushRequest], on client: CurlClient, now: Instant) {
    let flight = ExpoFlight(
      batch, accessToken: accessToken, startedAt: now, patience: answerTimeout,
      lateAnswerTimeout: configuration.lateAnswerTimeout)
    flights[ObjectIdentifier(flight)] = flight
    requestsMade += 1
    for request in batch { request.batch = batch.count > 1 ? requestsMade : nil }
    unanswered.didSend(now)
    watch(flight)
    let body = ExpoRequestWriter.body(batch, now: now)
    var request = request(
      ExpoRequestWriter.path, body: body, deadline: flight.latestDeadline + configuration.lateAnswerTimeout)
    request.connectDeadline = flight.latestDeadline
    let id = ObjectIdentifier(flight)
    request.tag = id
    request.mayLeave = { [weak self] in self?.assumeIsolated { $0.mayLeave(id) } ?? false }
    client.perform(request) {
      self.land(flight, with: $0)
    }
  }

  private var answerTimeout: Nanoseconds {
    let slow = latency.allBut(oneIn: 30).map { Nanoseconds(2 * $0.count) } ?? .zero
    return max(configuration.answerTimeout, slow)
  }

  private func mayLeave(_ id: ObjectIdentifier) -> Bool {
    guard let flight = flights[id] else { return false }
    let now = loop.now
    let isPermitted = permits?.allowAll(now) != false || flight.batch.allSatisfy { $0.permit?.allows(now) ?? true }
    guard isPermitted, flight.leave(now) else { return false }
    gate.didConnect()
    watch(flight)
    awaitTurnEnd()
    return true
  }

  private func watch(_ flight: ExpoFlight) {
    flight.timer?.cancel()
    flight.timer = flight.earliestDeadline.map { deadline in
      loop.schedule(at: deadline) {
        let now = self.loop.now
        let wasDoubted = flight.isDoubted
        self.add(flight.expire(at: now))
        if !wasDoubted, flight.isDoubted {
          self.doubt(flight, now)
          self.makeRequests()
        }
        self.watch(flight)
      }
    }
  }

  /// One of the messages of a request may make it hang, or the connection may be dead.
  private func doubt(_ flight: ExpoFlight, _ now: Instant) {
    queue.didFail(flight.batch, sentAt: flight.startedAt, isUnderWay: true, now)
    client?.didWaitInVain(since: flight.startedAt)
  }

  private func land(_ flight: ExpoFlight, with result: Result<CurlResponse, CurlFailure>) {
    flight.timer?.cancel()
    guard flights.removeValue(forKey: ObjectIdentifier(flight)) != nil else { return }  // given up before
    queue.finish(flight.batch)
    let now = loop.now
    let answer: ExpoAnswer
    var status: UInt16 = 0
    let sentAt: Instant?
    switch result {
    case .success(let response):
      gate.didConnect()
      unanswered.didAnswer(now, isWaiting: !flights.isEmpty)
      tellClockSkew(of: response)
      answer = ExpoAnswer(response, count: flight.batch.count, wallMilliseconds: clock.wallMilliseconds())
      (status, sentAt) = (response.status, response.sentAt)
      latency.note(now - flight.startedAt, now)
    case .failure(let failure):
      // It was written once, and libcurl was not allowed to write it again.
      let isLost = flight.hasLeft && failure.reason == .withheld
      answer = .all(
        isLost
          ? .unknown(reason: CurlFailure.Reason.connectionLost.rawValue) : ExpoReasonTable.outcome(of: failure))
      sentAt = isLost ? flight.startedAt : failure.sentAt
      if sentAt != nil {
        gate.didConnect()
      } else if failure.isWithoutConnection {
        gate.didFail(begunAt: flight.startedAt)
      }
    }
    func toSendAgain() -> [PushRequest] {
      add(flight.refuseWithdrawn(now))
      return flight.takeUnanswered()
    }
    switch answer {
    case .tickets(let outcomes):
      queue.didTake(flight.batch, now)
      add(flight.answer(status: status, sentAt: sentAt, now: now) { outcomes[$0] })
    case .splitByProject where isShuttingDown, .sendFewer where isShuttingDown, .halve where isShuttingDown:
      add(flight.answer(status: status, sentAt: sentAt, now: now) { _ in .refused(reason: "ShuttingDown") })
    case .splitByProject(let projects): queue.append(toSendAgain(), splitBy: projects)
    case .sendFewer:
      queue.sendFewer(than: flight.batch.count)
      queue.append(halvesOf: toSendAgain())
    case .halve: queue.append(halvesOf: toSendAgain())
    case .all(.unauthorized) where flight.accessToken != accessToken && !isShuttingDown,
      .all where flight.isToBeDivided && result.isWithheld && !isShuttingDown:
      append(toSendAgain())
    case .all(let outcome):
      let isSuspect = queue.isSuspect(flight.batch)
      if sentAt != nil, outcome.isFailureOfRequest, !flight.isDoubted {
        queue.didFail(flight.batch, sentAt: flight.startedAt, now)
      }
      var results = flight.answer(status: status, sentAt: sentAt, now: now) { _ in outcome }
      if isSuspect { for index in results.indices { results[index].concernsLane = false } }
      add(results)
    }
    awaitTurnEnd()
  }

  private func giveUp() {
    let now = loop.now
    for flight in flights.values {
      flight.timer?.cancel()
      add(flight.answer(status: 0, sentAt: flight.startedAt, now: now) { _ in .unknown(reason: "ShuttingDown") })
    }
    flights.removeAll()
    awaitTurnEnd()
  }

  /// Measures the clock skew at the first answer and then once a minute. libcurl does not tell which connection an answer came on.
  private func tellClockSkew(of response: CurlResponse) {
    let now = loop.now
    guard skewMeter.isDue(0, sentAt: now) else { return }
    let wall = clock.wallMilliseconds()
    guard let skew = skewMeter.measure(response.date?[...], on: 0, now: now, wallMilliseconds: wall) else { return }
    report?(.clockSkew(skew))
  }

  // MARK: - Results, reported once a turn

  private func append(_ requests: [PushRequest]) {
    let busy = queue.append(requests, loop.now)
    finish(busy, with: .deferred(reason: "TimedOut", after: configuration.suspectWait))
  }

  private func finish(_ requests: [PushRequest], with outcome: PushOutcome) {
    guard !requests.isEmpty else { return }
    let now = loop.now
    add(requests.map { PushResult(tag: $0.tag, outcome: outcome, sentAt: nil, answeredAt: now) })
  }

  private func add(_ more: [PushResult]) {
    guard !more.isEmpty else { return }
    results.append(contentsOf: more)
    awaitTurnEnd()
  }

  private func awaitTurnEnd() {
    guard !isTurnEndAwaited else { return }
    isTurnEndAwaited = true
    loop.atEndOfTurn { self.endTurn() }
  }

  private func endTurn() {
    isTurnEndAwaited = false
    if client != nil, !isShuttingDown { makeRequests() }
    if !results.isEmpty {
      report?(.results(results))
      results.removeAll(keepingCapacity: true)
    }
    if flights.isEmpty, let waiting = whenIdle {
      whenIdle = nil
      waiting.resume()
    }
  }
}

extension PushOutcome {
  /// Whether it may have been caused by one message of the request: the request hung, or the provider failed at it.
  fileprivate var isFailureOfRequest: Bool {
    switch self {
    case .unknown, .unavailable: true
    case .accepted, .tokenInvalid, .rejected, .throttled, .unauthorized, .refused, .deferred, .expired: false
    }
  }
}

extension Result<CurlResponse, CurlFailure> {
  fileprivate var isWithheld: Bool {
    if case .failure(let failure) = self { failure.reason == .withheld } else { false }
  }
}
