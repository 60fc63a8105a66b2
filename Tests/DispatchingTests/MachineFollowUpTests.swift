// Tests of what makes the machine run follow-ups.

import Providers
import PushModel
import Queue
import Runtime
import Testing

@testable import Dispatching

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
