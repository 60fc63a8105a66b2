// Tests of the machine's parts.

import Providers
import PushModel
import Queue
import Runtime
import Testing

@testable import Dispatching

private let start = Instant(nanoseconds: 1_000_000_000_000)

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
