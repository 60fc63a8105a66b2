// Tests of hints that a call has ended, which arrive during a claim.

import Queue
import Runtime
import Testing

@testable import Dispatching

@Suite("Ended calls") struct EndedCallsTests {
  @Test("hints are remembered until they are cleared")
  func hints() {
    var ended = EndedCalls()
    ended.note([1, 2])
    #expect(ended.contains(1))
    #expect(!ended.contains(3))
    ended.clear()
    #expect(!ended.contains(1))
    ended.noteAny()
    #expect(ended.contains(3))
    ended.clear()
    #expect(!ended.contains(3))
  }

  @Test("too many hints count as a hint about all calls")
  func tooMany() {
    var ended = EndedCalls()
    ended.note(Array(1...10_001))
    #expect(ended.contains(77_777))
  }
}
