// Tests of the gateway's own lease, and of the ends of calls.

import Providers
import PushModel
import Queue
import Runtime
import Testing

@testable import Dispatching

@Suite("Machine: lease and ends of calls") struct MachineLeaseTests {
  @Test("requests may be sent for 2.4 s from the time at which a confirmed heartbeat was sent")
  func permit() throws {
    var rig = try MachineRig.open()
    #expect(rig.permits() == [MachineRig.start + .milliseconds(2400)])
    rig.pass(.seconds(1))
    let asked = rig.now
    #expect(rig.beats().count == 1)
    rig.pass(.milliseconds(300))
    rig.hear(.beaten(.success(true), askedAt: asked))
    #expect(rig.permits() == [asked + .milliseconds(2400)])
  }

  @Test("a gateway is ready once a provider could be reached, and stays so when all are lost")
  func readiness() throws {
    var rig = try MachineRig.open(capacity: 0)
    #expect(rig.machine.obstacles(rig.now) == ["porteiro/fcm: no usable connection to the provider yet"])
    rig.hear(.provider(.capacity(1), lane: 0))
    #expect(rig.machine.obstacles(rig.now) == [])
    rig.hear(.provider(.capacity(0), lane: 0))
    #expect(rig.machine.obstacles(rig.now) == [])
  }

