// Tests of written results, of splitting refused batches, of pushes with unknown results, and of the drain.

import Logging
import Providers
import PushModel
import Queue
import Runtime
import Testing

@testable import Dispatching

@Suite("Machine: writing and the drain") struct MachineWritingTests {
  @Test("a refused batch is split until the faulty element is alone, which is written again without its texts")
  func culprit() throws {
    var rig = try MachineRig.open()
    try rig.bring((1...8).map { rig.delivery($0) })
    rig.answer(rig.sends())
    var written: Set<Int64> = []
    var stripped: [Settlement] = []
    for _ in 0..<20 {
      rig.pass(.milliseconds(5))
      rig.beat()
      for (batch, settlements) in rig.settlements() {
        if settlements.contains(where: { $0.lease.outboxID == 6 && $0.reason == nil }) {
          rig.hear(.written(batch: batch, .failure(.test(.refusedRows))))
        } else {
          stripped += settlements.filter { $0.reason != nil }
          written.formUnion(settlements.map(\.lease.outboxID))
          rig.hear(.written(batch: batch, .success(.count(settlements.count))))
        }
      }
    }
    #expect(written == Set(1...8))
    #expect(stripped.map(\.reason) == ["SettlementRefused"])
    #expect(stripped.first?.outcome == .delivered)
    #expect(stripped.first?.providerMessageID == nil)
    #expect(stripped.first?.sentAt != nil, "its phone gets a cancel at the end")
    #expect(rig.lines.contains { $0.level == .error && "\($0.metadata["outbox_id", default: ""])" == "6" })
  }

