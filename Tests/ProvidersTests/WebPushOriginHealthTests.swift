// Tests of when pushes are sent to an origin. No network.

import Runtime
import Testing

@testable import Providers

@Suite(.timeLimit(.minutes(10))) struct WebPushOriginHealthTests {
  private let start = Instant(nanoseconds: 1_000_000_000_000)
  private var health = WebPushOriginHealth(seed: 1)

  private func after(_ milliseconds: Int64) -> Instant { start + .milliseconds(milliseconds) }

  private func isSent(_ admission: WebPushOriginHealth.Admission) -> Bool { admission == .send }

  /// How long the origin rests; zero if it does not.
  private mutating func rest(_ now: Instant) -> Nanoseconds {
    var copy = health
    guard case .wait(let until, _) = copy.admit(now) else { return .zero }
    return until - now
  }

  @Test mutating func `a new origin gets every push`() {
    for _ in 0..<100 { #expect(health.admit(start) == .send) }
  }

  @Test mutating func `five failures in a row let it rest, and an answer between them does not`() {
    for _ in 0..<4 { health.didFail("HTTP503", start) }
    #expect(health.admit(start) == .send)
    health.didAnswer()
    for _ in 0..<4 { health.didFail("HTTP503", start) }
    #expect(!health.isResting)
    health.didFail("HTTP503", start)
    #expect(health.isResting)
    guard case .wait(let until, let reason) = health.admit(start) else {
      _ = Issue.record("sent while it rests")
      return
    }
    #expect(reason == "HTTP503")
    #expect(until > start && until <= after(1_000))
  }

  @Test mutating func `requests that fail together let it rest once`() {
    for _ in 0..<300 { health.didFail("HTTP503", start) }
    let time = rest(start)
    #expect(time > .zero && time <= .seconds(1))
  }

  @Test mutating func `after the rest one push probes, and its answer decides`() {
    for _ in 0..<5 { health.didFail("HTTP503", start) }
    #expect(health.admit(after(1_000)) == .send)
    #expect(health.admit(after(1_000)) == .wait(until: after(1_500), reason: "HTTP503"))
    health.didFail("HTTP503", after(1_100))  // the probe: a second, longer rest
    let second = rest(after(1_100))
    #expect(second >= .milliseconds(1_000) && second <= .milliseconds(2_000))
    #expect(health.admit(after(3_200)) == .send)
    health.didAnswer()
    #expect(!health.isResting)
    for _ in 0..<10 { #expect(health.admit(after(3_300)) == .send) }
  }

  @Test mutating func `a rest has at most five seconds, however many probes fail`() {
    var now = start
    for _ in 0..<5 { health.didFail("x", now) }
    for _ in 0..<20 {
      let time = rest(now)
      #expect(time > .zero && time <= .seconds(5))
      now = now + time
      #expect(health.admit(now) == .send)
      health.didFail("x", now)
    }
  }

  @Test mutating func `a probe that was not sent lets the next push probe`() {
    for _ in 0..<5 { health.didFail("x", start) }
    #expect(health.admit(after(1_000)) == .send)
    health.didNotSend()
    #expect(health.admit(after(1_000)) == .send)
  }

  @Test mutating func `a lost connection counts once, however many requests it carried`() {
    for _ in 0..<100 { health.didFail("ConnectionLost", lost: 7, start) }
    #expect(!health.isResting)
    for connection in 8...11 { health.didFail("ConnectionLost", lost: connection, start) }
    #expect(health.isResting)
  }

  @Test mutating func `without a connection it rests at once, and pushes that waited together count once`() {
    for _ in 0..<50 { health.hasNoConnection("NoConnection", start) }
    let first = rest(start)
    #expect(first > .zero && first <= .seconds(1))
    health.tryNow(after(100))  // there is a connection
    #expect(health.admit(after(100)) == .send)
    health.didAnswer()
    #expect(health.admit(after(100)) == .send)
  }

  @Test mutating func `a connection that is in doubt ends no rest, and another connection does`() {
    health.didChangeCapacity(to: 100, start)
    for _ in 0..<5 { health.didFail("TimedOut", start) }
    health.didChangeCapacity(to: 1, after(100))
    #expect(!isSent(health.admit(after(100))))
    health.didChangeCapacity(to: 101, after(200))
    #expect(health.admit(after(200)) == .send)
  }

  @Test mutating func `while it accepts other subscriptions, a refused token is the fault of the subscription`() {
    health.didAnswer()
    #expect(health.didRefuseToken("HTTP403", start) == true)
    health.didAnswer()
    for _ in 0..<3 { #expect(health.didRefuseToken("HTTP403", start) == true) }
    #expect(health.admit(start) == .send)
    #expect(health.didRefuseToken("HTTP403", start) == false)  // the fourth in a row
    #expect(health.isResting)
  }

  @Test mutating func `an outage is over when the probe is refused as a subscription of another key`() {
    health.didAnswer()
    health.hasNoConnection("NoConnection", start)
    #expect(health.admit(after(1_000)) == .send)
    #expect(health.didRefuseToken("HTTP403", after(1_100)) == true)
    #expect(!health.isResting)
    for _ in 0..<10 { #expect(health.admit(after(1_100)) == .send) }
  }

  @Test mutating func `after an outage that such a refusal has ended, failures are counted from the start`() {
    health.didAnswer()
    for _ in 0..<5 { health.didFail("HTTP503", start) }
    #expect(health.admit(after(1_000)) == .send)
    #expect(health.didRefuseToken("HTTP403", after(1_100)) == true)
    for _ in 0..<4 { health.didFail("HTTP503", after(1_200)) }
    #expect(!health.isResting)
    health.didFail("HTTP503", after(1_200))
    let first = rest(after(1_200))
    #expect(first > .zero && first <= .seconds(1))
  }

  @Test mutating func `subscriptions of another key do not keep the others waiting`() {
    health.didAnswer(to: 100)
    for foreign in 0..<10 { #expect(health.didRefuseToken("HTTP403", to: foreign, start) == (foreign < 3)) }
    #expect(health.isResting)
    guard case .wait(let until, _) = health.admit(start, to: 100) else {
      _ = Issue.record("sent while it rests")
      return
    }
    #expect(until <= after(1_000))
    #expect(!isSent(health.admit(after(1_500), to: 9)))  // leaves the probe to the other one
    #expect(health.admit(after(1_500), to: 100) == .send)
    health.didAnswer(to: 100)
    for _ in 0..<10 {
      for foreign in 0..<10 { #expect(health.didRefuseToken("HTTP403", to: foreign, after(1_600)) == true) }
    }
    #expect(health.admit(after(1_600), to: 100) == .send)
  }

  @Test mutating func `others wait for at most a second after a refusal, however long the rest of those refused`() {
    var now = start
    for _ in 0..<8 {
      #expect(health.didRefuseToken("HTTP403", to: 1, now) == false)
      guard case .wait(let until, _) = health.admit(now, to: 1) else {
        _ = Issue.record("sent while it rests")
        return
      }
      now = until
      #expect(health.admit(now, to: 1) == .send)
    }
    #expect(health.didRefuseToken("HTTP403", to: 1, now) == false)
    now = now + .seconds(1)
    #expect(health.admit(now, to: 2) == .send)
    #expect(health.didRefuseToken("HTTP403", to: 2, now) == false)
    #expect(!isSent(health.admit(now + .seconds(1), to: 2)))  // refused now, too
    #expect(health.admit(now + .seconds(1), to: 3) == .send)
  }

  @Test mutating func `with another key, those that were refused count again`() {
    health.didAnswer(to: 100)
    #expect(health.didRefuseToken("HTTP403", to: 1, start) == true)
    health.didAnswer(to: 100)
    health.didChangeKey()
    for _ in 0..<3 { #expect(health.didRefuseToken("HTTP403", to: 1, start) == true) }
    #expect(health.didRefuseToken("HTTP403", to: 1, start) == false)
  }

  @Test mutating func `an origin that has never accepted the token rests at the first refusal, up to a minute`() {
    #expect(health.didRefuseToken("BadJwtToken", start) == false)
    var now = start
    var longest = Nanoseconds.zero
    for _ in 0..<12 {
      let time = rest(now)
      longest = max(longest, time)
      now = now + time
      #expect(health.admit(now) == .send)
      #expect(health.didRefuseToken("BadJwtToken", now) == false)
    }
    #expect(longest >= .seconds(30) && longest <= .seconds(60))
  }

  @Test mutating func `a pause that the origin asks for is obeyed up to a minute, and ends only by time`() {
    health.didPause("errno_201", for: .seconds(7), start)
    #expect(health.admit(start) == .wait(until: start + .seconds(7), reason: "errno_201"))
    health.didAnswer()  // to an earlier request
    #expect(!isSent(health.admit(after(6_999))))
    #expect(health.admit(after(7_000)) == .send)
    health.didPause("appthrottled", for: .seconds(900), start)
    #expect(health.admit(start) == .wait(until: start + .seconds(60), reason: "appthrottled"))
    var other = WebPushOriginHealth(seed: 1)
    other.didFail("HTTP503", after: .seconds(3), start)
    #expect(other.admit(start) == .wait(until: start + .seconds(3), reason: "HTTP503"))
  }

  @Test mutating func `of several pauses that the origin asks for, the longest counts`() {
    health.didPause("errno_201", for: .seconds(30), start)
    health.didPause("errno_201", for: .seconds(1), start)
    health.didFail("HTTP503", after: .seconds(2), after(100))
    #expect(health.admit(after(3_000)) == .wait(until: start + .seconds(30), reason: "errno_201"))
    health.didPause("appthrottled", for: .seconds(40), after(100))
    #expect(health.admit(after(30_000)) == .wait(until: after(40_100), reason: "appthrottled"))
    #expect(health.admit(after(40_100)) == .send)
  }

  @Test mutating func `ten subscriptions in a row that get too many pushes pause the origin`() {
    for other in 0..<9 { health.didThrottle("HTTP429", to: other, after: .seconds(2), start) }
    #expect(health.admit(start) == .send)
    health.didAnswer()
    for other in 0..<10 { health.didThrottle("HTTP429", to: other, after: .seconds(2), start) }
    #expect(health.admit(start) == .wait(until: start + .seconds(2), reason: "HTTP429"))
  }

  @Test mutating func `one subscription that gets too many pushes pauses nothing, however often it does`() {
    for _ in 0..<100 { health.didThrottle("HTTP429", to: 1, after: .seconds(60), start) }
    #expect(health.admit(start, to: 2) == .send)
  }

  @Test mutating func `the time that subscriptions ask for pauses the origin for at most five seconds`() {
    for other in 0..<10 { health.didThrottle("HTTP429", to: other, after: .seconds(60), start) }
    #expect(health.admit(start) == .wait(until: start + .seconds(5), reason: "HTTP429"))
    // After that, one of them alone does not pause it again.
    health.didThrottle("HTTP429", to: 1, after: .seconds(60), after(5_000))
    #expect(health.admit(after(5_000), to: 2) == .send)
  }

  @Test mutating func `one or two subscriptions that fail do not let the origin rest, however often they do`() {
    for _ in 0..<100 {
      for failing in 1...2 { health.didFail("HTTP503", to: failing, start) }
    }
    #expect(!health.isResting)
    health.didFail("HTTP503", to: 3, start)
    #expect(health.isResting)
  }

  @Test mutating func `subscriptions that fail leave the probe to others`() {
    for failing in [1, 2, 3, 1, 2] { health.didFail("HTTP503", to: failing, start) }
    #expect(!isSent(health.admit(start, to: 100)))
    #expect(!isSent(health.admit(after(1_500), to: 1)))
    #expect(health.admit(after(1_500), to: 100) == .send)
    health.didAnswer(to: 100)
    #expect(health.admit(after(1_600), to: 1) == .send)
  }

  @Test mutating func `others wait for at most a second after a failure, however long the rest of those that fail`() {
    for failing in [1, 2, 3, 1, 2] { health.didFail("HTTP503", to: failing, start) }
    var now = start
    for _ in 0..<5 {
      guard case .wait(let until, _) = health.admit(now, to: 1) else {
        _ = Issue.record("sent while it rests")
        return
      }
      now = until
      #expect(health.admit(now, to: 1) == .send)
      health.didFail("HTTP503", to: 1, now)
    }
    #expect(health.admit(now + .seconds(1), to: 100) == .send)
  }

  @Test mutating func `those that fail while the origin answers to others say nothing about it until they succeed`() {
    for failing in 1...4 { health.didFail("HTTP503", to: failing, start) }
    health.didAnswer(to: 100)
    for _ in 0..<10 {
      for failing in 1...4 { health.didFail("HTTP503", to: failing, start) }
    }
    #expect(!health.isResting)
    for failing in 1...4 { health.didAnswer(to: failing) }
    health.didAnswer(to: 1)
    for failing in 5...8 { health.didFail("HTTP503", to: failing, start) }
    #expect(!health.isResting)
    health.didFail("HTTP503", to: 1, start)
    #expect(health.isResting)
  }

  @Test mutating func `it says until when nobody is admitted, whoever asked`() {
    #expect(health.restsUntil(start) == nil)
    for failing in [1, 2, 3, 1, 2] { health.didFail("HTTP503", to: failing, start) }
    #expect(!isSent(health.admit(start, to: 100)))
    #expect(health.restsUntil(start).map { $0 > start && $0 <= after(1_000) } == true)
    #expect(!isSent(health.admit(after(1_000), to: 1)))
    #expect(health.restsUntil(after(1_000)) == nil)  // another would be admitted
    #expect(health.admit(after(1_000), to: 100) == .send)
    #expect(health.restsUntil(after(1_000)) == after(1_500))
    health.didPause("errno_201", for: .seconds(7), after(1_000))
    #expect(health.restsUntil(after(1_000)) == after(8_000))
  }
}
