// Tests of the heap of timers.

import Runtime
import TestSeed
import Testing

@Suite("Deadline heap", .timeLimit(.minutes(10)))
struct DeadlineHeapTests {
  @Test
  func `elements are removed in the order of their times`() {
    var heap = DeadlineHeap<Int>()
    var random = TestSeed.generator(3)
    for value in (0..<500).shuffled(using: &random) { heap.insert(value, at: Instant(nanoseconds: Int64(value))) }
    #expect(heap.popDue(Instant(nanoseconds: -1)) == nil)
    for value in 0..<500 { #expect(heap.popDue(Instant(nanoseconds: 1000)) == value, "\(TestSeed.comment)") }
    #expect(heap.isEmpty)
  }

  @Test
  func `compacting drops what is not kept and keeps the order`() {
    var heap = DeadlineHeap<Int>()
    var random = TestSeed.generator(4)
    for value in (0..<100).shuffled(using: &random) { heap.insert(value, at: Instant(nanoseconds: Int64(value))) }
    heap.compact { $0 % 2 == 0 }
    #expect(heap.count == 50, "\(TestSeed.comment)")
    #expect(heap.earliest == Instant(nanoseconds: 0))
    #expect(heap.removeEarliest() == 0)
    #expect(heap.removeEarliest() == 2)
  }
}
