// Several owners that use one provider: who gets results, and which part of the capacity.

import PushModel
import Runtime
import Synchronization
import TestTime
import Testing

@testable import Providers

/// A provider that does what a test tells it.
private actor ScriptedProvider: PushProvider {
  nonisolated let loop: EventLoop
  nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }
  private(set) var starts = 0
  private(set) var sent: [UInt64] = []
  private(set) var isShutDown = false
  private var report: (@Sendable (PushProviderEvent) -> Void)?

  init(on loop: EventLoop) { self.loop = loop }

  func start(report: @escaping @Sendable (PushProviderEvent) -> Void) {
    starts += 1
    self.report = report
  }
  func send(_ batch: [PushRequest]) { sent += batch.map(\.tag) }
  func withdraw(_ tags: Set<UInt64>) {}
  func retryConnections() {}
  var condition: ProviderCondition { ProviderCondition() }
  func shutDown(by deadline: Instant) { isShutDown = true }

  func tell(_ event: PushProviderEvent) { report?(event) }
  func answer(_ tags: [UInt64]) {
    let now = loop.now
    report?(
      .results(tags.map { PushResult(tag: $0, outcome: .accepted(messageID: nil), sentAt: now, answeredAt: now) }))
  }
}

/// The events of one share, in short.
private final class Reports: Sendable {
  private let events = Mutex<[String]>([])
  var all: [String] { events.withLock { $0 } }

  func hear(_ event: PushProviderEvent) {
    let text =
      switch event {
      case .results(let results): "results \(results.map { RequestTag.slot(of: $0.tag) })"
      case .capacity(let capacity): "capacity \(capacity)"
      case .divided(let parts): "divided \(parts)"
      case .hedged(let tags): "hedged \(tags.map(RequestTag.slot))"
      case .clockSkew: "skew"
      case .renewed: "renewed"
      }
    events.withLock { $0.append(text) }
  }
}

@Suite("Shared provider", .timeLimit(.minutes(10))) struct SharedProviderTests {
  private let clock = ManualClock()
  private let loop: EventLoop
  private let provider: ScriptedProvider
  private let shared: SharedProvider

  init() {
    loop = EventLoop(name: "sharing", clock: clock)
    provider = ScriptedProvider(on: loop)
    shared = SharedProvider(provider)
  }

  private func share(_ owner: Int) async -> (share: ProviderShare, reports: Reports) {
    let (share, reports) = (shared.share(of: owner), Reports())
    await share.start { reports.hear($0) }
    return (share, reports)
  }

  private func request(_ owner: Int, _ slot: Int) -> PushRequest {
    PushRequest(
      tag: RequestTag.make(owner: owner, slot: slot), deliveryID: DeliveryID(high: 1, low: 1), kind: .invite,
      environment: .production, token: [1], body: [1], collapseID: nil, deadline: loop.now + .seconds(30),
      expiresAtMilliseconds: 0)
  }

  @Test("results and hedges go to the owner that sent the request, all other events to every one")
  func routing() async throws {
    let (first, second) = (await share(0), await share(1))
    await provider.tell(.capacity(100))
    await first.share.send([request(0, 5), request(0, 6)])
    await second.share.send([request(1, 5)])
    let tags = await provider.sent
    await provider.tell(.hedged([tags[1]]))
    await provider.answer([tags[2], tags[0]])
    await provider.answer([tags[1]])
    await provider.tell(.renewed)
    #expect(await provider.starts == 1)
    #expect(
      first.reports.all.filter { !$0.hasPrefix("divided") }
        == ["capacity 100", "hedged [6]", "results [5]", "results [6]", "renewed"])
    #expect(
      second.reports.all.filter { !$0.hasPrefix("divided") } == ["capacity 100", "results [5]", "renewed"])
    loop.stop()
  }

  @Test("an owner that is alone has the whole; one that is active has a part, and a quiet one would get a part")
  func division() async throws {
    let (first, second, third) = (await share(0), await share(1), await share(2))
    await first.share.send([request(0, 1)])
    #expect(first.reports.all.isEmpty)
    #expect(second.reports.all == ["divided 2"])
    await second.share.send([request(1, 1)])
    #expect(first.reports.all == ["divided 2"])
    #expect(second.reports.all == ["divided 2"])
    #expect(third.reports.all == ["divided 2", "divided 3"])
    // The second's call has ended, and it sends nothing more for a while.
    await provider.answer([RequestTag.make(owner: 1, slot: 1)])
    clock.advance(.milliseconds(1_100))
    await first.share.send([request(0, 2)])
    #expect(first.reports.all == ["divided 2", "divided 1"])
    #expect(third.reports.all.last == "divided 2")
    loop.stop()
  }

  @Test("an owner that starts later is told the capacity, and one that ends waits for its own results only")
  func ends() async throws {
    let first = await share(0)
    await provider.tell(.capacity(7))
    let second = await share(1)
    #expect(second.reports.all == ["capacity 7"])
    await first.share.send([request(0, 1)])
    await second.share.send([request(1, 1)])
    async let end: Void = first.share.shutDown(by: loop.now + .seconds(5))
    // The end waits for the result of its own request.
    await provider.answer([RequestTag.make(owner: 0, slot: 1)])
    await end
    #expect(first.reports.all.last == "results [1]")
    #expect(await provider.isShutDown == false)
    await second.share.shutDown(by: loop.now + .seconds(5))
    #expect(await provider.isShutDown)
    loop.stop()
  }
}
