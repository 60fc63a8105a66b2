// Tests of a push whose provider closes the connection while others are answered, and of a network that loses
// everything. No ring ends by that: another gateway may be able to ring it.

import Providers
import Queue
import Runtime
import Testing

@testable import Dispatching

@Suite("Machine: lost connections") struct MachineLossTests {
  private static let lost = PushOutcome.unknown(reason: PushOutcome.connectionLostReason)

  /// The times at which each delivery was sent, while `outcome` decides every 20 ms the results of sent requests. What is handed on
  /// comes back when it is due.
  private struct Story {
    var rig: MachineRig
    var tries: [Int64: [Instant]] = [:]
    var settled: [Int64: Settlement] = [:]
    /// What is in the outbox, and when it may be claimed.
    var outbox: [(delivery: Delivery, at: Instant)] = []
    private var held: [Int64: Delivery] = [:]

    init(rig: MachineRig) { self.rig = rig }

    mutating func enqueue(_ delivery: Delivery) { outbox.append((delivery, rig.now)) }

    mutating func run(_ duration: Nanoseconds, _ outcome: (Int64, Instant) -> PushOutcome) {
      let end = rig.now + duration
      while rig.now < end {
        rig.pass(.milliseconds(20))
        rig.beat()
        rig.answerHousekeeping()
        for (number, limit) in rig.allowances() {
          let due = outbox.filter { $0.at <= rig.now && $0.delivery.deadline > rig.now + .milliseconds(300) }.map(
            \.delivery
          ).prefix(limit)
          outbox.removeAll { row in due.contains { $0 === row.delivery } }
          for delivery in due { held[delivery.key.outboxID] = delivery }
          rig.hear(.claimed(number: number, .success(Claimed(deliveries: due.map { $0.claimed(by: number) }))))
        }
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
          for parking in parkings {
            guard let delivery = held[parking.lease.outboxID] else { continue }
            outbox.append((delivery.attempted(parking.attempts ?? 0), rig.now + (parking.delay ?? .zero)))
          }
          rig.hear(.written(batch: batch, .success(.count(parkings.count))))
        }
      }
    }
  }

  /// The delivery's number, which is in its token.
  private static func id(of request: PushRequest) -> Int64 {
    Int64(String(decoding: request.token, as: UTF8.self).split(separator: "-")[1]) ?? -1
  }

  private static func story(_ ids: ClosedRange<Int64>) throws -> Story {
    var story = Story(rig: try MachineRig.open())
    for id in ids { story.enqueue(story.rig.delivery(id)) }
    return story
  }

  @Test("a ring that loses its connection five times, while others are answered, comes back every five seconds")
  func atFault() throws {
    var story = try Self.story(1...1)
    for next in Int64(2)...60 {
      story.enqueue(story.rig.delivery(next))
      story.run(.milliseconds(500)) { id, _ in id == 1 ? Self.lost : .accepted(messageID: nil) }
    }
    #expect(story.settled[1] == nil)
    let tries = try #require(story.tries[1])
    try #require(tries.count > 6)
    for (one, another) in zip(tries.dropFirst(4), tries.dropFirst(5)) { #expect(another - one >= .seconds(5)) }
    #expect(story.settled.values.count { $0.outcome == .delivered } == 59)
  }

  @Test("the losses of a token are remembered for the next call")
  func nextCall() throws {
    var story = try Self.story(2...2)
    let token = "token-1-of-both"
    story.enqueue(story.rig.delivery(1, seconds: 2, token: token))
    story.run(.seconds(4)) { id, _ in id == 1 ? Self.lost : .accepted(messageID: nil) }
    let before = try #require(story.tries[1]?.count)
    #expect(story.settled[1] == nil && before >= 2)
    for next in Int64(3)...20 {
      story.enqueue(story.rig.delivery(next))
      if next == 3 { story.enqueue(story.rig.delivery(1, 1, token: token)) }
      story.run(.seconds(1)) { id, _ in id == 1 ? Self.lost : .accepted(messageID: nil) }
    }
    #expect(try #require(story.tries[1]?.count) - before < 9, "not once a second")
  }

  @Test("a ring that loses its connection while nothing is answered is tried until its deadline")
  func network() throws {
    var story = try Self.story(1...20)
    story.run(.seconds(20)) { _, _ in Self.lost }
    #expect(story.settled.isEmpty)
    story.run(.seconds(20)) { _, _ in .accepted(messageID: nil) }
    #expect(story.settled.values.count { $0.outcome == .delivered } == 20)
  }

  @Test("in a lane with more losses than answers, no push is dead")
  func flapping() throws {
    var story = try Self.story(1...20)
    var count = 0
    story.run(.seconds(20)) { _, _ in
      count += 1
      return count % 4 == 0 ? .accepted(messageID: nil) : Self.lost
    }
    #expect(story.settled.values.allSatisfy { $0.outcome == .delivered })
  }

  @Test("pushes that lost their connection twice are tried one at a time, a second after the last loss")
  func turns() throws {
    var story = try Self.story(1...10)
    story.run(.seconds(20)) { _, _ in Self.lost }
    let suspect = story.tries.values.flatMap { $0.dropFirst(2) }.sorted()
    #expect(suspect.count > 3)
    for (one, another) in zip(suspect, suspect.dropFirst()) { #expect(another - one >= .seconds(1)) }
  }

  @Test("pushes lost twice together with a bad one are sent soon")
  func innocent() throws {
    var story = try Self.story(1...2)
    var lost = 0
    story.run(.seconds(10)) { id, _ in
      if id == 2 {
        lost += 1
        if lost <= 2 { return Self.lost }
      }
      return id == 1 ? Self.lost : .accepted(messageID: nil)
    }
    let innocent = try #require(story.settled[2])
    #expect(innocent.outcome == .delivered)
    #expect(try #require(story.tries[2]?.last) < MachineRig.start + .seconds(6))
  }
}
