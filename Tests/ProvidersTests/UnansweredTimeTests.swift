// Tests of the time for which a provider has answered nothing.

import Runtime
import Testing

@testable import Providers

@Suite("Unanswered time", .timeLimit(.minutes(10))) struct UnansweredTimeTests {
  private func at(_ milliseconds: Int64) -> Instant {
    Instant(nanoseconds: 5_000_000_000_000) + .milliseconds(milliseconds)
  }

  @Test func `the unanswered time is zero while nothing is sent, and while answers take their usual time`() {
    var time = UnansweredTime()
    #expect(time.time(at(0)) == .zero)
    time.didSend(at(0))
    #expect(time.time(at(1_000)) == .zero)
    time.didAnswer(at(900), isWaiting: false)
    #expect(time.time(at(60_000)) == .zero)
  }

  @Test func `the unanswered time counts from the first request after the last answer`() {
    var time = UnansweredTime()
    time.didSend(at(0))
    time.didSend(at(4_000))
    #expect(time.time(at(5_000)) == .seconds(5))
    time.didAnswer(at(5_000), isWaiting: true)
    #expect(time.time(at(6_000)) == .zero)
    #expect(time.time(at(8_000)) == .seconds(3))
    time.didAnswer(at(8_000), isWaiting: false)
    #expect(time.time(at(20_000)) == .zero)
  }

  @Test func `the unanswered time continues while the same push is tried again`() {
    var time = UnansweredTime()
    for second in 0..<30 { time.didSend(at(Int64(second) * 1_000)) }
    #expect(time.time(at(30_000)) == .seconds(30))
  }

  @Test func `the unanswered time ends a minute after the last request, and starts anew with the next`() {
    var time = UnansweredTime()
    time.didSend(at(0))
    #expect(time.time(at(59_000)) == .seconds(59))
    #expect(time.time(at(60_000)) == .zero)
    time.didSend(at(100_000))
    #expect(time.time(at(102_000)) == .seconds(2))
  }

  @Test func `the unanswered time does not end while no connection could carry a request`() {
    var time = UnansweredTime()
    #expect(time.time(at(0), isConnected: false) == .zero)
    time.didSend(at(0))
    #expect(time.time(at(600_000), isConnected: false) == .seconds(600))
    #expect(time.time(at(600_000)) == .zero)
  }

  @Test func `a provider that is silent or out of reach is remarked on, unless its credentials are why`() {
    var condition = ProviderCondition()
    #expect(condition.silence == nil)
    condition.unconnected = .seconds(5)
    #expect(condition.silence == nil, "it may be replaced soon")
    condition.unconnected = .milliseconds(61_900)
    #expect(condition.silence == "no connection for 61 s")
    condition.isWithoutToken = true
    #expect(condition.silence == nil)
    condition.unanswered = .seconds(12)
    #expect(condition.silence == "no request was answered for 12 s")
  }
}
