// Several dispatchers that use one provider: who gets results, capacity and news.

import Dialects
import Providers
import PushModel
import Queue
import Runtime
import Synchronization
import Testing

@testable import Dispatching

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
  private let loop = EventLoop(name: "sharing")
  private let provider: ScriptedProvider
  private let shared: SharedProvider

  init() {
    provider = ScriptedProvider(on: loop)
    shared = SharedProvider(provider)
  }

  private func share(_ dispatcher: Int) async -> (share: ProviderShare, reports: Reports) {
    let (share, reports) = (shared.share(of: dispatcher), Reports())
    await share.start { reports.hear($0) }
    return (share, reports)
  }

  private func request(_ dispatcher: Int, _ slot: Int) -> PushRequest {
    PushRequest(
      tag: RequestTag.make(dispatcher: dispatcher, slot: slot), deliveryID: DeliveryID(high: 1, low: 1), kind: .invite,
      environment: .production, token: [1], body: [1], collapseID: nil, deadline: loop.now + .seconds(30),
      expiresAtMilliseconds: 0)
  }

  @Test("results and hedges go to the dispatcher that sent the request, all other events to every one")
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

  @Test("a dispatcher that is alone has the whole; one that is active has a part, and a quiet one would get a part")
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
    await provider.answer([RequestTag.make(dispatcher: 1, slot: 1)])
    try await Task.sleep(for: .milliseconds(1_100))
    await first.share.send([request(0, 2)])
    #expect(first.reports.all == ["divided 2", "divided 1"])
    #expect(third.reports.all.last == "divided 2")
    loop.stop()
  }

  @Test("a dispatcher that starts later is told the capacity, and one that ends waits for its own results only")
  func ends() async throws {
    let first = await share(0)
    await provider.tell(.capacity(7))
    let second = await share(1)
    #expect(second.reports.all == ["capacity 7"])
    await first.share.send([request(0, 1)])
    await second.share.send([request(1, 1)])
    async let end: Void = first.share.shutDown(by: loop.now + .seconds(5))
    // The end waits for the result of its own request.
    await provider.answer([RequestTag.make(dispatcher: 0, slot: 1)])
    await end
    #expect(first.reports.all.last == "results [1]")
    #expect(await provider.isShutDown == false)
    await second.share.shutDown(by: loop.now + .seconds(5))
    #expect(await provider.isShutDown)
    loop.stop()
  }
}

@Suite("Lane board", .timeLimit(.minutes(10))) struct LaneBoardTests {
  private let loop = EventLoop(name: "board")
  private let board: LaneBoard
  private let heard = Heard()

  /// What the dispatcher that joins last is told.
  private final class Heard: Sendable {
    private let kept = Mutex<[LaneNews]>([])
    var all: [LaneNews] { kept.withLock { $0 } }
    func keep(_ news: LaneNews) { kept.withLock { $0.append(news) } }
  }

  init() { board = LaneBoard(on: loop) }

  /// What a dispatcher is told that joins after these news.
  private func joins(
    after change: @escaping @Sendable (LaneBoard, Instant) -> Void
  ) async -> (told: [LaneNews], at: Instant) {
    defer { loop.stop() }
    return await withCheckedContinuation { continuation in
      loop.execute { [loop, board, heard] in
        let now = loop.now
        change(board, now)
        board.join(9) { heard.keep($0) }
        continuation.resume(returning: (heard.all, now))
      }
    }
  }

  @Test("a dispatcher that takes over is told of the open circuit and of the pause")
  func takesOver() async {
    let (told, now) = await joins { board, now in
      board.post(.throttled(until: now + .seconds(90)), from: 0)
      board.post(.throttled(until: now + .seconds(60)), from: 1)
      board.post(.circuitOpened(until: now + .seconds(15)), from: 0)
    }
    #expect(told == [.circuitOpened(until: now + .seconds(15)), .throttled(until: now + .seconds(90))])
  }

  @Test("it is not told of what is over")
  func over() async {
    let (told, _) = await joins { board, now in
      board.post(.circuitOpened(until: now + .seconds(15)), from: 0)
      board.post(.circuitClosed, from: 1)
      board.post(.throttled(until: now - .seconds(1)), from: 0)
    }
    #expect(told == [])
  }

  @Test("with other credentials it tries at once")
  func otherCredentials() async throws {
    let (told, now) = await joins { board, now in
      board.post(.circuitOpened(until: now + .seconds(15)), from: 0)
      board.credentialsChanged()
    }
    guard case .circuitOpened(let until)? = told.first, told.count == 1 else {
      Issue.record("\(told)")
      return
    }
    #expect(until < now + .seconds(15))
  }
}

@Suite("Lane news") struct LaneNewsTests {
  private static func told(_ rig: inout MachineRig) -> [LaneNews] {
    rig.take { if case .tell(_, let news) = $0 { news } else { nil } }
  }

