// Tests of the machine's parts.

import Providers
import PushModel
import Queue
import Runtime
import TestSeed
import Testing

@testable import Dispatching

private let start = Instant(nanoseconds: 1_000_000_000_000)

private func delivery(_ id: Int64, _ kind: PushKind = .invite, pushNumber: Int32 = 0) -> Delivery {
  Delivery(
    lease: DeliveryLease(outboxID: id, pushNumber: pushNumber, lease: 1), lane: 1, attempt: 1, kind: kind,
    environment: .production,
    platform: .unknown, userID: [], token: Array("token".utf8), locale: nil, callKind: [],
    callID: Array("call-\(id)".utf8),
    payload: Array(repeating: 0x20, count: 4000), createdAtMicroseconds: 0, deadlineAtMicroseconds: 60_000_000,
    deadline: start + .seconds(60))
}

private func settled(_ id: Int64, _ kind: PushKind = .invite) -> Settlement {
  Settlement(delivery(id, kind), outcome: .delivered, attempts: 1, providerMessageID: "m\(id)")
}

@Suite("Claim ledger") struct ClaimLedgerTests {
  @Test("the answered number grows with answers, not with claims sent")
  func answered() {
    var ledger = ClaimLedger(retryInterval: .seconds(1))
    #expect(ledger.next() == 1)
    #expect(ledger.answered == 0)
    #expect(!ledger.isClear)
    #expect(ledger.didAnswer(1) == true)
    #expect(ledger.answered == 1)
    #expect(ledger.didAnswer(1) == false, "an answer comes once")
    #expect(ledger.next() == 2)
    #expect(ledger.didFail(2, .answerLost) == true)
    #expect(ledger.answered == 1)
    #expect(ledger.isQuiet)
    #expect(ledger.forget(start) == 2)
    #expect(!ledger.isQuiet)
    #expect(ledger.forget(start) == nil)
    ledger.didFailToForget(2, start)
    #expect(ledger.forget(start) == nil)
    #expect(ledger.forget(start + .seconds(1)) == 2)
    #expect(ledger.didForget(2) == true)
    #expect(ledger.answered == 2)
    #expect(ledger.next() == 3)
  }

