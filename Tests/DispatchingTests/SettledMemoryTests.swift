// Tests of the memory of settlements: how long, how much, and that each is found unchanged.

import PushModel
import Queue
import Runtime
import TestSeed
import Testing

@testable import Dispatching

private let start = MachineRig.start

@Suite("Settled memory") struct SettledMemoryTests {
  private func forgotten(_ memory: inout SettledMemory) -> [Int64] {
    var ids: [Int64] = []
    while let key = memory.forgetNext() { ids.append(key.outboxID) }
    return ids
  }

  @Test("a settlement is remembered for half a minute of available store")
  func time() {
    var memory = SettledMemory()
    memory.advance(start, isStoreAvailable: true)
    memory.insert(Settlement.part(1), lane: 0, start)
    memory.advance(start + .seconds(29), isStoreAvailable: false)
    #expect(forgotten(&memory) == [])
    // An hour without the store does not count.
    memory.advance(start + .seconds(3629), isStoreAvailable: true)
    #expect(forgotten(&memory) == [])
    #expect(memory[DeliveryKey(outboxID: 1, pushNumber: 0)]?.key.outboxID == 1)
    memory.advance(start + .seconds(3630), isStoreAvailable: true)
    #expect(forgotten(&memory) == [1])
    #expect(memory[DeliveryKey(outboxID: 1, pushNumber: 0)]?.key == nil)
    #expect(memory.count == 0)
    #expect(memory.bytes == 0)
  }

  @Test("above the limit the oldest are forgotten, visible pushes last")
  func limits() {
    var memory = SettledMemory(limits: SettledMemory.Limits(count: 3))
    memory.advance(start, isStoreAvailable: true)
    memory.insert(Settlement.part(1, .missedCall), lane: 0, start)
    memory.insert(Settlement.part(2, .notification), lane: 0, start)
    for id in 3...5 { memory.insert(Settlement.part(Int64(id)), lane: 0, start) }
    #expect(forgotten(&memory) == [3, 4])
    for id in 6...7 { memory.insert(Settlement.part(Int64(id), .missedCall), lane: 0, start) }
    #expect(forgotten(&memory) == [5, 1])
  }

  @Test("memory is also limited in bytes, and payloads are not stored")
  func bytes() {
    var memory = SettledMemory(limits: SettledMemory.Limits(bytes: 10_000))
    memory.advance(start, isStoreAvailable: true)
    for id in 1...100 { memory.insert(Settlement.part(Int64(id)), lane: 0, start) }
    let gone = forgotten(&memory)
    #expect(gone == Array(1...Int64(gone.count)))
    #expect(memory.bytes <= 10_000)
    #expect(memory.count > 30, "a settlement takes a few hundred bytes")
  }

  @Test("a removed settlement is not forgotten a second time")
  func taken() {
    var memory = SettledMemory()
    memory.advance(start, isStoreAvailable: true)
    for id in 1...3000 { memory.insert(Settlement.part(Int64(id)), lane: 0, start) }
    let second = DeliveryKey(outboxID: 2, pushNumber: 0)
    #expect(memory[second]?.providerMessageID == "m2")
    let wasTaken = memory.remove(second)
    let wasTakenAgain = memory.remove(second)
    #expect(wasTaken && !wasTakenAgain)
    #expect(memory[second] == nil)
    memory.advance(start + .seconds(30), isStoreAvailable: true)
    #expect(forgotten(&memory).count == 2999)
    memory.insert(Settlement.part(5000), lane: 0, start)
    #expect(memory.count == 1)
  }

  @Test("each settlement is found unchanged whatever was added or forgotten around it, and no forgotten one is found")
  func found() {
    var memory = SettledMemory(limits: SettledMemory.Limits(count: 20_000))
    memory.advance(start, isStoreAvailable: true)
    var random = TestSeed.generator(6)
    var expected: [DeliveryKey: (settlement: Settlement, order: Int)] = [:]
    for order in 0..<70_000 {
      let key = DeliveryKey(outboxID: Int64(random.next() % 60_000), pushNumber: Int32(random.next() % 3))
      if memory.remove(key) {
        #expect(expected.removeValue(forKey: key) != nil)
      } else {
        #expect(expected[key] == nil)
      }
      let settlement = Settlement(
        .part(key.outboxID, order % 50 == 0 ? .missedCall : .invite, pushNumber: key.pushNumber), outcome: .dead,
        attempts: Int32(order % 7), status: UInt16(order % 600), reason: order % 3 == 0 ? "Reason\(order)" : nil,
        providerMessageID: order % 2 == 0 ? "message \(order) ü" : nil,
        sentAt: order % 5 == 0 ? nil : start + .seconds(Int64(order)),
        failures: order % 11 == 0 ? [FailedAttempt(at: start, attempt: 1, status: 500, reason: "x\(order)")] : [],
        receiptAfter: order % 4 == 0 ? .seconds(900) : nil)
      memory.insert(settlement, lane: order % 9, start)
      expected[key] = (settlement, order)
      while let gone = memory.forgetNext() { #expect(expected.removeValue(forKey: gone) != nil) }
    }
    #expect(memory.count == 20_000)
    #expect(Set(memory.keys) == Set(expected.keys))
    for (key, (settlement, order)) in expected {
      guard let found = memory[key] else { return #expect(Bool(false), "\(key) is not found") }
      let again = found.settlement(lease: settlement.lease, place: .unknown)
      #expect(found.lane == order % 9 && found.laneID == 1 && found.kind == settlement.delivery.kind)
      #expect(again.outcome == settlement.outcome && again.status == settlement.status)
      #expect(again.attempts == settlement.attempts && again.reason == settlement.reason)
      #expect(again.providerMessageID == settlement.providerMessageID)
      #expect(again.delivery.callID.elementsEqual(settlement.delivery.callID))
      #expect(again.sentAt == settlement.sentAt && again.answeredAt == nil)
      #expect(again.failures.map(\.reason) == settlement.failures.map(\.reason))
      #expect(again.receiptAfter == settlement.receiptAfter && found.writtenAt == start)
    }
  }
}
