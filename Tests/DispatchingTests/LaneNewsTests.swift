// What several dispatchers on one lane tell each other, and what they do with what they are told.

import Providers
import PushModel
import Queue
import Runtime
import Testing

@testable import Dispatching

@Suite("Lane news") struct LaneNewsTests {
  private static func told(_ rig: inout MachineRig) -> [LaneNews] {
    rig.take { if case .tell(_, let news) = $0 { news } else { nil } }
  }

  @Test("a dispatcher tells others that the circuit opened, and that it closed")
  func tells() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1), rig.delivery(2)])
    rig.answer(rig.sends(), .unauthorized(reason: "InvalidProviderToken"))
    #expect(Self.told(&rig) == [.circuitOpened(until: rig.now + .seconds(1))])
    rig.live(.milliseconds(1_100))
    // It was handed on, and comes back as the probe.
    try rig.bring([rig.delivery(1).attempted(1)])
    rig.answer(rig.sends())
    #expect(Self.told(&rig) == [.circuitClosed])
  }

  @Test("what is refused before it leaves does not show that the provider works")
  func refusedHere() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1), rig.delivery(2)])
    rig.answer(rig.sends(), .unknown(reason: "TimedOut"))
    #expect(!rig.machine.scheduler.isWell(MachineRig.lane))
    rig.hear(.outbox(.bell))
    rig.live(.milliseconds(100))
    try rig.bring([rig.delivery(3)])
    let tag = try #require(rig.sends().first).tag
    let result = PushResult(tag: tag, outcome: .rejected(reason: "TokenMalformed"), sentAt: nil, answeredAt: rig.now)
    rig.hear(.provider(.results([result]), lane: 0))
    #expect(!rig.machine.scheduler.isWell(MachineRig.lane))
  }

  @Test("silence is not told: others of the account go on")
  func silence() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1), rig.delivery(2)])
    rig.answer(rig.sends(), .unknown(reason: "TimedOut"))
    #expect(rig.counters.lanes[0].circuitOpenings == [.failures: 1])
    #expect(Self.told(&rig) == [])
    // A refusal is told, also if it comes after silence, when it concerns two tokens.
    for number in 3...4 as ClosedRange<Int64> {
      rig.live(.milliseconds(1_100))
      rig.hear(.outbox(.bell))
      rig.live(.milliseconds(100))
      try rig.bring([rig.delivery(number)])
      rig.answer(rig.sends(), .unauthorized(reason: "InvalidProviderToken"))
      #expect(Self.told(&rig) == (number == 3 ? [] : [.circuitOpened(until: rig.now + .seconds(1))]))
    }
  }

  @Test("a silent dispatcher that is told of a refusal claims nothing new until its circuit is half-open")
  func hearsInSilence() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1), rig.delivery(2)])
    rig.answer(rig.sends(), .unknown(reason: "TimedOut"))
    rig.hear(.outbox(.bell))
    rig.live(.milliseconds(100))
    try rig.bring([])  // silence keeps nothing from its first try
    rig.hear(.told(.circuitOpened(until: rig.now + .seconds(4)), lane: 0))
    rig.hear(.outbox(.bell))
    rig.live(.seconds(3))
    #expect(rig.claims() == [])
  }

  @Test("the log says once that the circuit has opened, and not again when a try fails")
  func logs() throws {
    var rig = try MachineRig.open()
    let refused = PushOutcome.unauthorized(reason: "InvalidProviderToken")
    func logged(_ rig: inout MachineRig) -> [PushOutcome] {
      rig.take { if case .logOpening(_, let outcome) = $0 { outcome } else { nil } }
    }
    try rig.bring([rig.delivery(1), rig.delivery(2)])
    rig.answer(rig.sends(), refused)
    #expect(logged(&rig) == [refused])
    for call in Int64(3)...5 {
      rig.live(.milliseconds(1_100))
      try rig.bring([rig.delivery(call)])
      rig.answer(rig.sends(), refused)
      #expect(logged(&rig) == [])
    }
    #expect(rig.counters.lanes[0].circuitOpenings == [.unauthorized: 4])
    rig.live(.milliseconds(1_100))
    try rig.bring([rig.delivery(6)])
    rig.answer(rig.sends())
    rig.live(.milliseconds(100))
    try rig.bring([rig.delivery(7), rig.delivery(8)])
    rig.answer(rig.sends(), .unavailable(reason: "HTTP503", after: nil))
    #expect(logged(&rig) == [.unavailable(reason: "HTTP503", after: nil)])
  }

  @Test(
    "an outcome that does not concern the lane never opens the circuit",
    arguments: [
      PushOutcome.unauthorized(reason: "HTTP403"), .unavailable(reason: "HTTP503", after: nil),
      .unknown(reason: "ConnectionLost"), .unknown(reason: "TimedOut"),
    ])
  func tokenOnly(_ outcome: PushOutcome) throws {
    for concernsLane in [true, false] {
      var rig = try MachineRig.open()
      try rig.bring((1...30).map { rig.delivery($0) })
      rig.answer(rig.sends(), outcome, concernsLane: concernsLane)
      #expect(rig.counters.lanes[0].circuitOpenings.isEmpty != concernsLane)
    }
  }

  @Test("tokens whose pushes fail while others work open the circuit once, and never again")
  func ownFailures() throws {
    var rig = try MachineRig.open()
    var openings: [Int] = []
    for round in Int64(1)...4 {
      try rig.bring([
        rig.delivery(round * 10, token: "bad-token-0123456789-a"),
        rig.delivery(round * 10 + 1, token: "bad-token-0123456789-b"),
      ])
      rig.answer(rig.sends(), .unavailable(reason: "HTTP503", after: nil))
      openings.append(Self.told(&rig).count)
      rig.live(.milliseconds(1_100))
      try rig.bring([rig.delivery(round * 10 + 2)])
      rig.answer(rig.sends())
      _ = Self.told(&rig)
      rig.live(.milliseconds(100))
    }
    #expect(openings == [1, 0, 0, 0])
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

  @Test("hints that invalidation was resumed do not prevent a quarantine, and it begins again if one of them was true")
  func forgedResumption() throws {
    var rig = try MachineRig.open()
    var written: [Int] = []
    for first in stride(from: Int64(1), through: 500, by: 100) {
      try rig.bring((first..<first + 100).map { rig.delivery($0) })
      for request in rig.sends() {
        rig.hear(.outbox(.invalidationResumed(lane: MachineRig.lane)))
        rig.answer([request], .tokenInvalid(reason: "UNREGISTERED", since: nil))
      }
      rig.live(.milliseconds(100))
      let holds = rig.take { if case .write(_, .hold(let holds)) = $0 { holds.count } else { nil } }
      written.append(holds.reduce(0, +))
    }
    #expect(written == [0, 1, 0, 1, 0], "200 answers each time")
  }

  @Test("a breaker closes when notifications are heard again, because the resumption may have been missed")
  func missedResumption() throws {
    var rig = try MachineRig.open()
    var holds = 0
    for first in stride(from: Int64(1), through: 400, by: 200) {
      try rig.bring((first..<first + 200).map { rig.delivery($0, kind: .cancel) })
      rig.answer(rig.sends(), .tokenInvalid(reason: "UNREGISTERED", since: nil))
      rig.live(.milliseconds(100))
      holds += rig.take { if case .write(_, .hold) = $0 { true } else { nil } }.count
      rig.hear(.outbox(.listening(false)))
      rig.hear(.outbox(.listening(true)))
    }
    #expect(holds == 2)
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
