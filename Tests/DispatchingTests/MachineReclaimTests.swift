// Tests of a crash or fail-over of the server, of being declared dead, and of scans for strays.

import Providers
import PushModel
import Queue
import Runtime
import Testing

@testable import Dispatching

@Suite("Machine: reclaims and scans") struct MachineReclaimTests {
  private func key(_ id: Int64) -> DeliveryKey { DeliveryKey(outboxID: id, pushNumber: 0) }

  /// The server restarts: the connection is lost and comes back, and the beat asks for a reclaim.
  private func restart(_ rig: inout MachineRig) {
    rig.hear(.outbox(.unavailable(reason: "crash")))
    for number in rig.claims() { rig.fail(claim: number, .answerLost) }
    for (batch, _) in rig.settlements() { rig.hear(.written(batch: batch, .failure(.test(.answerLost)))) }
    for (batch, _) in rig.releases() { rig.hear(.written(batch: batch, .failure(.test(.answerLost)))) }
    for _ in rig.take({ if case .scan = $0 { true } else { nil } }) {
      rig.hear(.scanned(.failure(.test(.answerLost))))
    }
    rig.hear(.outbox(.available))
    rig.beat(mustReclaim: true)
    for number in rig.forgets() { rig.hear(.forgotten(number: number, .success(0))) }
  }

  @Test("after a restart everything held, being written and remembered is reclaimed before the next claim")
  func reclaims() throws {
    var rig = try MachineRig.open()
    try rig.deliver([rig.delivery(1)])  // remembered
    rig.hear(.outbox(.bell))
    try rig.bring([rig.delivery(2), rig.delivery(3)])
    let requests = rig.sends()
    rig.answer([requests[0]])  // being written
    rig.pass(.milliseconds(5))
    restart(&rig)
    let reclaim = try #require(rig.reclaims().first)
    #expect(Set(reclaim.keys) == [key(1), key(2), key(3)])
    #expect(rig.claims() == [])
    #expect(rig.settlements().isEmpty)
    // All are ours again.
    rig.hear(
      .reclaimed(
        number: reclaim.number,
        .success((0..<3).map { Reclaimed(index: $0, place: DeliveryPlace(block: 9, offset: UInt16($0))) })))
    #expect(rig.claims() == [])
    #expect(rig.confirms() == 1)
    rig.hear(.reclaimConfirmed(.success(())))
    rig.pass(.milliseconds(250))
    let written = rig.settlements().flatMap(\.settlements)
    #expect(Set(written.map(\.lease.key)) == [key(1), key(2)])
    #expect(written.allSatisfy { $0.lease.lease == reclaim.number && $0.place.block == 9 })
    #expect(rig.claims().first.map { $0 > reclaim.number } == true)
    #expect(rig.counters.settledAgain == 1)
    #expect(rig.sends().isEmpty, "what is in flight is not sent again")
  }

