import Providers
import Queue
import Runtime
import TestSeed
import Testing

@testable import Dispatching

@Suite("Retry policy")
struct RetryPolicyTests {
  private let policy = RetryPolicy()
  private let now = Instant(nanoseconds: 1_000_000_000_000)

  private func decide(
    _ outcome: PushOutcome, attempts: Int = 1, left: Nanoseconds = .seconds(60), random: Double = 0.5
  ) -> Disposition {
    policy.disposition(
      of: outcome, attempts: attempts, deadline: now + left, answeredAt: now, random: random)
  }

  @Test("accepted before the deadline is delivered, after it delivered late")
  func accepted() {
    #expect(decide(.accepted(messageID: "id")) == .settle(.delivered, reason: nil))
    #expect(decide(.accepted(messageID: "id"), left: .zero) == .settle(.delivered, reason: nil))
    #expect(
      decide(.accepted(messageID: nil), left: .milliseconds(-1)) == .settle(.deliveredLate, reason: "AcceptedLate"))
  }

  @Test("a permanent refusal is dead at once, with the provider's reason")
  func permanent() {
    #expect(decide(.tokenInvalid(reason: "Unregistered", since: 1)) == .settle(.dead, reason: "Unregistered"))
    #expect(decide(.rejected(reason: "PayloadTooLarge")) == .settle(.dead, reason: "PayloadTooLarge"))
  }

  @Test(
    "the longest wait doubles from 200 ms up to 5 s",
    arguments: zip([1, 2, 3, 4, 5, 6, 7, 50], [200, 400, 800, 1600, 3200, 5000, 5000, 5000]))
  func backoff(attempts: Int, milliseconds: Int64) {
    #expect(policy.longestWait(afterAttempts: attempts) == .milliseconds(milliseconds))
  }

  @Test("the jitter covers the whole length of the wait")
  func jitter() {
    let outcome = PushOutcome.unavailable(reason: "ServiceUnavailable", after: nil)
    let retry = { Disposition.retry(after: $0, reason: "ServiceUnavailable", isCounted: true) }
    #expect(decide(outcome, attempts: 3, random: 0) == retry(.zero))
    #expect(decide(outcome, attempts: 3, random: 0.5) == retry(.milliseconds(400)))
  }

  @Test("a Retry-After is respected; a long one waits in the outbox")
  func retryAfter() {
    let short = PushOutcome.throttled(reason: "TooManyRequests", after: .seconds(1), isLaneWide: false)
    #expect(decide(short) == .retry(after: .seconds(1), reason: "TooManyRequests", isCounted: true))
    let long = PushOutcome.unavailable(reason: "UNAVAILABLE", after: .seconds(10))
    #expect(decide(long) == .park(after: .seconds(10), reason: "UNAVAILABLE", isCounted: true))
  }

  @Test(
    "a push that was put off is due at that time, however many attempts it had, and counts none", arguments: [1, 6, 40])
  func deferred(attempts: Int) {
    func putOff(by wait: Nanoseconds) -> Disposition {
      decide(.deferred(reason: "HTTP503", after: wait), attempts: attempts, random: 0.99)
    }
    #expect(putOff(by: .milliseconds(3)) == .retry(after: .milliseconds(3), reason: "HTTP503", isCounted: false))
    #expect(putOff(by: .seconds(9)) == .park(after: .seconds(9), reason: "HTTP503", isCounted: false))
    #expect(putOff(by: .seconds(60)) == .settle(.expired, reason: "HTTP503"))
    let ring = policy.disposition(
      of: .deferred(reason: "HTTP503", after: .seconds(60)), attempts: 4, isRing: true, deadline: now + .seconds(10),
      answeredAt: now, random: 0)
    #expect(ring == .handOn(reason: "HTTP503", after: .seconds(60), isCounted: false))
  }

  @Test(
    "what this way alone has shown of a token ends a message, and no ring: others may have it, this gateway after 5 s",
    arguments: [PushOutcome.unauthorized(reason: "x"), .unknown(reason: PushOutcome.connectionLostReason)],
    [1, 3, 9])
  func ownFailure(_ outcome: PushOutcome, attempts: Int) {
    func decide(isOwn: Bool, isRing: Bool) -> Disposition {
      policy.disposition(
        of: outcome, attempts: attempts, isAtFault: isOwn, isRing: isRing, isOwnFailure: isOwn,
        deadline: now + .seconds(60), answeredAt: now, random: 0.5)
    }
    let reason = outcome.failureReason ?? ""
    #expect(decide(isOwn: true, isRing: true) == .handOn(reason: reason, after: policy.cap))
    #expect(decide(isOwn: false, isRing: true) == .handOn(reason: reason, after: nil))
    let dead = Disposition.settle(.dead, reason: reason)
    #expect(decide(isOwn: true, isRing: false) == dead)
    #expect(decide(isOwn: false, isRing: false) != dead, "the number of attempts ends nothing")
  }

  @Test("a throttled token has one more attempt; a throttled lane has as many as the time allows")
  func tooManyForAToken() {
    let decide = { (isLaneWide: Bool, throttles: Int) in
      policy.disposition(
        of: .throttled(reason: "TooManyRequests", after: nil, isLaneWide: isLaneWide), attempts: throttles,
        throttles: throttles, deadline: now + .seconds(60), answeredAt: now, random: 0)
    }
    let again = Disposition.retry(after: .zero, reason: "TooManyRequests", isCounted: true)
    #expect(decide(false, 1) == again)
    #expect(decide(false, 2) == .settle(.dead, reason: "TooManyRequests"))
    #expect(decide(true, 5) == again)
  }

  @Test("a retry that would come too late is not made")
  func tooLate() {
    let outcome = PushOutcome.throttled(reason: "QUOTA_EXCEEDED", after: .seconds(60), isLaneWide: true)
    #expect(decide(outcome, left: .seconds(60)) == .settle(.expired, reason: "QUOTA_EXCEEDED"))
    // The wait fits, a round trip after it does not.
    let unavailable = PushOutcome.unavailable(reason: "INTERNAL", after: .milliseconds(900))
    #expect(decide(unavailable, left: .seconds(1)) == .settle(.expired, reason: "INTERNAL"))
  }

  @Test("a request that was certainly not processed is sent again soon and counts no attempt")
  func refused() {
    #expect(
      decide(.refused(reason: "ShuttingDown"))
        == .retry(after: .milliseconds(20), reason: "ShuttingDown", isCounted: false))
  }

  @Test("a request with an unknown result is sent again while there is time")
  func unknown() {
    #expect(
      decide(.unknown(reason: "TimedOut")) == .retry(after: .milliseconds(100), reason: "TimedOut", isCounted: true))
    #expect(decide(.unknown(reason: "TimedOut"), left: .milliseconds(50)) == .settle(.expired, reason: "TimedOut"))
  }

  @Test(
    "a ring whose provider refuses it for another reason than its token, or does not answer, is handed on",
    arguments: [
      PushOutcome.unauthorized(reason: "x"), .unavailable(reason: "x", after: .seconds(20)), .unknown(reason: "x"),
      .throttled(reason: "x", after: .seconds(20), isLaneWide: true),
      .unknown(reason: PushOutcome.connectionLostReason),
    ])
  func handedOn(_ outcome: PushOutcome) {
    func decide(_ left: Nanoseconds) -> Disposition {
      policy.disposition(
        of: outcome, attempts: 1, isRing: true, deadline: now + left, answeredAt: now, random: 0)
    }
    // Where the whole lane pauses, this gateway claims nothing.
    let wait: Nanoseconds? = if case .unavailable(_, let after) = outcome { after } else { nil }
    #expect(decide(.seconds(60)) == .handOn(reason: outcome.failureReason ?? "", after: wait))
    #expect(decide(.milliseconds(100)) == .settle(.expired, reason: outcome.failureReason))
  }

  @Test("a ring for whose token there are too many pushes is handed on, however long it is to wait, or however often")
  func throttledToken() {
    for (after, count) in [(nil, 1), (nil, 9), (.seconds(20), 3), (.seconds(90), 1)] as [(Nanoseconds?, Int)] {
      let disposition = policy.disposition(
        of: .throttled(reason: "x", after: after, isLaneWide: false), attempts: count, throttles: count,
        isRing: true, deadline: now + .seconds(60), answeredAt: now, random: 0)
      #expect(disposition == .handOn(reason: "x", after: after))
    }
  }

  @Test(
    "rests double with each second attempt",
    arguments: zip([0, 1, 2, 3, 4, 5, 6, 70], [250, 250, 250, 500, 500, 1000, 1000, 1000]))
  func rests(attempts: Int, milliseconds: Int64) {
    #expect(policy.rest(afterAttempts: attempts) == .milliseconds(milliseconds))
  }

  @Test("no retry is ever planned past the deadline", arguments: [1, 2, 5, 20])
  func alwaysInside(attempts: Int) {
    var generator = TestSeed.generator(5)
    for _ in 0..<1000 {
      let left = Nanoseconds.milliseconds(.random(in: 0...5000, using: &generator))
      let outcome = PushOutcome.unavailable(reason: "x", after: nil)
      switch decide(outcome, attempts: attempts, left: left, random: .random(in: 0..<1, using: &generator)) {
      case .retry(let wait, _, _), .park(let wait, _, _): #expect(wait + policy.roundTrip < left, "\(TestSeed.comment)")
      case .handOn: Issue.record("only rings are handed on")
      case .settle(let outcome, _): #expect(outcome == .expired, "\(TestSeed.comment)")
      }
    }
  }
}
