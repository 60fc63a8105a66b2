// The provider for web push: the push services of one lane (`WebPushService`).
//
// Each origin has an `HTTP2Sender` of its own: connections, VAPID token, requests in flight. It is opened at the first push to the
// origin and closed when the origin is idle. What the answers mean for the lane is decided as for every other provider.
//
// Web pushes get no hedges: a browser would show both pushes of a call.

public import Logging
internal import PushModel
public import Runtime

/// Sends the web pushes of one app. An actor on an event loop.
public actor WebPushProvider: PushProvider {
  public nonisolated let loop: EventLoop
  public nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  private let configuration: WebPushConfiguration
  private let clock: any GatewayClock
  private let permits: SendPermits?
  private let logger: Logger
  private var credentials: WebPushCredentials
  private var report: ((PushProviderEvent) -> Void)?

  private var origins: [WebPushOrigin: WebPushOriginConnections] = [:]
  /// All connections by generation: those of `origins`, and those of closed origins until they have finished their requests.
  private var all: [Int: WebPushOriginConnections] = [:]
  private var generations = 0
  /// The history of the connections to closed origins.
  private var former = ProviderCondition()
  private var results: [PushResult] = []
  private var isReportScheduled = false
  private var idleTimer: EventLoop.Timer?
  private var isShuttingDown = false
  private var whenRetired: CheckedContinuation<Void, Never>?

  /// - Parameters:
  ///   - logger: a logger with the app's name in its metadata. Endpoints, keys and payloads are never logged.
  ///   - permits: the permits of its requests; nil: they may always be written.
  public init(
    _ configuration: WebPushConfiguration, credentials: WebPushCredentials, loop: EventLoop, logger: Logger,
    permits: SendPermits? = nil, clock: any GatewayClock = SystemClock()
  ) {
    self.configuration = configuration
    self.credentials = credentials
    self.loop = loop
    self.logger = logger
    self.permits = permits
    self.clock = clock
  }

  // MARK: - PushProvider

  /// The capacity does not depend on connections: which origins there are is known only from the pushes.
  public func start(report: @escaping @Sendable (PushProviderEvent) -> Void) {
    precondition(self.report == nil, "a WebPushProvider is started once")
    self.report = report
    report(.capacity(configuration.requestsMax))
  }

  public func send(_ batch: [PushRequest]) {
    let now = loop.now
    var touched: [WebPushOriginConnections] = []
    for request in batch {
      switch route(request, now) {
      case .success(let connections):
        if connections.outgoing.count == 1 { touched.append(connections) }
      case .failure(let refusal): finish(request.tag, refusal, now)
      }
    }
    for connections in touched {
      let outgoing = connections.outgoing
      connections.outgoing = []
      connections.inFlight += outgoing.count
      connections.lastUsedAt = now
      connections.sender.send(outgoing)
    }
  }

  public func withdraw(_ tags: Set<UInt64>) {
    for connections in origins.values { connections.sender.withdraw(tags) }
  }

  public func retryConnections() {
    for connections in origins.values { connections.sender.retryConnections() }
    report?(.renewed)
  }

  /// From now on, uses another VAPID key or subject. The connections stay, and requests carry a token of the new key as soon as it is
  /// signed. A browser accepts pushes only with the key for which it subscribed.
  public func rotate(to credentials: WebPushCredentials) {
    guard credentials.identity != self.credentials.identity else { return }
    self.credentials = credentials
    for connections in origins.values { connections.sender.rotate(to: tokens(for: connections.origin)) }
    report?(.renewed)
  }

  /// The path of an endpoint is a secret. Nil if the token names no push service.
  public func preview(_ request: PushRequest) -> PushPreview? {
    guard let origin = WebPushSubscription.origin(ofToken: request.token) else { return nil }
    let endpoint = HTTP2Endpoint(
      host: origin.host, port: origin.port, tls: configuration.tls, proxy: configuration.proxy)
    let masked = PushRequest(
      tag: request.tag, deliveryID: request.deliveryID, kind: request.kind, environment: request.environment,
      token: Array("/\(PushPreview.ellipsis)".utf8)[...], body: request.body, collapseID: request.collapseID,
      deadline: request.deadline, expiresAtMilliseconds: request.expiresAtMilliseconds, manner: request.manner)
    return PushPreview(WebPushFormat(endpoint, origin), masked, loop: loop)
  }

  public var condition: ProviderCondition {
    var condition = former
    for connections in all.values {
      Self.add(connections.sender.condition, to: &condition)
    }
    return condition
  }

  public func shutDown(by deadline: Instant) async {
    guard !isShuttingDown else { return }
    isShuttingDown = true
    idleTimer?.cancel()
    report?(.capacity(0))
    for connections in origins.values { retire(connections, by: deadline) }
    origins = [:]
    if !all.isEmpty {
      await withCheckedContinuation { whenRetired = $0 }
    }
    deliverReport()
  }

  // MARK: - Requests

  /// The outcome of a push that is not sent.
  private struct Refusal: Error {
    let outcome: PushOutcome

    init(_ outcome: PushOutcome) { self.outcome = outcome }
    init(_ refusal: WebPushRefusal) { outcome = .rejected(reason: refusal.rawValue) }
  }

  /// Adds a push to the outgoing ones of its origin, encrypted.
  private func route(_ request: PushRequest, _ now: Instant) -> Result<WebPushOriginConnections, Refusal> {
    guard !isShuttingDown else { return .failure(Refusal(.refused(reason: "ShuttingDown"))) }
    guard request.deadline > now else { return .failure(Refusal(.expired)) }
    return seal(request, now).map { connections, sealed in
      connections.outgoing.append(sealed)
      return connections
    }
  }

  /// Encrypts a push, and finds the connections to its origin.
  private func seal(
    _ request: PushRequest, _ now: Instant
  ) -> Result<(WebPushOriginConnections, PushRequest), Refusal> {
    guard let subscription = try? WebPushSubscription(token: request.token) else {
      return .failure(Refusal(.malformedSubscription))
    }
    guard configuration.allowedOrigins.allows(subscription.origin) else { return .failure(Refusal(.originNotAllowed)) }
    guard request.body.count <= WebPushEncryption.plaintextBytesMax else { return .failure(Refusal(.payloadTooLarge)) }
    guard let connections = connections(to: subscription.origin, now) else {
      return .failure(Refusal(Self.tooManyOrigins))
    }
    guard let body = WebPushEncryption.encrypt(request.body, for: subscription) else {
      return .failure(Refusal(.unavailable(reason: WebPushRefusal.encryptionFailed.rawValue, after: nil)))
    }
    let sealed = PushRequest(
      tag: request.tag, deliveryID: request.deliveryID, kind: request.kind, environment: request.environment,
      token: subscription.path, body: body, collapseID: request.collapseID, deadline: request.deadline,
      expiresAtMilliseconds: request.expiresAtMilliseconds, manner: request.manner,
      avoidedConnection: request.avoidedConnection.flatMap(connections.ownNumber))
    (sealed.permit, sealed.isRepeat, sealed.original) = (request.permit, request.isRepeat, request)
    return .success((connections, sealed))
  }

  // MARK: - Origins

  /// The connections to an origin, opened if necessary. Nil if there are too many origins with requests in flight.
  private func connections(to origin: WebPushOrigin, _ now: Instant) -> WebPushOriginConnections? {
    if let connections = origins[origin] { return connections }
    if origins.count >= configuration.originsMax {
      guard let oldest = replaceable() else { return nil }
      close(oldest)
    }
    let endpoint = HTTP2Endpoint(
      host: origin.host, port: origin.port, tls: configuration.tls, proxy: configuration.proxy)
    let sender = HTTP2Sender(
      WebPushFormat(endpoint, origin), settings: configuration.pool, tokens: tokens(for: origin), permits: permits,
      clock: clock, loop: loop, logger: logger)
    generations += 1
    let connections = WebPushOriginConnections(origin, sender, generation: generations, now)
    origins[origin] = connections
    all[connections.generation] = connections
    // The sender keeps this provider alive until it has been shut down.
    let generation = connections.generation
    sender.report = { event in self.handle(event, ofGeneration: generation) }
    logger.debug("web push: the connections to a push service are opened", metadata: ["host": "\(origin.host)"])
    sender.start()
    watchIdleOrigins()
    return connections
  }

  /// The origin that makes room for another: one without a connection, else one without requests in flight, of several the one that
  /// was used least recently. Nil if there is none. Host names that lead nowhere must not keep pushes from other push services.
  private func replaceable() -> WebPushOriginConnections? {
    let free = origins.values.filter { $0.outgoing.isEmpty }
    let unconnected = free.filter { $0.sender.condition.openConnections == 0 }
    let candidates = unconnected.isEmpty ? free.filter { $0.inFlight == 0 } : unconnected
    return candidates.min { $0.lastUsedAt < $1.lastUsedAt }
  }

  private func tokens(for origin: WebPushOrigin) -> WebPushTokenSource {
    WebPushTokenSource(credentials, for: origin, clock: clock)
  }

  private func watchIdleOrigins() {
    guard idleTimer == nil, let oldest = origins.values.lazy.map(\.lastUsedAt).min() else { return }
    let due = max(oldest + configuration.idleTimeMax, loop.now + configuration.idleTimeMax / 4)
    idleTimer = loop.schedule(at: due) { self.closeIdleOrigins() }
  }

  private func closeIdleOrigins() {
    idleTimer = nil
    let idleSince = loop.now - configuration.idleTimeMax
    for connections in origins.values where connections.inFlight == 0 && connections.lastUsedAt <= idleSince {
      close(connections)
    }
    watchIdleOrigins()
  }

  private func close(_ connections: WebPushOriginConnections) {
    origins[connections.origin] = nil
    logger.debug(
      "web push: the connections to a push service are closed", metadata: ["host": "\(connections.origin.host)"])
    retire(connections, by: loop.now + .seconds(1))
  }

  private func retire(_ connections: WebPushOriginConnections, by deadline: Instant) {
    let generation = connections.generation
    connections.sender.shutDown(by: deadline) { self.didRetire(generation) }
  }

  private func didRetire(_ generation: Int) {
    guard let connections = all.removeValue(forKey: generation) else { return }
    var condition = connections.sender.condition
    (condition.openConnections, condition.connectingConnections) = (0, 0)
    condition.unanswered = .zero
    condition.tokenIssuedAtMilliseconds = nil
    Self.add(condition, to: &former)
    guard all.isEmpty, let waiting = whenRetired else { return }
    whenRetired = nil
    waiting.resume()
  }

  private static func add(_ other: ProviderCondition, to sum: inout ProviderCondition) {
    sum.openConnections += other.openConnections
    sum.connectingConnections += other.connectingConnections
    sum.goAways.merge(other.goAways, uniquingKeysWith: +)
    sum.replacements.merge(other.replacements, uniquingKeysWith: +)
    sum.unanswered = max(sum.unanswered, other.unanswered)
    // The oldest token, because it shows that renewals fail.
    if let issuedAt = other.tokenIssuedAtMilliseconds {
      sum.tokenIssuedAtMilliseconds = min(sum.tokenIssuedAtMilliseconds ?? issuedAt, issuedAt)
    }
  }

  // MARK: - Events of a sender

  private func handle(_ event: PushProviderEvent, ofGeneration generation: Int) {
    guard let connections = all[generation] else { return }  // its capacity ends after its shutdown
    switch event {
    case .results(let batch):
      let now = loop.now
      connections.inFlight -= batch.count
      for result in batch { finish(result, of: connections, now) }
    case .clockSkew, .renewed: report?(event)
    case .capacity, .hedged, .divided: break
    }
  }

  private func finish(_ result: PushResult, of connections: WebPushOriginConnections, _ now: Instant) {
    var result = result
    switch result.outcome {
    case .unauthorized:
      // The clock may have been wrong when the token was signed.
      connections.sender.renewToken(ofAge: Self.tokenAgeMin)
    case .refused where !isShuttingDown && origins[connections.origin] !== connections:
      // The origin has made room for another. If its pushes were sent again at once, it would displace the next origin, and so on.
      result.outcome = Self.tooManyOrigins
    default: break
    }
    result.connection = result.connection.map(connections.publicNumber)
    results.append(result)
    scheduleReport()
  }

  /// The age from which a refused token is replaced.
  private static let tokenAgeMin = Nanoseconds.seconds(60)

  /// The outcome of a push to an origin for which there is no room.
  private static let tooManyOrigins = PushOutcome.deferred(
    reason: WebPushRefusal.tooManyOrigins.rawValue, after: .seconds(1))

  // MARK: - Results, reported once a turn

  private func finish(_ tag: UInt64, _ refusal: Refusal, _ now: Instant) {
    var result = PushResult(tag: tag, outcome: refusal.outcome, sentAt: nil, answeredAt: now)
    result.concernsLane = false
    results.append(result)
    scheduleReport()
  }

  private func scheduleReport() {
    guard !isReportScheduled else { return }
    isReportScheduled = true
    loop.atEndOfTurn { self.deliverReport() }
  }

  private func deliverReport() {
    isReportScheduled = false
    guard !results.isEmpty else { return }
    let batch = results
    results = []
    report?(.results(batch))
  }
}
