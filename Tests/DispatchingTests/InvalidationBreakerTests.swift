// Tests of when the invalidation of a lane's tokens is put on hold.

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
  func closes() {
    var breaker = InvalidationBreaker(limits: limits)
    for _ in 0..<10 { _ = breaker.didHear(isDead: true, start) }
    breaker.close()
    #expect(!breaker.isOpen)
    for _ in 0..<9 { #expect(breaker.didHear(isDead: true, start) == nil) }
    #expect(breaker.didHear(isDead: true, start) != nil)
  }

  @Test("hints that operators have resumed, without end, do not keep it from opening")
  func forgedHints() {
    var breaker = InvalidationBreaker(limits: limits)
    var notes: [String] = []
    for _ in 0..<20 {
      breaker.close()
      if let note = breaker.didHear(isDead: true, start) { notes.append(note) }
    }
    #expect(notes == Array(repeating: "10 of 10 answers in 100 s called the token dead", count: 2))
  }
}
