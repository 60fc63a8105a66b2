// Tests of a push whose provider closes the connection while others are answered, and of a network that loses
// everything.

import Providers
import Queue
import Runtime
import Testing

@testable import Dispatching

@Suite("Machine: lost connections") struct MachineLossTests {
  private static let lost = PushOutcome.unknown(reason: PushOutcome.connectionLostReason)

  /// The times at which one delivery was sent, while `answer` decides every 20 ms the results of sent requests.
  private struct Story {
    var rig: MachineRig
    var tries: [Int64: [Instant]] = [:]
    var settled: [Int64: Settlement] = [:]
    var parked = 0

    mutating func run(
      _ duration: Nanoseconds, bringing: (inout MachineRig) throws -> Void = { _ in },
      _ outcome: (Int64, Instant) -> PushOutcome
    ) throws {
      let end = rig.now + duration
      while rig.now < end {
        rig.pass(.milliseconds(20))
        rig.beat()
        rig.answerHousekeeping()
        try bringing(&rig)
        for request in rig.sends() {
          let id = MachineLossTests.id(of: request)
          tries[id, default: []].append(rig.now)
          let outcome = outcome(id, rig.now)
          let status: UInt16 = outcome == MachineLossTests.lost ? 0 : 200
          rig.hear(
            .provider(
              .results([
                PushResult(tag: request.tag, outcome: outcome, status: status, sentAt: rig.now, answeredAt: rig.now)
              ]), lane: 0))
        }
        for (batch, settlements) in rig.settlements() {
          for settlement in settlements { settled[settlement.lease.outboxID] = settlement }
          rig.hear(.written(batch: batch, .success(.count(settlements.count))))
        }
        for (batch, parkings) in rig.parkings() {
          parked += parkings.count
          rig.hear(.written(batch: batch, .success(.count(parkings.count))))
        }
      }
    }
  }

  /// The delivery's number, which is in its token.
  private static func id(of request: PushRequest) -> Int64 {
    Int64(String(decoding: request.token, as: UTF8.self).split(separator: "-")[1]) ?? -1
  }

  @Test("a push that loses its connection five times, while others are answered, is dead")
  func atFault() throws {
    var story = Story(rig: try MachineRig.open())
    var next: Int64 = 2
    try story.rig.bring([story.rig.delivery(1)])
    try story.run(.seconds(30)) { rig in
      guard let claim = rig.claims().last else { return }
      rig.hear(.claimed(number: claim, .success(Claimed(deliveries: [rig.delivery(next).claimed(by: claim)]))))
      next += 1
    } _: { id, _ in
      id == 1 ? Self.lost : .accepted(messageID: nil)
    }
    let poisoned = try #require(story.settled[1])
    #expect(poisoned.outcome == .dead)
    #expect(poisoned.reason == "ConnectionLost")
    #expect(story.tries[1]?.count == 5)
    #expect(story.settled.values.count { $0.outcome == .delivered } > 5)
  }

  @Test("a push that loses its connection while nothing is answered is tried until its deadline")
  func network() throws {
    var story = Story(rig: try MachineRig.open())
    try story.rig.bring((1...20).map { story.rig.delivery($0) })
    try story.run(.seconds(40)) { _, _ in Self.lost }
    #expect(story.settled.isEmpty)
    #expect(story.parked == 0, "the outbox knows nothing of losses")
    let back = story.rig.now
    try story.run(.seconds(4)) { _, _ in .accepted(messageID: nil) }
    #expect(story.settled.values.count { $0.outcome == .delivered } == 20)
    #expect(story.tries.values.allSatisfy { ($0.last ?? back) < back + .seconds(4) })
  }

  @Test("in a lane with more losses than answers, no push is dead")
  func flapping() throws {
    var story = Story(rig: try MachineRig.open())
    try story.rig.bring((1...20).map { story.rig.delivery($0) })
    var count = 0
    try story.run(.seconds(20)) { _, _ in
      count += 1
      return count % 4 == 0 ? .accepted(messageID: nil) : Self.lost
    }
    #expect(story.settled.values.allSatisfy { $0.outcome == .delivered })
  }

  @Test("pushes that lost their connection twice are tried one at a time, a second after the last loss")
  func turns() throws {
    var story = Story(rig: try MachineRig.open())
    try story.rig.bring((1...10).map { story.rig.delivery($0) })
    try story.run(.seconds(20)) { _, _ in Self.lost }
    let suspect = story.tries.values.flatMap { $0.dropFirst(2) }.sorted()
    #expect(suspect.count > 5)
    for (one, another) in zip(suspect, suspect.dropFirst()) { #expect(another - one >= .seconds(1)) }
  }

  @Test("pushes lost twice together with a bad one are sent before it, and soon")
  func innocent() throws {
    var story = Story(rig: try MachineRig.open())
    try story.rig.bring([story.rig.delivery(1), story.rig.delivery(2)])
    var lost = 0
    try story.run(.seconds(10)) { id, _ in
      if id == 2 {
        lost += 1
        if lost <= 2 { return Self.lost }
      }
      return id == 1 ? Self.lost : .accepted(messageID: nil)
    }
    let innocent = try #require(story.settled[2])
    #expect(innocent.outcome == .delivered)
    #expect(try #require(story.tries[2]?.last) < MachineRig.start + .milliseconds(3_500))
  }
}
