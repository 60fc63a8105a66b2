// Expo's push service: many messages a request over a few connections of libcurl.

public import Runtime

/// Sends through one Expo project.
///
/// What `send` takes in one turn of the loop leaves in one request, at once if one may be made, else together with
/// whatever else piles up until then (`ExpoSendQueue`). Answers are read by `ExpoAnswer`.
public actor ExpoProvider: PushProvider {
  public nonisolated let loop: EventLoop
  public nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  private let configuration: ExpoConfiguration
  private let clock: any GatewayClock
  private let url: String
  private let headers: [(name: String, value: String)]
  private var client: CurlClient?
  private var report: (@Sendable (PushProviderEvent) -> Void)?

  private var queue: ExpoSendQueue
  private var flights: [ObjectIdentifier: ExpoFlight] = [:]
  private var queueTimer: EventLoop.Timer?
  private var results: [PushResult] = []
  private var isTurnEndAwaited = false
  private var isShuttingDown = false
  private var whenIdle: CheckedContinuation<Void, Never>?

  /// - Parameter clock: the wall time that a Retry-After date is compared with.
  public init(configuration: ExpoConfiguration, loop: EventLoop, clock: any GatewayClock = SystemClock()) {
    self.configuration = configuration
    self.loop = loop
    self.clock = clock
    url = configuration.url + ExpoRequestWriter.path
    headers =
      [("Content-Type", "application/json"), ("Accept", "application/json")]
      + (configuration.accessToken.map { [("Authorization", "Bearer \($0)")] } ?? [])
    queue = ExpoSendQueue(messagesMax: configuration.messagesMax, requestsMax: configuration.requestsMax)
  }

  // MARK: - PushProvider

  public func start(report: @escaping @Sendable (PushProviderEvent) -> Void) {
    precondition(client == nil, "an ExpoProvider is started once")
    var connections = CurlConfiguration(caFile: configuration.caFile)
    connections.connectionsPerHostMax = configuration.requestsMax
    connections.totalTimeout = configuration.requestTimeout
    client = CurlClient(loop: loop, configuration: connections)
    self.report = report
    report(.capacity(configuration.requestsMax * configuration.messagesMax))
  }

  public func send(_ batch: [PushRequest]) {
    guard client != nil, !isShuttingDown else {
      finish(batch, with: .refused(reason: "ShuttingDown"))
      return
    }
    queue.append(batch)
    awaitTurnEnd()
  }

  public func shutDown(by deadline: Instant) async {
    guard let client, !isShuttingDown else { return }
    isShuttingDown = true
    report?(.capacity(0))
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

  // MARK: - Requests

  private func makeRequests() {
    let now = loop.now
    finish(queue.removeExpired(at: now), with: .expired)
    while let client, let batch = queue.next() { makeRequest(batch, on: client, now: now) }
    queueTimer?.cancel()
    queueTimer = queue.earliestDeadline.map { deadline in loop.schedule(at: deadline) { self.makeRequests() } }
  }

  private func makeRequest(_ batch: ExpoSendQueue.Batch, on client: CurlClient, now: Instant) {
    let flight = ExpoFlight(batch, startedAt: now)
    flights[ObjectIdentifier(flight)] = flight
    watch(flight)
    let request = CurlRequest(
      url: url, headers: headers, body: ExpoRequestWriter.body(batch.requests, now: now), isCompressible: true,
      deadline: flight.latestDeadline)
    client.perform(request) { self.land(flight, with: $0) }
  }

  private func watch(_ flight: ExpoFlight) {
    flight.timer = flight.earliestDeadline.map { deadline in
      loop.schedule(at: deadline) {
        self.add(flight.expire(at: self.loop.now))
        self.watch(flight)
      }
    }
  }

  private func land(_ flight: ExpoFlight, with result: Result<CurlResponse, CurlFailure>) {
    flight.timer?.cancel()
    guard flights.removeValue(forKey: ObjectIdentifier(flight)) != nil else { return }  // given up before
    queue.finishOne()
    let now = loop.now
    let (answer, status, sentAt) =
      switch result {
      case .success(let response):
        (
          ExpoAnswer(response, count: flight.batch.requests.count, wallMilliseconds: clock.wallMilliseconds()),
          response.status, Optional(response.sentAt)
        )
      case .failure(let failure): (ExpoAnswer(failure), UInt16(0), failure.sentAt)
      }
    switch answer {
    case .tickets(let outcomes):
      add(flight.answer(status: status, sentAt: sentAt, now: now) { outcomes[$0] })
    case .all(let outcome):
      add(flight.answer(status: status, sentAt: sentAt, now: now) { _ in outcome })
    case .splitByProject(let projects):
      if flight.batch.isSplit || isShuttingDown {
        let outcome: PushOutcome =
          flight.batch.isSplit
          ? .rejected(reason: "PUSH_TOO_MANY_EXPERIENCE_IDS") : .refused(reason: "ShuttingDown")
        add(flight.answer(status: status, sentAt: sentAt, now: now) { _ in outcome })
      } else {
        queue.append(flight.unanswered, splitBy: projects)
      }
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

  // MARK: - Results, reported once a turn

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
