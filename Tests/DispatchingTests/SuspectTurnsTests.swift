// Tests the number of suspects that are sent at a time.

import Runtime
import Testing

@testable import Dispatching

@Suite struct SuspectTurnsTests {
  /// The numbers that are sent together; all of them are answered or all are lost.
  private func round(_ turns: inout SuspectTurns, _ now: Instant, isAnswered: Bool = true) -> Int {
    var count = 0
    while turns.grant(inFlight: count, now) { count += 1 }
    for _ in 0..<count {
      if isAnswered { turns.didAnswer() } else { turns.didLose(now) }
      turns.didReturn(isAnswered: isAnswered)
    }
    return count
  }

  @Test func `the number doubles after each round; after a loss it starts at half of those lost, one by one`() {
    var turns = SuspectTurns()
    var now = Instant(nanoseconds: 1_000_000_000)
    #expect((0..<3).map { _ in round(&turns, now) } == [1, 2, 4])
    #expect(round(&turns, now, isAnswered: false) == 8)
    #expect(round(&turns, now + .milliseconds(999)) == 0)
    now = now + SuspectTurns.pause
    #expect((0..<5).map { _ in round(&turns, now) } == [1, 2, 4, 5, 6])
    #expect(round(&turns, now, isAnswered: false) == 7)
    now = now + SuspectTurns.pause
    #expect((0..<4).map { _ in round(&turns, now) } == [1, 2, 3, 4])
  }
}
