// Tests of rings that this gateway cannot get answered: they go back to the outbox for others, and an answer that comes late still counts.

import Providers
import PushModel
import Queue
import Runtime
import Testing

@testable import Dispatching

@Suite("Machine: rings are handed on") struct MachineHandOnTests {
  private static func handedOn(_ rig: inout MachineRig) -> [Parking] {
    let batches = rig.parkings()
    for (batch, parkings) in batches { rig.hear(.written(batch: batch, .success(.count(parkings.count)))) }
    return batches.flatMap(\.parkings)
  }

  /// A ring that was sent and had no answer for so long.
  private static func unanswered(_ rig: inout MachineRig, _ time: Nanoseconds = .milliseconds(1_210)) throws
    -> PushRequest
  {
    try rig.bring([rig.delivery(1)])
    let request = try #require(rig.sends().first)
    rig.live(time)
    return request
  }

  @Test("a ring that is refused for another reason than its token goes back at once, for others first")
  func refused() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1), rig.delivery(2, kind: .cancel), rig.delivery(3, kind: .missedCall)])
    rig.answer(rig.sends(), .unavailable(reason: "HTTP503", after: .seconds(20)))
    rig.pass(.milliseconds(5))
    let parked = Self.handedOn(&rig).sorted { $0.lease.outboxID < $1.lease.outboxID }
    try #require(parked.count == 3)
    #expect(parked.map(\.isHandedOn) == [true, true, false])
    #expect(parked.map(\.delay) == [.seconds(20), .seconds(20), .seconds(20)], "as its provider wants")
    #expect(parked.allSatisfy { $0.attempts == 1 && $0.failures.map(\.reason) == ["HTTP503"] })
    #expect(rig.inFlight == 0)
  }

  @Test("a ring rests longer with each second try")
  func rests() throws {
    var rig = try MachineRig.open()
    try rig.bring((1...4).map { rig.delivery($0).attempted(Int32($0) - 1) })
    rig.answer(rig.sends(), .unavailable(reason: "HTTP503", after: nil))
    rig.pass(.milliseconds(5))
    let parked = Self.handedOn(&rig).sorted { $0.lease.outboxID < $1.lease.outboxID }
    #expect(parked.map(\.isHandedOn) == [true, true, true, true])
    #expect(parked.map { $0.delay?.milliseconds } == [250, 250, 500, 500])
  }

  @Test("a ring without an answer is handed on after 1.2 s, and withdrawn if it was not sent")
  func rescued() throws {
    var rig = try MachineRig.open()
    let request = try Self.unanswered(&rig, .milliseconds(1_100))
    #expect(Self.handedOn(&rig).isEmpty)
    rig.live(.milliseconds(200))
    #expect(rig.withdrawals() == [request.tag])
    let parked = Self.handedOn(&rig)
    #expect(parked.map(\.isHandedOn) == [true] && parked.map(\.reason) == ["TimedOut"])
    #expect(parked.first?.failures.map(\.reason) == ["TimedOut"])
    #expect(rig.inFlight == 1, "its provider still has it")
    rig.answer([request], .unknown(reason: "TimedOut"))
    #expect(rig.inFlight == 0)
    #expect(rig.heldCount == 0)
  }

  @Test("where the lane is sick, a ring is handed on sooner, and a late answer makes the lane well")
  func sick() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1), rig.delivery(2)])
    rig.answer(rig.sends(), .unavailable(reason: "HTTP502", after: nil))
    rig.live(.milliseconds(1_100))
    #expect(Self.handedOn(&rig).count == 2)
    try rig.bring([rig.delivery(3)])
    let request = try #require(rig.sends().first)
    rig.live(.milliseconds(200))
    #expect(Self.handedOn(&rig).isEmpty)
    rig.live(.milliseconds(200))
    #expect(Self.handedOn(&rig).map(\.isHandedOn) == [true])
    rig.answer([request])
    rig.pass(.milliseconds(50))
    #expect(rig.settlements().flatMap(\.settlements).map(\.outcome) == [.delivered])
    try rig.bring([rig.delivery(4)])
    #expect(rig.sends().count == 1)
    rig.live(.milliseconds(1_100))
    #expect(Self.handedOn(&rig).isEmpty)
  }

  @Test("a ring that waits in its provider's queue has its time from when it leaves")
  func leavesLate() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1)])
    let request = try #require(rig.sends().first)
    request.leftAt = nil
    rig.live(.milliseconds(1_200))
    request.leftAt = rig.now
    rig.live(.milliseconds(1_100))
    #expect(Self.handedOn(&rig).isEmpty)
    rig.live(.milliseconds(200))
    #expect(Self.handedOn(&rig).count == 1)
  }

  @Test("a ring that was never sent is handed on without an attempt")
  func neverSent() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1)])
    let request = try #require(rig.sends().first)
    rig.pass(.milliseconds(1_200))
    #expect(rig.withdrawals() == [request.tag])
    rig.hear(
      .provider(
        .results([
          PushResult(tag: request.tag, outcome: .refused(reason: "Withdrawn"), sentAt: nil, answeredAt: rig.now)
        ]),
        lane: 0))
    rig.live(.milliseconds(10))
    let parked = Self.handedOn(&rig)
    #expect(parked.map(\.attempts) == [0] && parked.first?.failures.isEmpty == true)
  }

  /// Rings to different phones that get no answer are one failure, or several, or show nothing.
  @Test(
    "what was not written shows nothing, and what shared a request counts once",
    arguments: [(false, false, true, false), (true, true, true, true), (true, false, false, true)])
  func evidence(areWritten: Bool, areShared: Bool, isWell: Bool, isDoubtful: Bool) throws {
    var rig = try MachineRig.open()
    try rig.bring((1...20).map { rig.delivery($0) })
    for request in rig.sends() {
      if !areWritten { request.leftAt = nil }
      if areShared { request.batch = 7 }
    }
    // What has not left is handed on a little later: requests that it waited for may be given up first.
    if !areWritten {
      rig.live(.milliseconds(1_210))
      #expect(Self.handedOn(&rig).isEmpty)
    }
    rig.live(.milliseconds(areWritten ? 1_210 : 100))
    #expect(Self.handedOn(&rig).count == 20, "nobody waits for credit")
    let isLaneWell = rig.machine.scheduler.isWell(MachineRig.lane)
    #expect(isLaneWell == isWell)
    let allowance = rig.machine.scheduler.allowances(rig.now).first
    #expect(allowance?.isLast == isDoubtful)
  }

  @Test("what waits here is not sent during a pause that the provider asks for meanwhile")
  func pauseWhileWaiting() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1), rig.delivery(2)])
    let requests = rig.sends()
    rig.answer([requests[0]], .refused(reason: "GoAway"))
    rig.answer([requests[1]], .throttled(reason: "TooManyRequests", after: .seconds(4), isLaneWide: true))
    rig.live(.milliseconds(100))
    #expect(rig.sends().isEmpty)
    #expect(Self.handedOn(&rig).count == 2)
  }

  @Test("missed calls wait for their answer")
  func visible() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1, kind: .missedCall), rig.delivery(2, kind: .notification)])
    #expect(rig.sends().count == 2)
    rig.live(.seconds(10))
    #expect(Self.handedOn(&rig).isEmpty)
  }

  @Test(
    "while the provider answers others, only few are handed on; otherwise all are",
    arguments: [(true, 10), (false, 100)])
  func budget(_ answers: Bool, _ count: Int) throws {
    var rig = try MachineRig.open()
    try rig.bring((0...100).map { rig.delivery($0) })
    let requests = rig.sends()
    #expect(requests.count == 101)
    if answers {
      // Each shows that the provider works. Those that wait show nothing new by that.
      for answered in 0...5 {
        rig.live(.milliseconds(answered == 0 ? 500 : 900))
        rig.answer([requests[answered]])
      }
    } else {
      rig.answer([requests[0]], .expired)
      rig.live(.seconds(5))
    }
    #expect(Self.handedOn(&rig).count == count)
  }

  @Test("a token that alone gets no answer does not use up what may be handed on of others")
  func ownFailures() throws {
    var rig = try MachineRig.open()
    let token = "token-without-answers"
    for id in Int64(1)...2 {
      try rig.bring([rig.delivery(id, token: token), rig.delivery(id + 2)])
      let requests = rig.sends()
      rig.answer(requests.filter { $0.token.elementsEqual(token.utf8) }, .unavailable(reason: "HTTP502", after: nil))
      rig.answer(requests.filter { !$0.token.elementsEqual(token.utf8) })
      rig.pass(.milliseconds(5))
    }
    _ = Self.handedOn(&rig)
    try rig.bring((10...20).map { rig.delivery($0) } + (21...40).map { rig.delivery($0, token: token) })
    let requests = rig.sends()
    rig.live(.milliseconds(500))
    rig.answer([requests[0]])
    rig.live(.seconds(2))
    #expect(Self.handedOn(&rig).count == 30)
  }

  @Test("what waits in memory goes back to the outbox if its lane is not well then")
  func memory() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1), rig.delivery(2), rig.delivery(3, kind: .missedCall)])
    let requests = rig.sends()
    try #require(requests.count == 3)
    for isVisible in [true, false] {
      rig.answer(requests.filter { $0.kind.isVisible == isVisible }, .unavailable(reason: "HTTP502", after: nil))
    }
    rig.live(.milliseconds(300))
    let parked = Self.handedOn(&rig).filter { !$0.isHandedOn }
    #expect(parked.map(\.lease.outboxID) == [3] && parked.map(\.attempts) == [1])
    #expect(rig.sends().isEmpty)
  }

  @Test("an answer that comes after that settles the ring, when its return is written", arguments: [true, false])
  func late(_ isWritten: Bool) throws {
    var rig = try MachineRig.open()
    let request = try Self.unanswered(&rig)
    if isWritten { #expect(Self.handedOn(&rig).count == 1) }
    rig.answer([request])
    rig.pass(.milliseconds(5))
    if !isWritten {
      #expect(rig.settlements().isEmpty)
      #expect(Self.handedOn(&rig).count == 1)
      rig.pass(.milliseconds(5))
    }
    // Another gateway has claimed it, or is writing it at that moment, so it is written twice.
    for time in [0, 500] {
      rig.pass(.milliseconds(Int64(time)))
      let (batch, settlements) = try #require(rig.settlements().first)
      #expect(settlements.map(\.outcome) == [.delivered] && settlements.map(\.providerMessageID) == ["m"])
      rig.hear(.written(batch: batch, .success(.count(0))))
      #expect(rig.questions().isEmpty, "history may have another ending of it, which is counted")
    }
    #expect(rig.heldCount == 0 && rig.inFlight == 0)
  }

  @Test(
    "a late answer settles the ring that was claimed here again, and its second request is taken back",
    arguments: [true, false])
  func again(_ isAnsweredTwice: Bool) throws {
    var rig = try MachineRig.open()
    let first = try Self.unanswered(&rig)
    #expect(Self.handedOn(&rig).count == 1)
    _ = rig.withdrawals()
    try rig.bring([rig.delivery(1).attempted(1)])
    let second = try #require(rig.sends().first)
    #expect(second.tag != first.tag)
    rig.answer([first])
    #expect(rig.withdrawals() == [second.tag])
    if isAnsweredTwice { rig.answer([second]) }
    rig.pass(.milliseconds(5))
    let batches = rig.settlements()
    #expect(batches.flatMap(\.settlements).map(\.outcome) == [.delivered])
    for (batch, settlements) in batches { rig.hear(.written(batch: batch, .success(.count(settlements.count)))) }
    if !isAnsweredTwice { rig.answer([second], .unknown(reason: "TimedOut")) }
    rig.pass(.milliseconds(5))
    #expect(rig.settlements().isEmpty)
    #expect(rig.heldCount == 0 && rig.inFlight == 0)
  }

  @Test("a late word that the token is dead ends the ring; that it is of the other environment has that one asked")
  func lateDeath() throws {
    for (reason, isFinal) in [("Unregistered", true), ("BadDeviceToken", false)] {
      var rig = try MachineRig.open(provider: .apns)
      let request = try Self.unanswered(&rig)
      #expect(Self.handedOn(&rig).count == 1)
      rig.answer([request], .tokenInvalid(reason: reason, since: nil))
      rig.pass(.milliseconds(5))
      let ended = rig.settlements().flatMap(\.settlements)
      #expect(ended.map(\.outcome) == (isFinal ? [.dead] : []))
      #expect(ended.allSatisfy { $0.failures.isEmpty }, "they were written when it was handed on")
      let invalid = rig.take { if case .write(_, .invalidate) = $0 { true } else { nil } }
      #expect(invalid.count == (isFinal ? 1 : 0))
      #expect(rig.heldCount == (isFinal ? 1 : 0))
      guard !isFinal else { continue }
      try rig.bring([rig.delivery(1).attempted(1)])
      let next = try #require(rig.sends().first)
      #expect(next.environment == request.environment.other)
      // Registered for the other one since: that one is asked first, and its word alone calls nothing dead.
      let token = String(decoding: request.token, as: UTF8.self)
      rig.live(.milliseconds(200))
      try rig.bring([rig.delivery(2, token: token, environment: next.environment)])
      let corrected = try #require(rig.sends().first)
      #expect(corrected.environment == next.environment)
      rig.answersLookUps = true
      rig.answer([corrected], .tokenInvalid(reason: "BadDeviceToken", since: nil))
      #expect(try #require(rig.sends().first).environment == request.environment)
    }
  }

  @Test(
    "where APNs' other environment says nothing of a token, its ring is handed on, and a message is dead",
    arguments: [
      PushOutcome.unavailable(reason: "HTTP503", after: nil), .unknown(reason: "TimedOut"), .expired,
      .throttled(reason: "TooManyRequests", after: nil, isLaneWide: false), .unauthorized(reason: "HTTP403"),
    ])
  func otherEnvironmentIsIll(_ outcome: PushOutcome) throws {
    var rig = try MachineRig.open(provider: .apns)
    rig.answersLookUps = true
    try rig.bring([rig.delivery(1), rig.delivery(2, kind: .missedCall)])
    rig.answer(rig.sends(), .tokenInvalid(reason: "BadDeviceToken", since: nil))
    let requests = rig.sends()
    #expect(requests.map(\.environment) == [.sandbox, .sandbox])
    rig.answer(requests, outcome)
    rig.pass(.milliseconds(5))
    // A key that the other environment refuses is refused there for good.
    let isOver = outcome == .unauthorized(reason: "HTTP403")
    let parked = Self.handedOn(&rig)
    #expect(parked.map(\.lease.outboxID) == (isOver ? [] : [1]))
    #expect(parked.allSatisfy { $0.isHandedOn && $0.attempts == 1 && $0.failures.map(\.reason) == ["BadDeviceToken"] })
    let settled = rig.settlements().flatMap(\.settlements)
    #expect(settled.count == (isOver ? 2 : 1) && settled.allSatisfy { $0.outcome == .dead })
    #expect(rig.take { if case .write(_, .invalidate) = $0 { true } else { nil } }.isEmpty)
  }

  @Test("a token that came with a call in the wrong environment costs one request more, once")
  func home() throws {
    var rig = try MachineRig.open(provider: .apns)
    rig.answersLookUps = true
    let token = String(repeating: "ab", count: 32)
    func ring(_ id: Int64) throws -> PushRequest {
      try rig.bring([rig.delivery(id, token: token)])
      return try #require(rig.sends().first)
    }
    let first = try ring(1)
    #expect(first.environment == .production)
    rig.answer([first], .tokenInvalid(reason: "BadDeviceToken", since: nil))
    let second = try #require(rig.sends().first)
    #expect(second.environment == .sandbox)
    rig.answer([second])
    rig.pass(.milliseconds(5))
    #expect(rig.settlements().flatMap(\.settlements).map(\.outcome) == [.delivered])
    // An hour later.
    rig.live(.seconds(3_600), step: .seconds(1))
    let next = try ring(2)
    #expect(next.environment == .sandbox && next.deadline > rig.now + .seconds(2))
    rig.answer([next])
    rig.pass(.milliseconds(5))
    let settled = rig.settlements().flatMap(\.settlements)
    #expect(settled.map(\.outcome) == [.delivered] && settled.map(\.attempts) == [1])
    // Its word alone does not call the token dead.
    rig.live(.milliseconds(200))
    rig.answer([try ring(3)], .tokenInvalid(reason: "BadDeviceToken", since: nil))
    #expect(try #require(rig.sends().first).environment == .production)
  }

  @Test("one environment alone calls no token dead, not even when there is no time to ask the other")
  func oneWordIsNoDeath() throws {
    var rig = try MachineRig.open(provider: .apns)
    try rig.bring([rig.delivery(1)])
    let request = try #require(rig.sends().first)
    rig.hear(.drain)
    rig.answer([request], .tokenInvalid(reason: "BadDeviceToken", since: nil))
    rig.pass(.milliseconds(5))
    #expect(rig.settlements().flatMap(\.settlements).map(\.outcome) == [.dead])
    #expect(rig.take { if case .write(_, .invalidate) = $0 { true } else { nil } }.isEmpty)
  }

  @Test("a ring whose call has ended is not handed on")
  func ended() throws {
    var rig = try MachineRig.open()
    try rig.bring([rig.delivery(1)])
    let requests = rig.sends()
    rig.hear(.outbox(.mayHaveEnded([1])))
    #expect(rig.lookUps() == [[1]])
    rig.hear(.endedFound(.success(EndedRings(calls: [1]))))
    rig.live(.seconds(2))
    #expect(Self.handedOn(&rig).isEmpty)
    rig.answer(requests, .unavailable(reason: "HTTP503", after: nil))
    rig.pass(.milliseconds(5))
    #expect(rig.settlements().flatMap(\.settlements).map(\.outcome) == [.void])
  }
}
