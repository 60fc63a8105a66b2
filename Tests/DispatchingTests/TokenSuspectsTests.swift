// Tests which tokens are suspects, and how many suspects are sent at a time.

import PushModel
import Runtime
import Testing

@testable import Dispatching

@Suite struct TokenSuspectsTests {
  /// The numbers that are sent together; all of them are answered or all are lost.
  private func round(_ suspects: inout TokenSuspects, _ now: Instant, isAnswered: Bool = true) -> Int {
    var count = 0
    while suspects.grant([UInt8(count)], now) {
      suspects.didSend()
      count += 1
    }
    for number in 0..<count {
      suspects.didEnd([UInt8(number)], isLost: !isAnswered, isAnswered: isAnswered, hadTurn: true, now)
    }
    return count
  }

  /// A request for a token that is no suspect.
  private func send(_ suspects: inout TokenSuspects, _ token: UInt8, isAnswered: Bool, _ now: Instant) {
    suspects.didSend()
    suspects.didEnd([token], isLost: !isAnswered, isAnswered: isAnswered, hadTurn: false, now)
  }

  @Test func `the number doubles after each round; after a loss it starts at half of those lost, one by one`() {
    var suspects = TokenSuspects()
    var now = Instant(nanoseconds: 1_000_000_000)
    #expect((0..<3).map { _ in round(&suspects, now) } == [1, 2, 4])
    #expect(round(&suspects, now, isAnswered: false) == 8)
    #expect(round(&suspects, now + TokenSuspects.pause - .milliseconds(1)) == 0)
    now = now + TokenSuspects.pause
    #expect((0..<5).map { _ in round(&suspects, now) } == [1, 2, 4, 5, 6])
    #expect(round(&suspects, now, isAnswered: false) == 7)
    now = now + TokenSuspects.pause
    #expect((0..<4).map { _ in round(&suspects, now) } == [1, 2, 3, 4])
  }

