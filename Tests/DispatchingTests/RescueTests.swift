// Tests of when a ring without an answer is handed on, and of how many are.

import Runtime
import Testing

@testable import Dispatching

@Suite("Rescue") struct RescueTests {
  private let now = Instant(nanoseconds: 1_000_000_000_000)

  @Test("a quick provider has 1.2 s; a slow one has more, but not because of one slow answer")
  func time() {
    var rescue = Rescue()
    #expect(rescue.time == .milliseconds(1_200))
    for _ in 0..<8 { rescue.didAnswer(after: .milliseconds(50)) }
    rescue.didAnswer(after: .seconds(20))
    #expect(rescue.time == .milliseconds(1_200))
    var slow = Rescue()
    slow.didAnswer(after: .seconds(5))
    #expect(slow.time == .seconds(4), "it may die, too")
    slow = Rescue()
    slow.didAnswer(after: .seconds(2))
    #expect(slow.time == .seconds(3))
    for _ in 0..<8 { slow.didAnswer(after: .milliseconds(50)) }
    #expect(slow.time == .milliseconds(1_200))
  }

  @Test("ten rings may be handed on at once, then one in six seconds, and one more for each fifty pushes")
  func budget() {
    var rescue = Rescue()
    /// How many of twenty may be handed on after so long.
    func count(after milliseconds: Int64) -> Int {
      var count = 0
      for _ in 0..<20 where rescue.spend(now + .milliseconds(milliseconds)) { count += 1 }
      return count
    }
    #expect(count(after: 0) == 10)
    #expect(count(after: 5_900) == 0)
    #expect(count(after: 6_100) == 1)
    for _ in 0..<50 { rescue.didSend() }
    #expect(count(after: 6_200) == 1)
    #expect(count(after: 600_000) == 10)
  }
}
