// Tests of when the next claim is due.

import Queue
import Runtime
import Testing

private func at(_ milliseconds: Int64) -> Instant { Instant(nanoseconds: 0) + .milliseconds(milliseconds) }

@Suite("Claim pacer")
struct ClaimPacerTests {
  @Test("after many rows the next claim is due at once, then every two milliseconds for 20 ms, then every 50 ms")
  func pace() {
    var pacer = ClaimPacer()
    pacer.didClaim(30, at(99))
    #expect(pacer.next == at(99))
    pacer.didClaim(5, at(100))
    #expect(pacer.next == at(102))
    pacer.didClaim(0, at(102))
    #expect(pacer.next == at(104))
    pacer.didClaim(0, at(119))
    #expect(pacer.next == at(121))
    pacer.didClaim(0, at(121))
    #expect(pacer.next == at(171))
  }

  @Test("a notification makes a claim due at once")
  func bell() {
    var pacer = ClaimPacer()
    pacer.didClaim(0, at(100))
    #expect(pacer.next == at(150))
    pacer.didHearBell(at(110), isClaiming: false)
    #expect(pacer.next == at(110))
  }

  @Test("a notification during a claim is kept if the claim returns nothing")
  func bellDuringClaim() {
    var pacer = ClaimPacer()
    pacer.didHearBell(at(110), isClaiming: true)
    pacer.didClaim(0, at(112))
    #expect(pacer.next == at(112))
    pacer.didClaim(0, at(113))
    #expect(pacer.next == at(115))
  }

  @Test("a failed claim is tried again after a pause")
  func failure() {
    var pacer = ClaimPacer()
    pacer.didFail(at(100))
    #expect(pacer.next == at(350))
  }
}
