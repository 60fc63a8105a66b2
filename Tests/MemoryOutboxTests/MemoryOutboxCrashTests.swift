// Tests of what a crash and a fail-over lose: the last commits of the log, and in a crash none before a durable one.

import MemoryOutbox
import Queue
import Runtime
import Testing

@Suite struct MemoryOutboxCrashTests {
  private var outbox: MemoryOutbox
  private let now: DatabaseTime = 1_750_000_000_000_000
  private let gateway: Int32

  init() {
    outbox = MemoryOutbox()
    outbox.apps["one"] = MemoryApp(name: "one")
    outbox.lanes[1] = MemoryLane(id: 1, app: "one", provider: "fcm")
    gateway = outbox.register(name: "one", at: now)
  }

  private mutating func ring(_ devices: Int = 1) -> Int64 {
    let recipients = (0..<devices).map {
      let channel = MemoryChannel(lane: 1, token: "token-\($0)")
      return MemoryRecipient(userID: "user-\($0)", channels: [channel], missedCall: channel)
    }
    return outbox.enqueueCall(
      app: "one", callID: "call", payload: "{}", recipients: recipients, ring: 60_000_000, at: now)
  }

  private mutating func claim(_ number: Int32) -> Int {
    begin(number).map { outbox.finish($0, at: now).count } ?? 0
  }

  private mutating func begin(_ number: Int32) -> MemoryRunningClaim? {
    outbox.beginClaim(gateway, number, [LaneAllowance(lane: 1, limit: 1)], within: ClaimLimits(), at: now)
  }

  @Test mutating func nonDurableCommitsAreLostFromTheEnd() {
    _ = ring(3)
    let counts = (1...3).map { claim($0) }
    #expect(counts == [1, 1, 1])
    #expect(outbox.unsyncedCommits == 3)
    let lost = outbox.crash(keeping: 2)
    #expect(lost.count == 1)
    #expect(outbox.deliveries.values.count { $0.state == .claimed } == 2)
    #expect(outbox.unsyncedCommits == 0)
  }

  @Test mutating func aDurableCommitMakesEverythingBeforeItDurable() {
    _ = ring(2)
    let first = claim(1)
    #expect(first == 1)
    _ = ring()
    let second = claim(2)
    #expect(second == 1)
    outbox.crash(keeping: 0)
    #expect(outbox.deliveries.values.filter { $0.state == .claimed }.map(\.lease) == [1])
    #expect(outbox.calls.values.count == 2)
  }

  @Test mutating func commitsFlushedByTheWALWriterStay() {
    _ = ring(2)
    let both = claim(1) + claim(2)
    #expect(both == 2)
    outbox.sync(upTo: 1)
    outbox.crash(keeping: 0)
    #expect(outbox.deliveries.values.filter { $0.state == .claimed }.map(\.lease) == [1])
  }

  @Test mutating func theEndOfACallIsNotLostNorWhatFollowsFromIt() {
    let call = ring()
    let first = claim(1)
    #expect(first == 1)
    outbox.sync()
    outbox.end(call, at: now)
    let taken = outbox.followUp(isUrgent: false, at: now)
    #expect(taken == 1)
    #expect(outbox.deliveries.values.map(\.kind).sorted() == [0, 1, 2])
    outbox.crash(keeping: 0)
    #expect(outbox.calls[call]?.state == .ended)
    #expect(outbox.deliveries.values.map(\.kind) == [0])
    let again = outbox.followUp(isUrgent: false, at: now)
    #expect(again == 1)
    #expect(outbox.deliveries.values.map(\.kind).sorted() == [0, 1, 2])
  }

  @Test mutating func aSettlementAndAllBeforeItAreOnTheDisk() throws {
    _ = ring(2)
    let claim = try #require(begin(1))
    let row = try #require(outbox.finish(claim, at: now).first)
    let claimed = try #require(Claimed([row], asked: Instant(nanoseconds: 0)).deliveries.first)
    let settled = try outbox.settle(gateway, [Settlement(claimed, outcome: .delivered, attempts: 1)], at: now)
    #expect(settled == 1)
    outbox.crash(keeping: 0)
    #expect(outbox.history.values.joined().map(\.outcome) == [.delivered])
    #expect(outbox.deliveries.values.map(\.state) == [.ready])
  }

  @Test mutating func aFailOverLosesWhatTheStandbyLacksAndGivesItsIDsToOtherCalls() {
    let first = ring()
    outbox.replicate(upTo: outbox.unreplicatedCommits)
    let second = ring()
    let lost = outbox.failOver(keeping: 0)
    #expect(lost.map(\.outboxID) == [second])
    #expect(outbox.calls.rows.keys.sorted() == [first])
    let another = ring()
    #expect(another == second)
  }

  @Test mutating func aClaimThatRanWhenTheServerCrashedTakesNothingAndHoldsNothing() {
    _ = ring()
    let running = begin(1)
    #expect(running != nil)
    #expect(outbox.isLocked(gateway))
    outbox.crash(keeping: 0)
    #expect(!outbox.isLocked(gateway))
    let next = begin(2)
    #expect(next != nil)
  }
}