  @Test("an element refused even without texts is retried every five seconds and delays no other")
  func apart() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1), rig.delivery(2)])
    rig.answer(rig.sends())
    var tries: [Instant] = []
    var others = 0
    while rig.now < MachineRig.start + .seconds(12) {
      rig.pass(.milliseconds(10))
      rig.beat()
      rig.answerHousekeeping()
      for (batch, settlements) in rig.settlements() {
        if settlements.contains(where: { $0.lease.outboxID == 1 }) {
          if settlements.count == 1 { tries.append(rig.now) }
          rig.hear(.written(batch: batch, .failure(.test(.refusedRows))))
        } else {
          others += settlements.count
          rig.hear(.written(batch: batch, .success(.count(settlements.count))))
        }
      }
    }
    #expect(others == 1)
    #expect(tries.count == 4, "alone, stripped, and after five and ten seconds")
    rig.hear(.drain)
    for number in rig.claims() { rig.hear(.claimed(number: number, .success(Claimed(deliveries: [])))) }
    #expect(rig.isDrained)
    #expect(!rig.isIdle)
  }

  @Test(
    "a batch that failed for another reason is written again, whole, after a pause",
    arguments: [OutboxError.Code.transient, .refused, .unavailable, .answerLost])
  func again(code: OutboxError.Code) throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1), rig.delivery(2)])
    rig.answer(rig.sends())
    rig.pass(.milliseconds(5))
    let first = try #require(rig.settlements().first)
    rig.hear(.written(batch: first.batch, .failure(.test(code))))
    rig.pass(.milliseconds(200))
    #expect(rig.settlements().isEmpty)
    rig.pass(.milliseconds(100))
    #expect(rig.settlements().map(\.settlements.count) == [2])
  }

  @Test("a row locked by another transaction does not delay the others")
  func locked() throws {
    var rig = try MachineRig.open()
    try rig.bring((1...8).map { rig.delivery($0) })
    rig.answer(rig.sends())
    var settled: Set<Int64> = []
    var isLocked = true
    func pass(_ time: Nanoseconds) {
      rig.pass(time)
      while let (batch, settlements) = rig.settlements().first {
        let ids = settlements.map(\.lease.outboxID)
        if isLocked, ids.contains(5) {
          rig.hear(.written(batch: batch, .failure(.test(.locked))))
        } else {
          settled.formUnion(ids)
          rig.hear(.written(batch: batch, .success(.count(settlements.count))))
        }
      }
    }
    pass(.milliseconds(5))
    #expect(settled == [1, 2, 3, 4, 6, 7, 8])
    pass(.milliseconds(500))
    isLocked = false
    pass(.seconds(1))
    #expect(settled.contains(5))
    #expect(rig.isIdle == rig.isDrained)
  }

  @Test("after a partly written batch history is checked; results that are not ours are counted as lost")
  func part() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1), rig.delivery(2)])
    rig.answer(rig.sends())
    rig.pass(.milliseconds(5))
    rig.hear(.written(batch: try #require(rig.settlements().first).batch, .success(.count(1))))
    let question = try #require(rig.questions().first)
    #expect(question.settlements.count == 2)
    rig.hear(.written(batch: question.batch, .success(.settled([DeliveryKey(outboxID: 2, pushNumber: 0)]))))
    #expect(rig.counters.lostLeases == 1)
    #expect(rig.counters.deliveries(.delivered) == 1)
    #expect(rig.isDrained == rig.isIdle)
  }

  // MARK: - Unknown fate

  @Test(
    "a visible push with an unknown result is not repeated", arguments: [PushKind.missedCall, .notification])
  func visible(kind: PushKind) throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1, kind: kind)])
    let requests = rig.sends()
    #expect(requests.count == 1)
    rig.answer(requests, .unknown(reason: "TimedOut"))
    rig.pass(.milliseconds(5))
    let settlement = try #require(rig.settlements().first?.settlements.first)
    #expect(settlement.outcome == .dead)
    #expect(settlement.reason == "FateUnknown")
    #expect(settlement.failures.map(\.reason) == ["TimedOut"])
    #expect(rig.sends().isEmpty)
  }

  @Test("an app can be at_least_once for visible pushes", arguments: [PushKind.missedCall, .notification])
  func atLeastOnce(kind: PushKind) throws {
    var rig = try MachineRig.open(isAtLeastOnce: true)
    try rig.bring([rig.delivery(1, kind: kind)])
    rig.answer(rig.sends(), .unknown(reason: "TimedOut"))
    rig.pass(.milliseconds(200))
    #expect(rig.sends().count == 1)
  }

  @Test(
    "what makes a phone ring or stop is handed on after an unknown result", arguments: [PushKind.invite, .cancel])
  func ring(kind: PushKind) throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1, kind: kind)])
    rig.answer(rig.sends(), .unknown(reason: "TimedOut"))
    rig.pass(.milliseconds(5))
    #expect(rig.parkings().flatMap(\.parkings).map(\.isHandedOn) == [true])
  }

  // MARK: - Hedges

  @Test("a delivery that was accepted after a hedge is one attempt, and history says so")
  func hedged() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1)])
    let request = try #require(rig.sends().first)
    rig.hear(.provider(.hedged([1]), lane: 0))
    rig.hear(
      .provider(
        .results([
          PushResult(
            tag: request.tag, outcome: .accepted(messageID: "m"), status: 200, sentAt: rig.now, answeredAt: rig.now,
            isHedged: true)
        ]), lane: 0))
    rig.pass(.milliseconds(5))
    let settlement = try #require(rig.settlements().first?.settlements.first)
    #expect(settlement.outcome == .delivered && settlement.reason == "Hedged" && settlement.attempts == 1)
    #expect(settlement.failures.isEmpty)
  }

  @Test("an invite that an iPhone only shows, because it did not come through PushKit, is an alert in history")
  func alert() throws {
    for (provider, platform, kind) in [
      (ProviderKind.fcm, DevicePlatform.ios, PushKind.invite), (.expo, .ios, .invite), (.fcm, .android, .invite),
      (.fcm, .unknown, .invite), (.apns, .ios, .invite), (.fcm, .ios, .cancel),
    ] {
      var rig = try MachineRig.open(provider: provider)
      let plain = rig.delivery(1, kind: kind)
      try rig.bring([
        Delivery(
          lease: plain.lease, lane: plain.lane, attempt: 1, kind: kind, environment: .production, platform: platform,
          userID: Array(plain.userID), token: Array(plain.token), locale: nil, callKind: Array(plain.callKind),
          callID: Array(plain.callID), payload: Array(plain.payload),
          createdAtMicroseconds: plain.createdAtMicroseconds,
          deadlineAtMicroseconds: plain.deadlineAtMicroseconds, deadline: plain.deadline)
      ])
      rig.answer(rig.sends())
      rig.pass(.milliseconds(5))
      let settlement = try #require(rig.settlements().first?.settlements.first)
      let isAlert = provider != .apns && platform == .ios && kind == .invite
      #expect(settlement.outcome == .delivered && settlement.reason == (isAlert ? "Alert" : nil))
    }
  }

  @Test("a hedged attempt that failed is marked as such, another one is not")
  func hedgedFailure() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1)])
    let request = try #require(rig.sends().first)
    rig.hear(
      .provider(
        .results([
          PushResult(
            tag: request.tag, outcome: .unknown(reason: "ConnectionLost"), sentAt: rig.now, answeredAt: rig.now,
            isHedged: true)
        ]), lane: 0))
    rig.pass(.milliseconds(5))
    #expect(rig.parkings().flatMap(\.parkings).flatMap(\.failures).map(\.isHedged) == [true])
    try rig.bring([rig.delivery(2)])
    rig.answer(rig.sends(), .unknown(reason: "ConnectionLost"))
    rig.pass(.milliseconds(5))
    #expect(rig.parkings().flatMap(\.parkings).flatMap(\.failures).map(\.isHedged) == [false])
  }

  // MARK: - The drain

  @Test("a drain claims nothing, parks waiting deliveries, and ends when the results of sent ones are written")
  func drain() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1), rig.delivery(2)])
    let requests = rig.sends()
    rig.answer([requests[0]], .unavailable(reason: "UNAVAILABLE", after: .seconds(1)))
    for number in rig.claims() { rig.hear(.claimed(number: number, .success(Claimed(deliveries: [])))) }
    rig.clear()
    rig.hear(.drain)
    let parked = try #require(rig.parkings().first)
    #expect(parked.parkings.map(\.lease.outboxID) == [1])
    #expect(parked.parkings.first?.reason == "UNAVAILABLE")
    rig.hear(.written(batch: parked.batch, .success(.count(1))))
    #expect(!rig.isDrained)
    rig.answer([requests[1]])
    let settled = try #require(rig.settlements().first, "nothing waits for company at the end")
    rig.hear(.written(batch: settled.batch, .success(.count(1))))
    #expect(rig.isDrained)
    #expect(rig.isIdle)
    rig.hear(.outbox(.bell))
    #expect(rig.claims() == [])
  }

  @Test("deliveries claimed after the start of the drain are returned unsent")
  func claimedWhileDraining() throws {
    var rig = try MachineRig.open()
    rig.hear(.drain)
    #expect(!rig.isDrained)
    try rig.bring([rig.delivery(1)])
    #expect(rig.sends().isEmpty)
    let released = try #require(rig.releases().first)
    rig.hear(.written(batch: released.batch, .success(.count(1))))
    #expect(rig.isDrained)
  }

  @Test("an alarm handled by a turn is no longer due: the machine never asks for a turn that does nothing")
  func noBusyLoop() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1), rig.delivery(2)])
    rig.answer([try #require(rig.sends().first)], .unavailable(reason: "UNAVAILABLE", after: .seconds(1)))
    // From here on nothing is answered.
    for _ in 0..<200 {
      rig.turn()
      let next = rig.machine.nextAlarm
      guard next < .distantFuture else { break }
      #expect(next > rig.now, "an alarm is due that the turn has not dealt with")
      rig.now = max(next, rig.now)
    }
  }

  @Test("an alarm handled by a turn is no longer due, also while the store is away and during a drain")
  func noBusyLoopInTrouble() throws {
    for trouble in [
      DispatcherEvent.outbox(.unavailable(reason: "cut")), .drain,
      .beaten(.failure(.test(.answerLost)), askedAt: .init(nanoseconds: 0)),
      .beaten(.success(false), askedAt: MachineRig.start),
    ] {
      var rig = try MachineRig.open()
      try rig.bring([rig.delivery(1), rig.delivery(2)])
      rig.answer([try #require(rig.sends().first)], .unavailable(reason: "UNAVAILABLE", after: .milliseconds(500)))
      rig.pass(.seconds(1))
      rig.hear(trouble)
      for _ in 0..<200 {
        rig.turn()
        let next = rig.machine.nextAlarm
        guard next < .distantFuture else { break }
        #expect(next > rig.now, "an alarm is due that the turn has not dealt with: \(trouble)")
        guard next > rig.now else { break }
        rig.now = next
      }
    }
  }
}