  @Test
  func `two losses make a suspect; others that are answered between them speak against it`() {
    let now = Instant(nanoseconds: 0)
    for othersAreAnswered in [true, false] {
      var suspects = TokenSuspects()
      var seen: [String] = []
      for _ in 1...5 {
        send(&suspects, 1, isAnswered: false, now)
        let losses = suspects.losses(of: [1], now)
        seen.append(losses.isAtFault ? "at fault" : losses.isSuspect ? "suspect" : "")
        send(&suspects, 2, isAnswered: othersAreAnswered, now)
      }
      #expect(
        seen
          == (othersAreAnswered
            ? ["", "suspect", "suspect", "suspect", "at fault"] : [""] + Array(repeating: "suspect", count: 4)))
    }
  }

  @Test func `a connection that is lost with several pushes to a token counts once for it`() {
    let now = Instant(nanoseconds: 0)
    for (connection, isSuspect) in [(7, false), (8, true)] as [(Int?, Bool)] {
      var suspects = TokenSuspects()
      for connection in [7, connection] {
        suspects.didSend()
        suspects.didEnd([1], isLost: true, on: connection, isAnswered: false, hadTurn: false, now)
      }
      #expect(suspects.losses(of: [1], now).isSuspect == isSuspect)
    }
  }

  @Test func `nobody has a second turn while others wait for their first, and invites come first`() {
    var suspects = TokenSuspects()
    var now = Instant(nanoseconds: 0)
    for token: UInt8 in [1, 1, 2, 2, 3, 3] { send(&suspects, token, isAnswered: false, now) }
    // The turn of 1 ends without an answer. It asks again, as do a missed call of 2 and an invite of 3.
    let isGranted = suspects.grant([1], now)
    let asking: [(token: UInt8, isInvite: Bool)] = [(1, true), (2, false), (3, true)]
    var turns: [UInt8] = []
    for _ in 1...3 {
      for (token, isInvite) in asking where !turns.contains(token) {
        _ = suspects.grant([token], isInvite: isInvite, now)
      }
      now = now + TokenSuspects.interval
      suspects.returnTurn(isAnswered: false)
      for (token, isInvite) in asking where !turns.contains(token) {
        if suspects.grant([token], isInvite: isInvite, now) { turns.append(token) }
      }
    }
    #expect(isGranted && turns == [3, 2, 1])
  }

  @Test func `a suspect without an answer holds up the others for the pause`() {
    var suspects = TokenSuspects()
    let now = Instant(nanoseconds: 0)
    let granted = [0, 799, 800].map { suspects.grant([1], now + .milliseconds($0)) }
    #expect(granted == [true, false, true])
  }

  @Test func `an answer takes the turns of its token back`() {
    var suspects = TokenSuspects()
    let now = Instant(nanoseconds: 0)
    for token: UInt8 in [1, 1, 2, 2] { send(&suspects, token, isAnswered: false, now) }
    _ = suspects.grant([1], now)
    suspects.didSend()
    suspects.didEnd([1], isLost: false, isAnswered: true, hadTurn: true, now)
    for _ in 1...2 { send(&suspects, 1, isAnswered: false, now) }
    // Both wait for a turn.
    _ = suspects.grant([9], now)
    _ = suspects.grant([9], now)
    let asked = ([2, 1] as [UInt8]).map { suspects.grant([$0], now) }
    suspects.returnTurn(isAnswered: true)
    let isGranted = suspects.grant([1], now + TokenSuspects.interval)
    #expect(asked == [false, false] && isGranted)
  }

  @Test func `an answer forgets the losses of its token, and so do ten minutes; the environment stays`() {
    var suspects = TokenSuspects()
    let now = Instant(nanoseconds: 0)
    for token in [UInt8](1...2) {
      for _ in 1...2 { send(&suspects, token, isAnswered: false, now) }
      suspects.note(.sandbox, isProven: true, of: [token], now)
    }
    send(&suspects, 1, isAnswered: true, now)
    #expect(!suspects.losses(of: [1], now).isSuspect && suspects.losses(of: [2], now).isSuspect)
    #expect(!suspects.losses(of: [2], now + TokenSuspects.life).isSuspect)
    #expect(
      (1...2).allSatisfy { suspects.environment(of: [$0])?.environment == .sandbox }
        && suspects.environment(of: [3]) == nil)
  }

  @Test func `at most 1,024 tokens are remembered: the one that failed longest ago is forgotten`() {
    var suspects = TokenSuspects()
    for number in 0...TokenSuspects.countMax {
      let token = [UInt8(number & 255), UInt8(number >> 8)]
      suspects.note(.sandbox, isProven: true, of: token[...], Instant(nanoseconds: Int64(number)))
    }
    #expect(suspects.environment(of: [0, 0]) == nil && suspects.environment(of: [1, 0])?.isProven == true)
  }

  @Test func `failures of a token say nothing of its lane from the second on before which others have worked`() {
    var now = Instant(nanoseconds: 0)
    var suspects = TokenSuspects()
    /// A request leaves, and fails a second later.
    func fail() {
      suspects.didFail([1], sentAt: now, now + .seconds(1))
      now = now + .seconds(2)
    }
    func areItsOwn() -> [Bool] {
      let failures = suspects.failures(of: [1], now)
      return [failures.areItsOwn, failures.isLastItsOwn]
    }
    fail()
    fail()
    #expect(areItsOwn() == [false, false], "nobody has worked: the provider may be ill")
    suspects.didWork([2], now)
    let before = now
    fail()
    #expect(areItsOwn() == [true, false], "not yet the token's own")
    suspects.didWork([2], now)
    suspects.didFail([1], sentAt: before, now)
    #expect(areItsOwn() == [true, false], "the same request, or one that left before it failed, shows nothing new")
    fail()
    #expect(areItsOwn() == [true, true])
    fail()
    #expect(areItsOwn() == [true, false], "nobody has worked since")
    let later = now + TokenSuspects.evidenceLife
    #expect(!suspects.failures(of: [1], later).areItsOwn, "nobody has worked for a while: the provider may be ill")
    suspects.didWork([1], now)
    #expect(areItsOwn() == [false, false])
  }
}
