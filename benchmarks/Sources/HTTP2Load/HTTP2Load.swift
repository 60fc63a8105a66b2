// Keeps a number of pushes in flight until all have been answered, on the provider's loop, as the dispatcher does.

import Dialects
import Providers
import PushModel
import Queue
import Runtime

/// A sender of pushes, which renders each push when there is room for it.
actor HTTP2Load {
  /// The results.
  struct Counts: Sendable {
    var accepted = 0
    var bodyBytes = 0
    /// The first outcome that was not a success.
    var failure = "none"
  }

  nonisolated let loop: EventLoop
  nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }
  private let provider: HTTP2Provider
  private let planner: CallPlanner
  private let deliveries: [Delivery]
  private let requests: Int
  private let inFlightMax: Int
  /// One for each delivery, all with the same payload, if nothing is to be rendered; else empty.
  private let rendered: [PushRequest]
  private var isReady = false
  private var sent = 0
  private var ended = 0
  private var counts = Counts()
  private var finished: CheckedContinuation<Counts, Never>?

  /// - Parameters:
  ///   - deliveries: sent in turns.
  ///   - requests: total number of pushes.
  ///   - hasOnePayload: the first delivery's payload is rendered once and sent to all devices; else each push has its own.
  init(
    provider: HTTP2Provider, planner: CallPlanner, deliveries: [Delivery], requests: Int, inFlightMax: Int,
    hasOnePayload: Bool
  ) {
    loop = provider.loop
    self.provider = provider
    self.planner = planner
    self.deliveries = deliveries
    self.requests = requests
    self.inFlightMax = inFlightMax
    guard hasOnePayload else {
      rendered = []
      return
    }
    let now = loop.now
    rendered = deliveries.map { Self.render($0, by: planner, now: now, tag: 0) }
  }

  /// Connects, sends everything and waits for the last answer.
  func run() async -> Counts {
    await withCheckedContinuation { continuation in
      finished = continuation
      provider.assumeIsolated { provider in
        provider.start { [self] event in
          assumeIsolated { $0.handle(event) }
        }
      }
    }
  }

  func stop() async {
    await provider.shutDown(by: loop.now + .seconds(1))
  }

  private func handle(_ event: PushProviderEvent) {
    switch event {
    case .capacity(let capacity): isReady = capacity > 0
    case .results(let results): results.forEach(count)
    case .hedged, .clockSkew, .renewed, .divided: break
    }
    if isReady { send() }
    guard ended == requests, let finished else { return }
    self.finished = nil
    finished.resume(returning: counts)
  }

  private func count(_ result: PushResult) {
    ended += 1
    if case .accepted = result.outcome {
      counts.accepted += 1
    } else if counts.failure == "none" {
      counts.failure = "\(result.outcome), status \(result.status)"
    }
  }

  private func send() {
    let room = min(inFlightMax - (sent - ended), requests - sent)
    guard room > 0 else { return }
    let now = loop.now
    var batch: [PushRequest] = []
    batch.reserveCapacity(room)
    for _ in 0..<room {
      let request = next(now)
      counts.bodyBytes += request.body.count
      batch.append(request)
      sent += 1
    }
    provider.assumeIsolated { $0.send(batch) }
  }

  /// The next push, rendered now or beforehand.
  private func next(_ now: Instant) -> PushRequest {
    let number = sent % deliveries.count
    guard !rendered.isEmpty else {
      return Self.render(deliveries[number], by: planner, now: now, tag: UInt64(sent))
    }
    let before = rendered[number]
    return PushRequest(
      tag: UInt64(sent), deliveryID: before.deliveryID, kind: before.kind, environment: before.environment,
      token: before.token, body: rendered[0].body, collapseID: before.collapseID, deadline: before.deadline,
      expiresAtMilliseconds: before.expiresAtMilliseconds, manner: before.manner)
  }

  private static func render(_ delivery: Delivery, by planner: CallPlanner, now: Instant, tag: UInt64) -> PushRequest {
    guard case .success(let request) = planner.plan(delivery, now: now, tag: tag) else {
      preconditionFailure("a delivery of our own making cannot be rendered")
    }
    return request
  }
}