  @Test(
    "a visible push reclaimed in flight is not sent again, even if its answer is then lost",
    arguments: [PushKind.missedCall, .notification])
  func visibleInFlight(kind: PushKind) throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1, kind: kind)])
    let requests = rig.sends()
    #expect(requests.count == 1)
    restart(&rig)
    let reclaim = try #require(rig.reclaims().first)
    rig.hear(
      .reclaimed(number: reclaim.number, .success([Reclaimed(index: 0, place: DeliveryPlace(block: 9, offset: 0))])))
    rig.hear(.reclaimConfirmed(.success(())))
    rig.live(.seconds(1))
    rig.answer(requests, .unknown(reason: "ConnectionLost"))
    rig.pass(.milliseconds(5))
    let settlement = try #require(rig.settlements().flatMap(\.settlements).first)
    #expect(settlement.outcome == .dead && settlement.reason == "FateUnknown")
    #expect(settlement.lease.lease == reclaim.number)
    rig.live(.seconds(3))
    #expect(rig.sends().isEmpty)
  }

  @Test("of deliveries not reclaimed, waiting ones are dropped and results of sent ones are counted as lost")
  func notOurs() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1), rig.delivery(2)])
    let requests = rig.sends()
    rig.answer([requests[0]], .unavailable(reason: "UNAVAILABLE", after: .seconds(1)))  // waits
    restart(&rig)
    let reclaim = try #require(rig.reclaims().first)
    #expect(reclaim.keys.count == 2)
    rig.hear(.reclaimed(number: reclaim.number, .success([])))
    rig.hear(.reclaimConfirmed(.success(())))
    #expect(rig.withdrawals() == [requests[1].tag])
    rig.live(.seconds(3))
    #expect(rig.sends().isEmpty)
    #expect(rig.counters.lostLeases == 1)
    rig.answer([requests[1]])
    rig.pass(.milliseconds(5))
    #expect(rig.counters.lostLeases == 2)
    #expect(rig.settlements().isEmpty)
    #expect(rig.parkings().isEmpty)
    #expect(rig.inFlight == 0)
  }

  @Test("a delivery that was lost in flight and is claimed again is settled with its result")
  func lostAndFound() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1, kind: .missedCall)])
    let requests = rig.sends()
    restart(&rig)
    rig.hear(.reclaimed(number: try #require(rig.reclaims().first).number, .success([])))
    rig.hear(.reclaimConfirmed(.success(())))
    rig.answer(requests)
    rig.hear(.outbox(.bell))
    try rig.bring([rig.delivery(1, kind: .missedCall)])
    rig.pass(.milliseconds(5))
    #expect(rig.sends().isEmpty)
    #expect(rig.settlements().flatMap(\.settlements).map(\.outcome) == [.delivered])
  }

  @Test("at most a thousand keys are reclaimed at a time; a failed part is repeated under another number")
  func parts() throws {
    var rig = try MachineRig.open()
    try rig.bring((1...1500).map { rig.delivery($0) })
    restart(&rig)
    let first = try #require(rig.reclaims().first)
    #expect(first.keys.count == 1000)
    rig.hear(.reclaimed(number: first.number, .failure(.test(.transient))))
    #expect(rig.reclaims().isEmpty)
    rig.live(.milliseconds(300))
    let again = try #require(rig.reclaims().first)
    #expect(again.keys == first.keys)
    #expect(again.number == first.number + 1)
    rig.hear(.reclaimed(number: again.number, .success([])))
    let second = try #require(rig.reclaims().first)
    #expect(second.keys.count == 500)
    #expect(Set(first.keys).isDisjoint(with: second.keys))
    #expect(rig.confirms() == 0)
    rig.hear(.reclaimed(number: second.number, .success([])))
    #expect(rig.confirms() == 1)
  }

  @Test("a heartbeat sent before the reclaim was confirmed does not start another reclaim")
  func oldBeat() throws {
    var rig = try MachineRig.open()
    restart(&rig)
    #expect(rig.confirms() == 1)
    rig.pass(.seconds(1))
    let asked = rig.now
    #expect(rig.beats().count == 1)
    rig.pass(.milliseconds(10))
    rig.hear(.reclaimConfirmed(.success(())))
    rig.hear(.beaten(.success(Beat(isAlive: true, mustReclaim: true)), askedAt: asked))
    #expect(rig.confirms() == 0)
    #expect(rig.claims().count == 1)
  }

  // MARK: - Declared dead

  @Test("a gateway that was declared dead drops what waits, registers anew, and reclaims the rest")
  func fenced() throws {
    var rig = try MachineRig.open()
    try rig.deliver([rig.delivery(1)])
    rig.hear(.outbox(.bell))
    try rig.bring([rig.delivery(2), rig.delivery(3)])
    let requests = rig.sends()
    rig.answer([requests[0]], .unavailable(reason: "UNAVAILABLE", after: .milliseconds(1500)))
    for number in rig.claims() { rig.hear(.claimed(number: number, .success(Claimed(deliveries: [])))) }
    rig.clear()
    rig.pass(.seconds(1))
    for _ in rig.beats() { rig.hear(.beaten(.success(Beat(isAlive: false, mustReclaim: false)), askedAt: rig.now)) }
    #expect(rig.permits().last == Instant(nanoseconds: .min))
    #expect(rig.withdrawals() == [requests[1].tag])
    for number in rig.claims() { rig.hear(.claimed(number: number, .success(Claimed(deliveries: [])))) }
    #expect(rig.registers() == 1)
    rig.hear(.registered(.success(()), askedAt: rig.now))
    let reclaim = try #require(rig.reclaims().first)
    #expect(Set(reclaim.keys) == [key(1), key(3)])
    #expect(rig.permits().isEmpty, "nothing may leave before it is known what is ours")
    rig.hear(.reclaimed(number: reclaim.number, .success([])))
    #expect(rig.confirms() == 0)
    rig.pass(.milliseconds(50))
    #expect(rig.claims().first.map { $0 > reclaim.number } == true)
    #expect(rig.permits().count == 1)
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
    for _ in rig.beats() { rig.hear(.beaten(.success(Beat(isAlive: false, mustReclaim: false)), askedAt: rig.now)) }
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

  /// A scan from the start has been asked for.
  private func scan(_ rig: inout MachineRig) throws {
    rig.live(.seconds(14))
    rig.clear()
    while rig.scans().isEmpty {
      rig.pass(.milliseconds(100))
      rig.beat()
    }
  }

  @Test("a scan returns rows unknown to this process, but not those of a pending claim")
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
    let release = try #require(rig.releases().first)
    #expect(release.leases == [stray])
    rig.hear(.written(batch: release.batch, .success(.count(1))))
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

  @Test("a row that was settled before the scan is settled again, one settled meanwhile is not")
  func settledRows() throws {
    var rig = try MachineRig.open()
    try rig.deliver([rig.delivery(1)])
    rig.hear(.outbox(.bell))
    try rig.bring([rig.delivery(2)])
    let requests = rig.sends()
    try scan(&rig)
    rig.answer(requests)
    rig.pass(.milliseconds(5))
    for (batch, settlements) in rig.settlements() {
      rig.hear(.written(batch: batch, .success(.count(settlements.count))))
    }
    rig.hear(
      .scanned(
        .success(
          ClaimedPage(
            leases: [
              DeliveryLease(outboxID: 1, pushNumber: 0, lease: 1), DeliveryLease(outboxID: 2, pushNumber: 0, lease: 2),
            ], next: nil))))
    rig.pass(.milliseconds(5))
    #expect(rig.settlements().flatMap(\.settlements).map(\.lease.outboxID) == [1])
    #expect(rig.counters.settledAgain == 1)
  }

  @Test("beats may reap only when the connection has been up for the time after which others count as silent")
  func reaping() throws {
    var rig = try MachineRig.open()
    var answers: [Bool] = []
    for _ in 0..<50 {
      rig.pass(.milliseconds(100))
      for mayReap in rig.beats() {
        answers.append(mayReap)
        rig.hear(.beaten(.success(Beat(isAlive: true, mustReclaim: false)), askedAt: rig.now))
      }
    }
    #expect(answers == [false, false, true, true, true])
    rig.hear(.outbox(.unavailable(reason: "cut")))
    rig.hear(.outbox(.available))
    #expect(rig.beats() == [false])
  }
}
