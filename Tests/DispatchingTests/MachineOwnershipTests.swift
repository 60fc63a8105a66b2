// Tests of a crash of the server, of being declared dead, and of scans for strays.

import Providers
import PushModel
import Queue
import Runtime
import Testing

@testable import Dispatching

@Suite("Machine: crashes, deaths and scans") struct MachineOwnershipTests {
  // MARK: - Crashes

  @Test("a held delivery whose claim was lost in a crash and that comes back is not sent twice")
  func lostClaim() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1), rig.delivery(2)])
    let requests = rig.sends()
    rig.answer([requests[0]], .deferred(reason: "Busy", after: .milliseconds(500)))
    for number in rig.claims() { rig.hear(.claimed(number: number, .success(Claimed(deliveries: [])))) }
    rig.hear(.outbox(.unavailable(reason: "crash")))
    rig.hear(.outbox(.available))
    rig.beat()
    rig.hear(.outbox(.bell))
    let number = try #require(rig.claims().last)
    rig.hear(
      .claimed(
        number: number,
        .success(Claimed(deliveries: [rig.delivery(1).claimed(by: number), rig.delivery(2).claimed(by: number)]))))
    #expect(rig.sends().isEmpty, "one waits for its next try, one is in flight")
    rig.answer([requests[1]])
    rig.pass(.milliseconds(5))
    let written = rig.settlements().flatMap(\.settlements)
    #expect(written.map(\.lease) == [DeliveryLease(outboxID: 2, pushNumber: 0, lease: number)])
    rig.live(.seconds(2))
    #expect(rig.sends().map(\.tag) == [requests[0].tag])
  }

  // MARK: - Declared dead

  @Test("a gateway that was declared dead forgets what it held, and registers anew")
  func fenced() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(2), rig.delivery(3)])
    let requests = rig.sends()
    rig.answer([requests[0]], .deferred(reason: "Busy", after: .milliseconds(500)))
    for number in rig.claims() { rig.hear(.claimed(number: number, .success(Claimed(deliveries: [])))) }
    rig.clear()
    rig.pass(.seconds(1))
    for _ in rig.beats() { rig.hear(.beaten(.success(false), askedAt: rig.now)) }
    #expect(rig.permits().last == Instant(nanoseconds: .min))
    #expect(rig.withdrawals() == [requests[1].tag])
    for number in rig.claims() { rig.hear(.claimed(number: number, .success(Claimed(deliveries: [])))) }
    #expect(rig.registers() == 1)
    #expect(rig.counters.lostLeases == 1)
    rig.hear(.registered(.success(()), askedAt: rig.now))
    rig.pass(.milliseconds(50))
    #expect(rig.permits().count == 1)
    #expect(rig.claims().first.map { $0 > 1 } == true, "the numbers go on")
    rig.answer([requests[1]])
    rig.live(.seconds(2))
    #expect(rig.counters.lostLeases == 2)
    #expect(rig.settlements().isEmpty)
    #expect(rig.sends().isEmpty)
    #expect(rig.inFlight == 0)
  }

  @Test("a delivery that comes back while the former gateway's request is in flight is settled with that result")
  func lostAndFound() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1)])
    let requests = rig.sends()
    for number in rig.claims() { rig.hear(.claimed(number: number, .success(Claimed(deliveries: [])))) }
    rig.clear()
    rig.pass(.seconds(1))
    for _ in rig.beats() { rig.hear(.beaten(.success(false), askedAt: rig.now)) }
    for number in rig.claims() { rig.hear(.claimed(number: number, .success(Claimed(deliveries: [])))) }
    rig.hear(.registered(.success(()), askedAt: rig.now))
    rig.hear(.outbox(.bell))
    try rig.bring([rig.delivery(1)])
    #expect(rig.sends().isEmpty)
    rig.answer(requests)
    rig.pass(.milliseconds(5))
    #expect(rig.settlements().flatMap(\.settlements).map(\.outcome) == [.delivered])
  }

  @Test("a ring that comes back after its time to be handed on is handed on all the same")
  func lostAndOverdue() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1)])
    #expect(rig.sends().count == 1)
    rig.pass(.seconds(1))
    for _ in rig.beats() { rig.hear(.beaten(.success(false), askedAt: rig.now)) }
    for number in rig.claims() { rig.hear(.claimed(number: number, .success(Claimed(deliveries: [])))) }
    rig.pass(.seconds(3))
    for number in rig.claims() { rig.hear(.claimed(number: number, .success(Claimed(deliveries: [])))) }
    rig.hear(.registered(.success(()), askedAt: rig.now))
    rig.hear(.outbox(.bell))
    try rig.bring([rig.delivery(1)])
    #expect(rig.sends().isEmpty)
    rig.live(.milliseconds(1_400))
    #expect(rig.parkings().flatMap(\.parkings).map(\.isHandedOn) == [true])
  }

  @Test("a new gateway id is used only when no statement of the former one is pending")
  func fencedWhileWriting() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1)])
    rig.answer(rig.sends())
    rig.pass(.milliseconds(5))
    let write = try #require(rig.settlements().first)
    let claim = try #require(rig.claims().first)
    rig.pass(.seconds(1))
    for _ in rig.beats() { rig.hear(.beaten(.success(false), askedAt: rig.now)) }
    #expect(rig.registers() == 0)
    rig.hear(.written(batch: write.batch, .success(.count(0))))
    let question = try #require(rig.questions().first)
    #expect(rig.registers() == 0)
    rig.hear(.written(batch: question.batch, .success(.settled([]))))
    #expect(rig.registers() == 0)
    rig.hear(.claimed(number: claim, .success(Claimed(deliveries: []))))
    #expect(rig.registers() == 1)
  }

  // MARK: - Scans

  @Test("a scan disowns rows unknown to this process, but not those of a pending claim")
  func strays() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1)])
    rig.hear(.outbox(.bell))
    let underWay = try #require(rig.claims().first)
    rig.hear(.outbox(.unavailable(reason: "cut")))
    rig.hear(.outbox(.available))
    rig.beat()
    #expect(rig.scans() == [nil])
    let stray = DeliveryLease(outboxID: 5, pushNumber: 1, lease: underWay - 1)
    let mine = DeliveryLease(outboxID: 1, pushNumber: 0, lease: 1)
    let coming = DeliveryLease(outboxID: 6, pushNumber: 0, lease: underWay)
    rig.hear(.scanned(.success(ClaimedPage(leases: [stray, mine, coming], next: 4000))))
    rig.pass(.milliseconds(5))
    let disowned = try #require(rig.disowned().first)
    #expect(disowned.leases == [stray])
    rig.hear(.written(batch: disowned.batch, .success(.count(1))))
    #expect(rig.counters.reconciled == 1)
    rig.pass(.milliseconds(20))
    #expect(rig.scans() == [4000])
  }

  @Test("rows are compared every 15 s, from the start")
  func every15Seconds() throws {
    var rig = try MachineRig.open()
    rig.live(.seconds(10))
    rig.clear()
    var asked: [Instant] = []
    let start = rig.now
    while rig.now < start + .seconds(40) {
      rig.pass(.milliseconds(100))
      rig.beat()
      for page in rig.scans() {
        #expect(page == nil)
        asked.append(rig.now)
        rig.hear(.scanned(.success(ClaimedPage(leases: [], next: nil))))
      }
      rig.answerHousekeeping()
    }
    #expect(asked.count >= 2)
    #expect(zip(asked, asked.dropFirst()).allSatisfy { $1 - $0 == .seconds(15) })
  }

  @Test("beats may reap only when the connection has been up for the time after which others count as silent")
  func reaping() throws {
    var rig = try MachineRig.open()
    var answers: [Bool] = []
    for _ in 0..<50 {
      rig.pass(.milliseconds(100))
      for mayReap in rig.beats() {
        answers.append(mayReap)
        rig.hear(.beaten(.success(true), askedAt: rig.now))
      }
    }
    #expect(answers == [false, false, true, true, true])
    rig.hear(.outbox(.unavailable(reason: "cut")))
    rig.hear(.outbox(.available))
    #expect(rig.beats() == [false])
  }
}
