// Tests of when runs of follow-ups are due.

import Queue
import Runtime
import Testing

@testable import Dispatching

@Suite("Follow-ups") struct FollowUpsTests {
  private func at(_ milliseconds: Int64) -> Instant { Instant(nanoseconds: milliseconds * 1_000_000) }

  @Test("a cause is followed up at once, causes meanwhile once more, after a pause")
  func once() {
    var followUps = FollowUps()
    #expect(followUps.due == .distantFuture)
    followUps.note(.upkeep)
    #expect(followUps.due <= at(0))
    #expect(followUps.runs(.urgent, at(0)) == false)
    #expect(followUps.runs(.upkeep, at(0)) == true)
    for _ in 0..<3 { followUps.note(.upkeep) }
    #expect(followUps.runs(.upkeep, at(4)) == false)
    followUps.didRun(.upkeep, 3)
    #expect(followUps.runs(.upkeep, at(4)) == false)
    #expect(followUps.due == at(5))
    #expect(followUps.runs(.upkeep, at(5)) == true)
    followUps.didRun(.upkeep, 0)
    #expect(followUps.due == .distantFuture)
  }

  @Test(
    "after a full run the next one begins at once; after a failed one a job does the rest", arguments: JobKind.allCases)
  func full(kind: JobKind) {
    var followUps = FollowUps()
    followUps.note(kind)
    #expect(followUps.runs(kind, at(0)) == true)
    followUps.didRun(kind, FollowUps.countMax(kind))
    #expect(followUps.runs(kind, at(0)) == true)
    followUps.didRun(kind, 0)
    #expect(followUps.due == .distantFuture)
  }

  @Test("one run of each kind may be under way")
  func both() {
    var followUps = FollowUps()
    for kind in JobKind.allCases { followUps.note(kind) }
    for kind in JobKind.allCases { #expect(followUps.runs(kind, at(0)) == true) }
  }
}
