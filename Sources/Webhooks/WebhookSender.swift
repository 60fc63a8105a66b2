// Sends the events of one database to the receivers. It has a loop and a connection of its own, so a slow receiver or a slow
// statement delays no push.

package import Logging
internal import Providers
internal import Queue
package import Runtime

/// Carries out what `WebhookMachine` decides. An actor on the loop of webhooks.
package actor WebhookSender {
  package nonisolated let loop: EventLoop
  package nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  /// An app's receiver, and the connections to it.
  private struct Receiver {
    var endpoint: WebhookEndpoint
    let client: CurlClient
  }

  /// Maximum size of an answer. Nothing in it is used.
  private static let answerBytesMax = 64 * 1024

  private let queue: WebhookQueue
  private let caFile: String?
  private let counters: WebhookCounters
  private let clock: any GatewayClock
  private let logger: Logger
  private var machine: WebhookMachine
  private var receivers: [String: Receiver] = [:]
  /// Apps of the configuration, now or formerly, that have no webhook.
  private var others: Set<String> = []
  private var timer: EventLoop.Timer?
  private var isTroubled = false
  /// How often in a row apps were locked when they were to be registered.
  private var registrationsInPart = 0
  private var isClosed = false
  private var closing: CheckedContinuation<Void, Never>?

  /// - Parameters:
  ///   - url: of the database.
  ///   - caFile: a PEM file of authorities trusted in addition to the system's.
  package init(
    url: String, caFile: String?, counters: WebhookCounters, loop: EventLoop, clock: any GatewayClock = SystemClock(),
    logger: Logger
  ) {
    self.loop = loop
    self.caFile = caFile
    self.counters = counters
    self.clock = clock
    self.logger = logger
    queue = WebhookQueue(url: url, loop: loop, logger: logger)
    machine = WebhookMachine(seed: UInt64.random(in: .min ... .max))
  }

  // MARK: - Configuration

  /// Uses these endpoints from now on.
  ///
  /// - Parameter apps: all apps of the configuration. Those without an endpoint have no webhook.
  package func use(_ endpoints: [WebhookEndpoint], apps: [String]) {
    guard !isClosed else { return }
    let names = Set(endpoints.map(\.app))
    others = others.union(apps).union(receivers.keys).subtracting(names)
    for (app, receiver) in receivers where !names.contains(app) {
      receiver.client.close()
      receivers[app] = nil
    }
    for endpoint in endpoints {
      if let former = receivers[endpoint.app] {
        if former.endpoint.proxy === endpoint.proxy, former.endpoint.timeout == endpoint.timeout {
          receivers[endpoint.app]?.endpoint = endpoint
          continue
        }
        former.client.close()
      }
      receivers[endpoint.app] = Receiver(endpoint: endpoint, client: client(for: endpoint))
    }
    counters.add(apps: endpoints.map(\.app))
    handle(.configure(endpoints.map { (app: $0.app, urlDigest: $0.urlDigest, timeout: $0.timeout) }))
  }

  private func client(for endpoint: WebhookEndpoint) -> CurlClient {
    var configuration = CurlConfiguration(caFile: caFile)
    configuration.proxy = endpoint.proxy
    configuration.connectionsPerHostMax = WebhookMachine.inFlightMax
    configuration.responseSizeMax = Self.answerBytesMax
    configuration.totalTimeout = endpoint.timeout
    return CurlClient(loop: loop, configuration: configuration)
  }

  // MARK: - End

  /// Claims nothing more, waits until `deadline` for requests under way, writes their results and closes the
  /// connections. Events whose result is not known are sent again by another gateway, after their lease.
  package func stop(by deadline: Instant) async {
    guard !isClosed else { return }
    let limit = loop.schedule(at: deadline) { [weak self] in self?.assumeIsolated { $0.handle(.abandon) } }
    // A statement that hangs has its own limit.
    let last = loop.schedule(at: deadline + .seconds(2)) { [weak self] in self?.assumeIsolated { $0.didClose() } }
    await withCheckedContinuation { continuation in
      closing = continuation
      handle(.stop)
    }
    limit.cancel()
    last.cancel()
    await queue.close()
  }

  private func didClose() {
    isClosed = true
    timer?.cancel()
    for receiver in receivers.values { receiver.client.close() }
    receivers = [:]
    closing?.resume()
    closing = nil
  }

  // MARK: - Actions

  private func handle(_ event: WebhookMachine.Event) {
    guard !isClosed else { return }
    for action in machine.handle(event, now: loop.now) { carryOut(action) }
  }

  private func carryOut(_ action: WebhookMachine.Action) {
    switch action {
    case .register: run { sender throws(PostgresPool.Failure) in try await sender.register() }
    case .settle(let results):
      run { sender throws(PostgresPool.Failure) in
        try await sender.queue.settle(results)
        return .written
      }
    case .claim(let claims):
      run { sender throws(PostgresPool.Failure) in .claimed(try await sender.queue.claim(claims)) }
    case .send(let claimed): send(claimed)
    case .wake(let instant):
      timer?.cancel()
      timer = loop.schedule(at: instant) { [weak self] in self?.assumeIsolated { $0.handle(.wake) } }
    case .tellFailing(let app, let answer):
      var metadata = metadata(of: app)
      switch answer {
      case .status(let status, _): metadata["status"] = .stringConvertible(status)
      case .none(let reason): metadata["reason"] = "\(reason)"
      case .withdrawn: break
      }
      logger.warning("A webhook's receiver does not acknowledge events: they are sent again", metadata: metadata)
    case .tellGone(let app):
      logger.error(
        "A webhook's receiver answered 410: no events are sent until the URL changes", metadata: metadata(of: app))
    case .tellRecovered(let app):
      logger.notice("A webhook's receiver acknowledges events again", metadata: metadata(of: app))
    case .close: didClose()
    }
  }

  private func metadata(of app: String) -> Logger.Metadata {
    var metadata: Logger.Metadata = ["app": "\(app)"]
    if let host = receivers[app]?.endpoint.host { metadata["host"] = "\(host)" }
    return metadata
  }

  private func register() async throws(PostgresPool.Failure) -> WebhookMachine.Event {
    let endpoints = receivers.values.map(\.endpoint)
    let locked = try await queue.register(endpoints, others: others.sorted())
    guard locked.isEmpty else {
      registrationsInPart += 1
      // Another replica that registers them has locked them for a moment.
      if registrationsInPart == 3 {
        logger.warning(
          "Webhooks wait for a transaction that has locked them: they stay as they were",
          metadata: ["apps": "\(locked.joined(separator: ", "))"])
      }
      return .registeredInPart
    }
    registrationsInPart = 0
    if endpoints.isEmpty { await queue.close() }
    return .written
  }

  private func run(
    _ statement: @escaping @Sendable (isolated WebhookSender) async throws(PostgresPool.Failure) -> WebhookMachine.Event
  ) {
    Task {
      do throws(PostgresPool.Failure) {
        let event = try await statement(self)
        isTroubled = false
        handle(event)
      } catch {
        if !isTroubled {
          isTroubled = true
          logger.warning("Webhooks wait: the database did not answer", metadata: ["reason": "\(error)"])
        }
        handle(.databaseFailed)
      }
    }
  }

  // MARK: - Requests

  private func send(_ claimed: ClaimedWebhook) {
    guard let receiver = receivers[claimed.app] else { return handle(.answered(claimed, .withdrawn)) }
    let endpoint = receiver.endpoint
    let timestamp = "\(clock.wallMilliseconds() / 1000)"
    let request = CurlRequest(
      url: endpoint.url,
      headers: [
        ("Content-Type", "application/json"), ("webhook-id", claimed.event), ("webhook-timestamp", timestamp),
        (
          "webhook-signature",
          endpoint.secrets.signature(id: claimed.event, timestamp: timestamp, body: claimed.body)
        ),
      ],
      body: claimed.body, deadline: loop.now + endpoint.timeout)
    receiver.client.perform(request) { [weak self] result in
      self?.assumeIsolated { sender in
        let answer = sender.answer(result)
        sender.counters.note(claimed.app, answer)
        sender.handle(.answered(claimed, answer))
      }
    }
  }

  private func answer(_ result: Result<CurlResponse, CurlFailure>) -> WebhookAnswer {
    switch result {
    case .success(let response):
      .status(
        response.status,
        retryAfter: response.retryAfter.flatMap {
          RetryAfter.parse($0, date: response.date, wallMilliseconds: clock.wallMilliseconds())
        })
    case .failure(let failure) where failure.reason == .closed: .withdrawn
    case .failure(let failure): .none(reason: failure.reason.rawValue)
    }
  }
}
