// Tests of claims: numbers, lost answers, and deliveries that are already known.

import Logging
import Providers
import PushModel
import Queue
import Runtime
import Testing

@testable import Dispatching

@Suite("Machine: claims") struct MachineClaimTests {
  @Test("claims are numbered one after the other, one at a time")
  func numbers() throws {
    var rig = try MachineRig.open()
    #expect(rig.claims() == [1])
    rig.hear(.outbox(.bell))
    #expect(rig.claims() == [])
    rig.hear(.claimed(number: 1, .success(Claimed(deliveries: []))))
    rig.hear(.outbox(.bell))
    #expect(rig.claims() == [2])
  }

  @Test("a claim whose answer was lost is forgotten, with retries, before the next one")
  func lostAnswer() throws {
    var rig = try MachineRig.open()
    rig.fail(claim: try #require(rig.claims().first), .answerLost)
    #expect(rig.forgets() == [1])
    rig.hear(.forgotten(number: 1, .failure(.test(.transient))))
    rig.live(.milliseconds(200))
    #expect(rig.forgets() == [])
    rig.live(.milliseconds(200))
    #expect(rig.forgets() == [1])
    #expect(rig.claims() == [])
    rig.hear(.forgotten(number: 1, .success(3)))
    #expect(rig.claims() == [2])
    #expect(rig.counters.forgottenClaims == 1)
  }

  @Test(
    "a claim that was certainly not executed is not forgotten",
    arguments: [OutboxError.Code.unavailable, .transient, .refused])
  func refused(code: OutboxError.Code) throws {
    var rig = try MachineRig.open()
    rig.fail(claim: try #require(rig.claims().first), code)
    rig.live(.milliseconds(300))
    #expect(rig.forgets() == [])
    #expect(rig.claims() == [2])
  }

  @Test("a claim lost with its connection is forgotten after a heartbeat confirms the next connection")
  func lostWithConnection() throws {
    var rig = try MachineRig.open()
    let number = try #require(rig.claims().first)
    rig.hear(.outbox(.unavailable(reason: "cut")))
    rig.fail(claim: number, .answerLost)
    #expect(rig.forgets() == [])
    rig.hear(.outbox(.available))
    #expect(rig.forgets() == [])
    rig.beat()
    #expect(rig.forgets() == [number])
    #expect(rig.claims() == [])
  }

  @Test("deliveries in the late answer of a forgotten claim are not sent")
  func lateAnswer() throws {
    var rig = try MachineRig.open()
    rig.fail(claim: try #require(rig.claims().first), .answerLost)
    rig.hear(.forgotten(number: 1, .success(0)))
    rig.hear(.claimed(number: 1, .success(Claimed(deliveries: [rig.delivery(1)]))))
    #expect(rig.sends().isEmpty)
  }

  @Test("a claimed delivery that is already held is not sent twice, and is settled under the later claim")
  func heldAlready() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1)])
    let requests = rig.sends()
    #expect(requests.count == 1)
    rig.hear(.outbox(.bell))
    try rig.bring([rig.delivery(1)])
    #expect(rig.sends().isEmpty)
    rig.answer(requests)
    rig.pass(.milliseconds(5))
    let written = rig.settlements()
    #expect(written.flatMap(\.settlements).map(\.lease.lease) == [2])
  }

  @Test("an invite that is held and claimed again is void if the claim says that its call has ended")
  func heldAlreadyAndOver() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1)])
    let requests = rig.sends()
    rig.hear(.outbox(.bell))
    // A crash lost the first claim, and the call ended before the second.
    try rig.bring([rig.delivery(1, isOver: true)])
    #expect(rig.withdrawals() == Set(requests.map(\.tag)))
    rig.answer(requests, .refused(reason: "Withdrawn"))
    rig.pass(.milliseconds(50))
    #expect(rig.sends().isEmpty)
    let settled = rig.settlements().flatMap(\.settlements)
    #expect(settled.map(\.outcome) == [.void] && settled.map(\.lease.lease) == [2])
  }

  @Test("a delivery with the numbers of one that is held is another one if its row was made later")
  func numbersThatRepeat() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(2)])
    #expect(rig.sends().count == 1)
    rig.hear(.outbox(.bell))
    try rig.bring([rig.delivery(2, life: 7)])
    let requests = rig.sends()
    #expect(requests.count == 1)
    rig.answer(requests)
    rig.pass(.milliseconds(5))
    #expect(rig.settlements().flatMap(\.settlements).map(\.lease.createdAtMicroseconds) == [7])
  }

  @Test("a delivery that was settled and is claimed again is a new one: the database knows")
  func settledAndClaimed() throws {
    var rig = try MachineRig.open()
    try rig.deliver([rig.delivery(1)])
    rig.hear(.outbox(.bell))
    try rig.bring([rig.delivery(1)])
    #expect(rig.sends().count == 1)
  }

  @Test("a delivery claimed again while its parking is being written is a new one")
  func parkedAndClaimed() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1)])
    rig.answer(rig.sends(), .unavailable(reason: "UNAVAILABLE", after: .seconds(10)))
    rig.pass(.milliseconds(5))
    let parking = try #require(rig.parkings().first)
    #expect(parking.parkings.map(\.lease.lease) == [1])
    try rig.bring([rig.delivery(1)])
    #expect(rig.sends().count == 1)
    rig.hear(.written(batch: parking.batch, .success(.count(1))))
    #expect(rig.inFlight == 1)
    #expect(rig.counters.lostLeases == 0)
  }

  @Test("an invite whose call had ended, or whose user had declined, when it was claimed is void without being sent")
  func over() throws {
    var rig = try MachineRig.open()
    rig.machine.logLevel = .info
    try rig.bring([
      rig.delivery(1, isOver: true), rig.delivery(2, decliners: ["another", "u"]),
      rig.delivery(3, decliners: ["another"]),
      rig.delivery(4, kind: .cancel, isOver: true),
    ])
    #expect(rig.sends().count == 2)
    rig.pass(.milliseconds(5))
    let written = try #require(rig.settlements().first)
    #expect(written.settlements.map(\.lease.outboxID) == [1, 2])
    #expect(written.settlements.allSatisfy { $0.outcome == .void && $0.reason == nil && $0.sentAt == nil })
    #expect(rig.lines.count { "\($0.message)" == "A delivery has ended" } == 2)
    rig.hear(.written(batch: written.batch, .success(.count(2))))
    #expect(rig.counters.deliveries(.void) == 2)
  }

  @Test("rows of a kind or a lane that this version does not know are parked for a second, uncounted")
  func unusable() throws {
    var rig = try MachineRig.open()
    let number = try #require(rig.claims().first)
    let unreadable = DeliveryLease(outboxID: 9, pushNumber: 0, lease: number)
    rig.hear(
      .claimed(
        number: number, .success(Claimed(deliveries: [rig.delivery(1, lane: 99)], unreadable: [unreadable]))))
    rig.pass(.milliseconds(5))
    let parkings = rig.parkings().flatMap(\.parkings)
    #expect(parkings.map(\.lease.outboxID) == [1, 9])
    #expect(parkings.allSatisfy { $0.delay == .seconds(1) && $0.reason == "UnknownKind" && $0.attempts == 0 })
    #expect(rig.sends().isEmpty)
  }

  @Test("deliveries of a deleted call are parked, so that the database drops them, without an error")
  func orphans() throws {
    var rig = try MachineRig.open()
    let number = try #require(rig.claims().first)
    let orphan = DeliveryLease(outboxID: 9, pushNumber: 0, lease: number)
    rig.hear(.claimed(number: number, .success(Claimed(deliveries: [], orphans: [orphan]))))
    #expect(!rig.lines.contains { $0.level == .error })
    rig.pass(.milliseconds(5))
    let parkings = rig.parkings().flatMap(\.parkings)
    #expect(parkings.map(\.lease) == [orphan])
    #expect(parkings.map(\.reason) == ["CallDeleted"])
    #expect(rig.sends().isEmpty)
  }

  @Test("a provider that asks for a pause of a day is tried again after a minute")
  func longPause() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1)])
    rig.answer(rig.sends(), .throttled(reason: "TOO_MANY_REQUESTS", after: .seconds(86_400), isLaneWide: true))
    if let number = rig.claims().last { rig.hear(.claimed(number: number, .success(Claimed(deliveries: [])))) }
    rig.live(.seconds(59))
    rig.hear(.outbox(.bell))
    #expect(rig.claims() == [])
    rig.live(.seconds(2))
    #expect(rig.claims().count == 1)
  }

  @Test("while too many results are unwritten nothing more is claimed")
  func backlog() throws {
    var rig = try MachineRig.open { $0.backlogMax = 100 }
    for part in 0..<2 {
      rig.hear(.outbox(.bell))
      try rig.bring((0..<60).map { rig.delivery(Int64(part * 60 + $0)) })
      rig.answer(rig.sends())
      for (batch, _) in rig.settlements() { rig.hear(.written(batch: batch, .failure(.test(.refused)))) }
    }
    rig.clear()
    rig.hear(.outbox(.bell))
    #expect(rig.claims() == [])
  }
}
