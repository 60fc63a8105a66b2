// Tests when results are written to the outbox, and in which batches.

import Queue
import Runtime
import Testing

@Suite("Settlement batcher") struct SettlementBatcherTests {
  private let start = Instant(nanoseconds: 1_000_000_000_000)

  private func batcher(_ count: Int) -> SettlementBatcher<Int> {
    var batcher = SettlementBatcher<Int>()
    for element in 0..<count { batcher.add(element, start) }
    return batcher
  }

  @Test("few results wait 5 ms from the first one; enough results are written at once")
  func company() {
    var few = batcher(1)
    few.add(1, start + .milliseconds(4))
    #expect(few.dequeue(start + .milliseconds(4)) == nil)
    #expect(few.due == start + .milliseconds(5))
    #expect(few.dequeue(start + .milliseconds(5)) == [0, 1])
    var enough = batcher(250)
    #expect(enough.dequeue(start)?.count == 250)
  }

  @Test("at the end nothing waits for more results")
  func last() {
    var batcher = batcher(1)
    #expect(batcher.dequeue(start, isLast: true) == [0])
    #expect(!batcher.isIdle)
    batcher.didEnd()
    #expect(batcher.isIdle)
  }

  @Test("a batch has at most a thousand results, two batches at a time; the rest forms larger batches")
  func limits() {
    var batcher = batcher(2500)
    #expect(batcher.dequeue(start)?.count == 1000)
    #expect(batcher.dequeue(start)?.count == 1000)
    #expect(batcher.dequeue(start) == nil)
    #expect(batcher.due == nil)
    batcher.didEnd()
    #expect(batcher.dequeue(start) == Array(2000..<2500))
  }
}