  @Test("a dispatcher tells others that the circuit opened, and that it closed")
  func tells() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1)])
    rig.answer(rig.sends(), .unauthorized(reason: "InvalidProviderToken"))
    #expect(Self.told(&rig) == [.circuitOpened(until: rig.now + .seconds(1))])
    rig.live(.milliseconds(1_100))
    // The delivery itself is the probe: it is sent again when the circuit is half open.
    rig.answer(rig.sends())
    #expect(Self.told(&rig) == [.circuitClosed])
  }

  @Test(
    "an outcome that concerns only one of the lane's services never opens the circuit",
    arguments: [
      PushOutcome.unauthorized(reason: "HTTP403"), .unavailable(reason: "HTTP503", after: nil),
      .unknown(reason: "ConnectionLost"), .unknown(reason: "TimedOut"),
    ])
  func originOnly(_ outcome: PushOutcome) throws {
    for concernsLane in [true, false] {
      var rig = try MachineRig.open()
      try rig.bring((1...30).map { rig.delivery($0) })
      rig.answer(rig.sends(), outcome, concernsLane: concernsLane)
      let isOpened = Self.told(&rig).contains { if case .circuitOpened = $0 { true } else { false } }
      #expect(isOpened == concernsLane)
    }
  }

  @Test("a dispatcher that is told of an open circuit claims nothing until it is over, or is told that it closed")
  func hears() throws {
    var rig = try MachineRig.open()
    try rig.bring([])
    rig.hear(.told(.circuitOpened(until: rig.now + .seconds(4)), lane: 0))
    rig.hear(.outbox(.bell))
    rig.live(.seconds(3))
    #expect(rig.claims() == [])
    #expect(Self.told(&rig) == [], "what was told is not told on")
    rig.hear(.told(.circuitClosed, lane: 0))
    rig.hear(.outbox(.bell))
    rig.live(.milliseconds(100))
    #expect(rig.claims().count == 1)
  }

  @Test("a pause of the whole account and a quarantine hold for every dispatcher")
  func pauses() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1)])
    rig.answer(rig.sends(), .throttled(reason: "QUOTA_EXCEEDED", after: .seconds(9), isLaneWide: true))
    #expect(Self.told(&rig) == [.throttled(until: rig.now + .seconds(9))])

    var other = try MachineRig.open()
    try other.bring([])
    other.hear(.told(.throttled(until: other.now + .seconds(9)), lane: 0))
    other.hear(.told(.invalidationHeld(note: "30 of 100"), lane: 0))
    other.live(.milliseconds(100))
    let holds = other.take { action -> InvalidationHold? in
      if case .write(_, .hold(let holds)) = action { holds.first } else { nil }
    }
    #expect(holds.map(\.note) == ["30 of 100"])
    other.hear(.outbox(.bell))
    other.live(.seconds(8))
    #expect(other.claims() == [])
  }

  @Test("capacity and rate are divided, and a lane with any capacity may send one")
  func divided() {
    var scheduler = LaneScheduler()
    scheduler.add(lane: 1, window: 1_000, perSecond: 1_000)
    scheduler.setCapacity(10, of: 1)
    let now = MachineRig.start
    #expect(scheduler.allowances(now).map(\.limit) == [20])
    scheduler.divide(1, among: 2)
    #expect(scheduler.allowances(now).map(\.limit) == [10])
    scheduler.divide(1, among: 100)
    #expect(scheduler.allowances(now).map(\.limit) == [1])
    scheduler.divide(1, among: 1)
    #expect(scheduler.allowances(now + .seconds(1)).map(\.limit) == [20])
  }

  @Test(
    "a busy lane claims again when a quarter of its room is free, and half of it if the provider is shared",
    arguments: [(parts: 1, most: 24, enough: 6), (parts: 3, most: 8, enough: 4)])
  func worthAClaim(_ example: (parts: Int, most: Int, enough: Int)) {
    var scheduler = LaneScheduler()
    scheduler.add(lane: 1, window: 1_000)
    scheduler.setCapacity(12, of: 1)
    scheduler.divide(1, among: example.parts)
    let now = MachineRig.start
    #expect(scheduler.allowances(now).map(\.limit) == [Int32(example.most)])
    scheduler.didClaim(example.most, of: 1)
    scheduler.didFinishClaim()
    for _ in 1..<example.enough {
      scheduler.didFinish(1)
      #expect(scheduler.allowances(now).isEmpty)
    }
    scheduler.didFinish(1)
    #expect(scheduler.allowances(now).map(\.limit) == [Int32(example.enough)])
  }

  @Test("pushes without an answer do not stop a lane whose provider answers others")
  func unanswered() throws {
    var rig = try MachineRig.open()
    try rig.bring((1...25).map { rig.delivery(Int64($0)) })
    let (silent, sentAt) = (rig.sends(), rig.now)
    #expect(silent.count == 25)
    rig.live(.milliseconds(100))
    try rig.bring([rig.delivery(26)])
    rig.answer(rig.sends())
    rig.live(.seconds(1))
    rig.hear(
      .provider(
        .results(
          silent.map {
            PushResult(tag: $0.tag, outcome: .unknown(reason: "TimedOut"), sentAt: sentAt, answeredAt: rig.now)
          }), lane: 0))
    #expect(Self.told(&rig) == [])
  }
}
