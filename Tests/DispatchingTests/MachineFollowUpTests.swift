// Tests of when follow-ups run.

import Providers
import PushModel
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
    followUps.didFail(kind)
    #expect(followUps.due == .distantFuture)
  }

  @Test("one run of each kind may be under way")
  func both() {
    var followUps = FollowUps()
    for kind in JobKind.allCases { followUps.note(kind) }
    for kind in JobKind.allCases { #expect(followUps.runs(kind, at(0)) == true) }
  }
}

@Suite("Machine: follow-ups") struct MachineFollowUpTests {
  @Test(
    "ends and declines of any calls are followed up at once",
    arguments: [OutboxEvent.mayHaveEnded([4711]), .manyMayHaveEnded])
  func hint(_ hint: OutboxEvent) throws {
    var rig = try MachineRig.open()
    rig.hear(.outbox(.bell))
    #expect(rig.followUps() == [])
    rig.hear(.outbox(hint))
    #expect(rig.followUps() == [.upkeep])
    rig.hear(.outbox(hint))
    rig.pass(.milliseconds(50))
    #expect(rig.followUps() == [])
    rig.hear(.followedUp(.upkeep, .success(0)))
    #expect(rig.followUps() == [.upkeep])
  }

  @Test(
    "a failed invite is followed up when its settlement is written, others are not",
    arguments: [(.rejected(reason: "Unregistered"), [.urgent]), (.accepted(messageID: "m"), [])]
      as [(PushOutcome, [JobKind])])
  func failed(outcome: PushOutcome, followUps: [JobKind]) throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1)])
    rig.answer(rig.sends(), outcome)
    rig.pass(.milliseconds(5))
    let written = try #require(rig.settlements().first)
    #expect(rig.followUps() == [])
    rig.hear(.written(batch: written.batch, .success(.count(1))))
    #expect(rig.followUps() == followUps)
  }

  @Test("when follow-ups were found, a claim is due at once, else not", arguments: [(1, 1), (0, 0)])
  func claims(found: Int, claims: Int) throws {
    var rig = try MachineRig.open()
    rig.hear(.outbox(.mayHaveEnded([1])))
    // Until claims have the pace of an idle gateway.
    for _ in 0..<20 {
      rig.pass(.milliseconds(2))
      for number in rig.claims() { rig.hear(.claimed(number: number, .success(Claimed(deliveries: [])))) }
    }
    #expect(rig.claims().isEmpty)
    rig.hear(.followedUp(.upkeep, .success(found)))
    #expect(rig.claims().count == claims)
  }

  @Test("a gateway that stops, or has no database, leaves follow-ups to others")
  func drained() throws {
    var rig = try MachineRig.open()
    rig.hear(.outbox(.unavailable(reason: "cut")))
    rig.hear(.outbox(.mayHaveEnded([1])))
    #expect(rig.followUps() == [])
    rig.hear(.outbox(.available))
    rig.beat()
    #expect(rig.followUps() == [.upkeep])
    rig.hear(.followedUp(.upkeep, .success(50)))
    #expect(rig.followUps() == [.upkeep])
    rig.hear(.drain)
    rig.hear(.followedUp(.upkeep, .success(50)))
    #expect(rig.followUps() == [])
  }
}
