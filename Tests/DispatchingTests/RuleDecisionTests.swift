// Tests of pure rules: when the invalidation of a lane is put on hold, and when receipts are requested.

import Queue
import Runtime
import Testing

@testable import Dispatching

@Suite("Mass-invalidation breaker")
struct InvalidationBreakerTests {
  private let start = Instant(nanoseconds: 1_000_000_000_000)
  private let limits = InvalidationBreaker.Limits(deadPercent: 20, answersMin: 10, window: .seconds(100))

  @Test("it opens when more than the share of enough answers report dead tokens, and returns the numbers")
  func opens() {
    var breaker = InvalidationBreaker(limits: limits)
    for _ in 0..<8 { #expect(breaker.didHear(isDead: false, start) == nil) }
    #expect(breaker.didHear(isDead: true, start) == nil)
    #expect(breaker.didHear(isDead: true, start) == nil, "two of ten are not more than 20 percent")
    #expect(breaker.didHear(isDead: true, start) == "3 of 11 answers in 100 s called the token dead")
    #expect(breaker.isOpen)
    #expect(breaker.didHear(isDead: true, start) == nil, "it opens once")
  }

  @Test("few answers never open it")
  func tooFew() {
    var breaker = InvalidationBreaker(limits: limits)
    for _ in 0..<9 { #expect(breaker.didHear(isDead: true, start) == nil) }
    #expect(breaker.didHear(isDead: true, start) != nil)
  }

  @Test("answers that have left the window no longer count")
  func window() {
    var breaker = InvalidationBreaker(limits: limits)
    for _ in 0..<9 { _ = breaker.didHear(isDead: true, start) }
    let later = start + .seconds(120)
    for _ in 0..<9 { #expect(breaker.didHear(isDead: true, later) == nil) }
    #expect(!breaker.isOpen)
    // The slices expire one by one: half a window later all of these still count.
    #expect(breaker.didHear(isDead: true, later + .seconds(50)) != nil)
  }

  @Test("after operators have resumed it counts from zero")
  func reset() {
    var breaker = InvalidationBreaker(limits: limits)
    for _ in 0..<10 { _ = breaker.didHear(isDead: true, start) }
    breaker.reset()
    #expect(!breaker.isOpen)
    #expect(breaker.didHear(isDead: true, start) == nil)
  }
}

@Suite("Receipt schedule")
struct ReceiptScheduleTests {
  private let now = Instant(nanoseconds: 1_000_000_000_000)

  @Test("after a full batch the next is due at once, else after the interval")
  func rhythm() {
    var schedule = ReceiptSchedule(receiptAfter: .seconds(900))
    #expect(schedule.interval == .seconds(10))
    schedule.didRead(isFull: true, now)
    #expect(schedule.next == now)
    schedule.didRead(isFull: false, now)
    #expect(schedule.next == now + .seconds(10))
  }

  @Test("failures increase the pause to at most a minute, or to the provider's own pause")
  func failures() {
    var schedule = ReceiptSchedule(receiptAfter: .seconds(900))
    for pause in [10, 20, 40, 60, 60] {
      schedule.didFail(after: nil, now)
      #expect(schedule.next == now + .seconds(Int64(pause)))
    }
    schedule.didFail(after: .seconds(300), now)
    #expect(schedule.next == now + .seconds(300))
    schedule.didRead(isFull: false, now)
    schedule.didFail(after: nil, now)
    #expect(schedule.next == now + .seconds(10))
  }
}