  @Test("another gateway id continues the numbers, so that each lease is unique")
  func anotherGateway() {
    var ledger = ClaimLedger(retryInterval: .seconds(1))
    _ = ledger.next()
    _ = ledger.didFail(1, .answerLost)
    ledger.changeGateway()
    #expect(ledger.isClear)
    #expect(ledger.next() == 2)
  }
}

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
    memory.insert(settled(1), lane: 0, start)
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
    memory.insert(settled(1, .missedCall), lane: 0, start)
    memory.insert(settled(2, .notification), lane: 0, start)
    for id in 3...5 { memory.insert(settled(Int64(id)), lane: 0, start) }
    #expect(forgotten(&memory) == [3, 4])
    for id in 6...7 { memory.insert(settled(Int64(id), .missedCall), lane: 0, start) }
    #expect(forgotten(&memory) == [5, 1])
  }

  @Test("memory is also limited in bytes, and payloads are not stored")
  func bytes() {
    var memory = SettledMemory(limits: SettledMemory.Limits(bytes: 10_000))
    memory.advance(start, isStoreAvailable: true)
    for id in 1...100 { memory.insert(settled(Int64(id)), lane: 0, start) }
    let gone = forgotten(&memory)
    #expect(gone == Array(1...Int64(gone.count)))
    #expect(memory.bytes <= 10_000)
    #expect(memory.count > 30, "a settlement takes a few hundred bytes")
  }

  @Test("a removed settlement is not forgotten a second time")
  func taken() {
    var memory = SettledMemory()
    memory.advance(start, isStoreAvailable: true)
    for id in 1...3000 { memory.insert(settled(Int64(id)), lane: 0, start) }
    let second = DeliveryKey(outboxID: 2, pushNumber: 0)
    #expect(memory[second]?.providerMessageID == "m2")
    let wasTaken = memory.remove(second)
    let wasTakenAgain = memory.remove(second)
    #expect(wasTaken && !wasTakenAgain)
    #expect(memory[second] == nil)
    memory.advance(start + .seconds(30), isStoreAvailable: true)
    #expect(forgotten(&memory).count == 2999)
    memory.insert(settled(5000), lane: 0, start)
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
        delivery(key.outboxID, order % 50 == 0 ? .missedCall : .invite, pushNumber: key.pushNumber), outcome: .dead,
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

@Suite("Known deliveries") struct KnownDeliveriesTests {
  @Test("a delivery is found by its key from its claim until it is forgotten")
  func life() {
    var known = KnownDeliveries()
    known.forgetOld(start, isStoreAvailable: true)
    let entry = HeldDelivery(delivery(1), lane: 0)
    let former = known.insert(entry)
    guard case nil = former else { return #expect(Bool(false), "it is new") }
    #expect(known[entry.slot] === entry)
    guard case .held(let found) = known[entry.key] else { return #expect(Bool(false), "it is held") }
    #expect(found === entry)
    guard case .held? = known.insert(HeldDelivery(delivery(1), lane: 0)) else {
      return #expect(Bool(false), "its key is taken")
    }
    #expect(known.heldCount == 1)
    entry.stage = .settling(settled(1))
    known.remember(entry, start)
    #expect(known.heldCount == 0)
    guard case .settled(let remembered) = known[entry.key] else { return #expect(Bool(false), "it is remembered") }
    #expect(remembered.providerMessageID == "m1")
    known.forgetOld(start + .seconds(30), isStoreAvailable: true)
    #expect(known.isEmpty)
  }

  @Test("the end of a delivery that was claimed again does not affect the new one")
  func successor() {
    var known = KnownDeliveries()
    let former = HeldDelivery(delivery(1), lane: 0)
    _ = known.insert(former)
    let next = HeldDelivery(delivery(1), lane: 0)
    known.replace(with: next)
    known.remove(former)
    known.remove(former)
    guard case .held(let found) = known[next.key] else { return #expect(Bool(false), "the successor is known") }
    #expect(found === next)
    #expect(known.heldCount == 1)
  }
}

@Suite("Write queue") struct WriteQueueTests {
  @Test("a refused batch is written in halves, one part at a time, until one element is alone")
  func halves() {
    var queue = WriteQueue<Int>()
    for element in 1...4 { queue.add(element, start) }
    var sizes: [Int] = []
    var culprits: [Int] = []
    while let batch = queue.next(start, isLast: true) {
      sizes.append(batch.elements.count)
      guard batch.elements.contains(3) else {
        queue.didWrite(batch)
        continue
      }
      if case .culprit(let element) = queue.didFail(batch, .refusedRows, start) { culprits.append(element) }
    }
    #expect(sizes == [4, 2, 2, 1, 1])
    #expect(culprits == [3])
    #expect(queue.isIdle)
  }

  @Test("a locked element delays no other; it is tried again after 500 ms to 4 s")
  func locked() {
    var queue = WriteQueue<Int>()
    for element in 1...4 { queue.add(element, start) }
    var now = start
    func drain(isLocked: Bool) -> [[Int]] {
      var tried: [[Int]] = []
      while let batch = queue.next(now, isLast: true) {
        tried.append(batch.elements)
        if isLocked, batch.elements.contains(3) {
          _ = queue.didFail(batch, .locked, now)
        } else {
          queue.didWrite(batch)
        }
      }
      return tried
    }
    #expect(drain(isLocked: true) == [[1, 2, 3, 4], [1, 2], [3, 4], [3], [4]])
    queue.add(5, now)
    #expect(drain(isLocked: true) == [[5]])
    #expect(!queue.isIdle)
    #expect(queue.count == 1)
    for milliseconds: Int64 in [500, 1000, 2000, 4000, 4000] {
      #expect(queue.due == now + .milliseconds(milliseconds))
      now = queue.due
      #expect(drain(isLocked: true) == [[3]])
    }
    now = queue.due
    #expect(drain(isLocked: false) == [[3]])
    #expect(queue.isIdle)
    #expect(queue.due == .distantFuture)
  }

  @Test("a batch that takes too long is written in smaller ones; what is slow alone delays no other")
  func slow() {
    var queue = WriteQueue<Int>()
    for element in 1...4 { queue.add(element, start) }
    var now = start
    func drain() -> [[Int]] {
      var tried: [[Int]] = []
      while let batch = queue.next(now, isLast: true) {
        tried.append(batch.elements)
        if batch.elements.contains(3) { _ = queue.didFail(batch, .tooSlow, now) } else { queue.didWrite(batch) }
      }
      return tried
    }
    #expect(drain() == [[1, 2, 3, 4]])
    #expect(queue.due == now + .milliseconds(250))
    now = queue.due
    #expect(drain() == [[1, 2], [3, 4]])
    now = queue.due
    #expect(drain() == [[3], [4]])
    queue.add(5, now)
    #expect(drain() == [[5]])
    for milliseconds: Int64 in [500, 1000, 2000, 4000, 4000] {
      #expect(queue.due == now + .milliseconds(milliseconds))
      now = queue.due
      #expect(drain() == [[3]])
    }
    #expect(queue.count == 1)
  }

  @Test("pauses after failures grow from 250 ms to 4 s, and end with a success")
  func pauses() {
    var queue = WriteQueue<Int>()
    queue.add(1, start)
    var now = start
    for milliseconds: Int64 in [250, 500, 1000, 2000, 4000, 4000] {
      guard let batch = queue.next(now, isLast: true) else { return #expect(Bool(false), "due at \(now)") }
      _ = queue.didFail(batch, .transient, now)
      #expect(queue.due == now + .milliseconds(milliseconds))
      now = queue.due
    }
    guard let batch = queue.next(now, isLast: true) else { return #expect(Bool(false), "due") }
    queue.didWrite(batch)
    queue.add(2, now)
    #expect(queue.due == now + .milliseconds(5), "it only waits for company")
  }

  @Test("elements that arrive while a refused batch is split are written beside its parts")
  func beside() {
    var queue = WriteQueue<Int>()
    for element in 1...4 { queue.add(element, start) }
    guard let batch = queue.next(start, isLast: true) else { return #expect(Bool(false), "due") }
    _ = queue.didFail(batch, .refusedRows, start)
    queue.add(9, start)
    let next = (0..<3).map { _ in queue.next(start, isLast: true)?.elements }
    #expect(next == [[1, 2], [9], nil])
  }
}

@Suite("Own lease") struct OwnLeaseTests {
  @Test("it counts from the time the heartbeat was sent, and never goes back")
  func confirm() {
    var lease = OwnLease(time: .seconds(2))
    #expect(!lease.isValid(start))
    lease.confirm(askedAt: start)
    #expect(lease.isValid(start + .milliseconds(1999)))
    #expect(!lease.isValid(start + .seconds(2)))
    lease.confirm(askedAt: start - .seconds(1))
    #expect(lease.until == start + .seconds(2))
  }

  @Test("an expiry is reported once")
  func lapse() {
    var lease = OwnLease(time: .seconds(2))
    #expect(lease.noteLapse(start) == false, "it never held")
    lease.confirm(askedAt: start)
    #expect(lease.noteLapse(start) == false)
    #expect(lease.lapse == start + .seconds(2))
    #expect(lease.noteLapse(start + .seconds(2)) == true)
    #expect(lease.noteLapse(start + .seconds(3)) == false)
    #expect(lease.lapse == .distantFuture)
  }
}

@Suite("Ended calls") struct EndedCallsTests {
  @Test("hints are remembered for the pending claim, and no longer")
  func hints() {
    var ended = EndedCalls()
    ended.note([1, 2])
    #expect(ended.contains(1))
    #expect(!ended.contains(3))
    ended.beginClaim()
    #expect(!ended.contains(1))
    ended.noteAny()
    #expect(ended.contains(3))
    ended.beginClaim()
    #expect(!ended.contains(3))
  }

  @Test("too many hints count as a hint about all calls")
  func tooMany() {
    var ended = EndedCalls()
    ended.note(Array(1...10_001))
    #expect(ended.contains(77_777))
  }
}

@Suite("Call endings") struct CallEndingsTests {
  @Test("only held calls are looked up, and hints that arrive meanwhile are looked up next")
  func coalesces() {
    var endings = CallEndings(interval: .milliseconds(500), retryInterval: .milliseconds(250))
    endings.setListening(true)
    #expect(endings.question([], start) == nil)
    #expect(endings.due == .distantFuture)
    endings.note([1, 2, 3])
    #expect(endings.question([2, 3, 4], start).map(Set.init) == [2, 3])
    endings.note([4])
    #expect(endings.due == .distantFuture)
    #expect(endings.mayHaveEnded(2))
    #expect(endings.didAnswer() == [2, 3])
    #expect(!endings.mayHaveEnded(2))
    #expect(endings.mayHaveEnded(4))
    #expect(endings.question([2, 3, 4], start + .milliseconds(5)).map(Set.init) == [4])
  }

  @Test("a failed look-up is repeated together with the hints that arrived meanwhile")
  func failed() {
    var endings = CallEndings(interval: .milliseconds(500), retryInterval: .milliseconds(250))
    endings.setListening(true)
    _ = endings.question([], start)
    endings.note([1])
    _ = endings.question([1, 2], start)
    endings.note([2])
    endings.didFail(start)
    #expect(endings.due == start + .milliseconds(250))
    #expect(endings.question([1, 2], start + .milliseconds(250)).map(Set.init) == [1, 2])
  }
}