  @Test("without a confirmed heartbeat nothing is sent or claimed; retries continue after one")
  func lapse() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1, kind: .missedCall)])
    let requests = rig.sends()
    rig.clear()
    rig.pass(.milliseconds(2300))
    rig.answer(requests, .unavailable(reason: "UNAVAILABLE", after: .milliseconds(200)))
    rig.pass(.milliseconds(200))
    #expect(rig.counters.leaseLapses == 1)
    for number in rig.claims() { rig.hear(.claimed(number: number, .success(Claimed(deliveries: [])))) }
    rig.pass(.seconds(1))
    #expect(rig.sends().isEmpty)
    #expect(rig.counters.leaseLapses == 1)
    #expect(rig.claims() == [])
    #expect(rig.machine.obstacles(rig.now).count == 1)
    rig.hear(.beaten(.success(true), askedAt: rig.now))
    #expect(rig.permits().count == 1)
    #expect(rig.sends().map(\.tag) == requests.map(\.tag))
  }

  @Test("the permit comes before the requests that need it")
  func order() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1, kind: .missedCall)])
    rig.pass(.milliseconds(2300))
    rig.answer(rig.sends(), .unavailable(reason: "UNAVAILABLE", after: .milliseconds(200)))
    rig.pass(.seconds(2))
    rig.clear()
    rig.hear(.beaten(.success(true), askedAt: rig.now))
    let order = rig.actions.compactMap {
      switch $0 {
      case .permit: "permit"
      case .send: "send"
      default: nil
      }
    }
    #expect(order == ["permit", "send"])
  }

  @Test("a process that was frozen sends nothing before its next confirmed heartbeat, whichever event comes first")
  func frozen() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1), rig.delivery(2)])
    let requests = rig.sends()
    rig.answer([requests[0]], .deferred(reason: "Busy", after: .milliseconds(200)))
    rig.pass(.milliseconds(2))
    let claim = try #require(rig.claims().first)
    rig.clear()
    rig.now = rig.now + .seconds(20)
    // Sockets are ready before timers are due: a result, a claim's answer, a withheld request.
    rig.answer([requests[1]], .refused(reason: SendPermit.lapsedReason))
    rig.hear(.claimed(number: claim, .success(Claimed(deliveries: [rig.delivery(3)]))))
    rig.pass(.milliseconds(50))
    #expect(rig.sends().isEmpty)
    #expect(rig.beats().count == 1)
    rig.hear(.beaten(.success(false), askedAt: rig.now))
    rig.pass(.milliseconds(500))
    #expect(rig.sends().isEmpty, "it was declared dead: others have these")
  }

  @Test("a withheld request is no attempt, and is sent again after a confirmed heartbeat")
  func withheld() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1, kind: .missedCall)])
    let requests = rig.sends()
    rig.now = rig.now + .seconds(3)
    rig.answer(requests, .refused(reason: SendPermit.lapsedReason))
    rig.pass(.milliseconds(100))
    #expect(rig.sends().isEmpty)
    rig.beat()
    let again = rig.sends()
    #expect(again.count == 1)
    rig.answer(again)
    rig.pass(.milliseconds(5))
    #expect(rig.settlements().flatMap(\.settlements).map(\.attempts) == [1])
  }

  // MARK: - Ends of calls

  @Test("a hint that a call has ended voids nothing until the database says so")
  func forgedHint() throws {
    var rig = try MachineRig.open()
    rig.live(.milliseconds(200))
    try rig.bring([rig.delivery(1), rig.delivery(2)])
    let requests = rig.sends()
    rig.clear()
    rig.hear(.outbox(.mayHaveEnded([1, 2, 99])))
    #expect(rig.lookUps() == [[1, 2]], "nothing is asked of calls that are not held")
    #expect(rig.withdrawals() == [])
    rig.hear(.endedFound(.success(EndedRings())))
    rig.pass(.milliseconds(5))
    #expect(rig.withdrawals() == [])
    #expect(rig.settlements().isEmpty)
    rig.answer(requests)
    rig.pass(.milliseconds(5))
    #expect(rig.settlements().flatMap(\.settlements).map(\.outcome) == [.delivered, .delivered])
  }

  @Test("an invite of a call that has ended is withdrawn from its provider, and void")
  func ended() throws {
    var rig = try MachineRig.open()
    rig.live(.milliseconds(200))
    try rig.bring([rig.delivery(1), rig.delivery(2)])
    let requests = rig.sends()
    rig.clear()
    rig.hear(.outbox(.manyMayHaveEnded))
    #expect(rig.lookUps() == [[1, 2]])
    rig.hear(.endedFound(.success(EndedRings(calls: [2]))))
    #expect(rig.withdrawals() == [requests[1].tag])
    rig.answer([requests[1]], .refused(reason: "Withdrawn"))
    rig.pass(.milliseconds(30))
    let written = rig.settlements().flatMap(\.settlements)
    #expect(written.map(\.lease.outboxID) == [2])
    #expect(written.map(\.outcome) == [.void])
    #expect(written.map(\.reason) == [nil], "the database has the reason")
    #expect(rig.sends().isEmpty)
  }

  @Test("invites of a user who has declined are void, others of the call ring on")
  func declined() throws {
    var rig = try MachineRig.open()
    rig.live(.milliseconds(200))
    try rig.bring([rig.delivery(1, 0), rig.delivery(1, 1), rig.delivery(2)])
    let requests = rig.sends()
    rig.answer(requests, .deferred(reason: "Busy", after: .milliseconds(500)))
    rig.clear()
    rig.hear(.outbox(.mayHaveEnded([1])))
    #expect(rig.lookUps() == [[1]])
    rig.hear(.endedFound(.success(EndedRings(decliners: [1: [Array("u".utf8)], 2: [Array("another".utf8)]]))))
    rig.pass(.milliseconds(30))
    let written = rig.settlements().flatMap(\.settlements)
    #expect(written.map(\.lease.outboxID) == [1, 1])
    #expect(written.allSatisfy { $0.outcome == .void && $0.reason == nil })
    rig.live(.seconds(1))
    #expect(rig.sends().map(\.tag) == [requests[2].tag])
  }

  @Test(
    "a look-up asked before an invite was claimed is asked again for it: its call may have the id of one that was lost"
  )
  func numbersThatRepeat() throws {
    var rig = try MachineRig.open()
    rig.live(.milliseconds(200))
    try rig.bring([rig.delivery(1, life: 5)])
    #expect(rig.sends().count == 1)
    rig.clear()
    rig.hear(.outbox(.mayHaveEnded([1])))
    #expect(rig.lookUps() == [[1]])
    rig.hear(.outbox(.bell))
    try rig.bring([rig.delivery(1, life: 6)])
    let another = rig.sends()
    #expect(another.count == 1)
    rig.hear(.endedFound(.success(EndedRings(calls: [1]))))
    #expect(rig.withdrawals().isSuperset(of: another.map(\.tag)))
    rig.clear()
    rig.answer(another, .refused(reason: "Withdrawn"))
    rig.pass(.milliseconds(30))
    #expect(rig.sends().isEmpty)
    #expect(rig.lookUps() == [[1]])
    rig.hear(.endedFound(.success(EndedRings())))
    rig.pass(.milliseconds(5))
    #expect(rig.sends().count == 1)
  }

  @Test("what a look-up says while a claim is under way is looked up again for what the claim brings")
  func askedBesideClaim() throws {
    var rig = try MachineRig.open()
    rig.live(.milliseconds(200))
    try rig.bring([rig.delivery(1)])
    #expect(rig.sends().count == 1)
    rig.clear()
    rig.hear(.outbox(.mayHaveEnded([1])))
    #expect(rig.lookUps() == [[1]])
    rig.hear(.outbox(.bell))
    // The claim may have read the outbox before the call ended.
    rig.hear(.endedFound(.success(EndedRings(calls: [1]))))
    try rig.bring([rig.delivery(1, 5)])
    #expect(rig.sends().isEmpty)
    rig.clear()
    rig.pass(.milliseconds(5))
    #expect(rig.sends().isEmpty)
    #expect(rig.lookUps() == [[1]])
  }

  @Test("an invite is not sent again before its call was looked up: a hint that it has ended may be missing")
  func missingHint() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1)])
    rig.answer(rig.sends(), .deferred(reason: "Busy", after: .milliseconds(200)))
    rig.pass(.milliseconds(200))
    #expect(rig.sends().isEmpty)
    #expect(rig.lookUps() == [[1]])
    rig.hear(.endedFound(.success(EndedRings(calls: [1]))))
    rig.pass(.milliseconds(5))
    #expect(rig.sends().isEmpty)
    #expect(rig.settlements().first?.settlements.first?.outcome == .void)
  }

  @Test("an invite whose fate is unknown when its call has ended is void, and keeps that it was sent")
  func unknownAndEnded() throws {
    var rig = try MachineRig.open()
    rig.live(.milliseconds(200))
    try rig.bring([rig.delivery(1)])
    let requests = rig.sends()
    rig.clear()
    rig.hear(.outbox(.mayHaveEnded([1])))
    rig.hear(.endedFound(.success(EndedRings(calls: [1]))))
    rig.answer(requests, .unknown(reason: "TimedOut"))
    rig.pass(.milliseconds(5))
    let settlement = try #require(rig.settlements().first?.settlements.first)
    #expect(settlement.outcome == .void && settlement.sentAt != nil)
    #expect(settlement.failures.map(\.reason) == ["TimedOut"])
    rig.live(.seconds(1))
    #expect(rig.sends().isEmpty)
  }

  @Test("hints that arrive during a look-up are combined in the next one")
  func coalesced() throws {
    var rig = try MachineRig.open()
    rig.live(.milliseconds(200))
    try rig.bring([rig.delivery(1), rig.delivery(2), rig.delivery(3)])
    rig.clear()
    rig.hear(.outbox(.mayHaveEnded([1])))
    #expect(rig.lookUps() == [[1]])
    rig.hear(.outbox(.mayHaveEnded([2])))
    rig.hear(.outbox(.mayHaveEnded([3])))
    #expect(rig.lookUps() == [])
    rig.hear(.endedFound(.failure(.test(.transient))))
    rig.live(.milliseconds(100))
    rig.pass(.milliseconds(200))
    #expect(rig.lookUps() == [[1, 2, 3]])
  }

  @Test("an invite claimed after a hint about its call is looked up before it is sent")
  func hintedDuringClaim() throws {
    var rig = try MachineRig.open()
    rig.live(.milliseconds(200))
    rig.hear(.outbox(.mayHaveEnded([1])))
    rig.clear()
    rig.hear(.outbox(.bell))
    // The claim was sent before the hint arrived.
    rig.hear(.claimed(number: 1, .success(Claimed(deliveries: [rig.delivery(1), rig.delivery(2)]))))
    #expect(rig.sends().count == 1)
    rig.pass(.milliseconds(5))
    #expect(rig.lookUps() == [[1]])
    rig.hear(.endedFound(.success(EndedRings())))
    #expect(rig.sends().count == 1)
  }

  @Test(
    "under endless hints an invite is looked up twice and then sent",
    arguments: [OutboxEvent.manyMayHaveEnded, .mayHaveEnded([1])])
  func hintsWithoutEnd(hint: OutboxEvent) throws {
    var rig = try MachineRig.open()
    rig.live(.milliseconds(200))
    rig.hear(.outbox(hint))
    rig.clear()
    rig.hear(.outbox(.bell))
    rig.hear(.claimed(number: 1, .success(Claimed(deliveries: [rig.delivery(1)]))))
    for _ in 0..<2 {
      #expect(rig.sends().isEmpty)
      rig.hear(.outbox(hint))
      rig.pass(.milliseconds(5))
      #expect(rig.lookUps() == [[1]])
      rig.hear(.outbox(hint))
      rig.hear(.endedFound(.success(EndedRings())))
    }
    #expect(rig.sends().count == 1)
  }

  @Test("hints about one call do not put off the look-up of all: hints about others may be missing")
  func hintsBesideAMissingOne() throws {
    var rig = try MachineRig.open(isListening: false)
    try rig.bring([rig.delivery(1), rig.delivery(2)])
    rig.clear()
    for _ in 0..<4 {
      rig.hear(.outbox(.mayHaveEnded([1])))
      rig.hear(.endedFound(.success(EndedRings())))
      rig.pass(.milliseconds(200))
    }
    let asked = rig.lookUps()
    #expect(asked.count(where: { $0 == [1, 2] }) == 1, "\(asked)")
  }

  @Test("without hints, an invite is looked up before each further attempt, and all are every half second")
  func deaf() throws {
    var rig = try MachineRig.open()
    rig.live(.milliseconds(200))
    try rig.bring([rig.delivery(1)])
    rig.hear(.outbox(.listening(false)))
    #expect(rig.lookUps() == [[1]])
    rig.hear(.endedFound(.success(EndedRings())))
    rig.answer(rig.sends(), .deferred(reason: "Busy", after: .milliseconds(10)))
    rig.pass(.milliseconds(250))
    #expect(rig.sends().isEmpty)
    #expect(rig.lookUps() == [[1]])
    rig.hear(.endedFound(.success(EndedRings(calls: [1]))))
    rig.pass(.milliseconds(5))
    #expect(rig.sends().isEmpty)
    #expect(rig.settlements().flatMap(\.settlements).map(\.outcome) == [.void])
  }
}
