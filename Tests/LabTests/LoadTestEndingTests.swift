// When a load test warns, stops waiting, and gives up: decisions without a clock.

import Runtime
import Testing

@testable import Lab

@Suite struct LoadTestEndingTests {
  private static let start = SystemClock().now()

  @Test func `lanes that an earlier run has left are named in one line, with how long it lasts`() {
    #expect(LoadLane.warning([]) == nil && LoadLane.warning([LoadLane(name: "porteiro/apns")]) == nil)
    let served = LoadLane(name: "porteiro/expo", circuit: "")
    let throttled = LoadLane(name: "porteiro/fcm", circuit: "open", throttledSeconds: 42, owed: 120, owedSeconds: 45)
    #expect(
      LoadLane.warning([served, throttled])
        == "Warning: this counts against the run: porteiro/fcm is throttled for another 42 s, and still has 120 deliveries of earlier "
        + "calls, for 45 s at most")
    let paused = LoadLane(name: "porteiro/apns", isPaused: true)
    let trying = LoadLane(name: "porteiro/webpush/google", circuit: "half_open", owed: 1, owedSeconds: 1)
    #expect(
      LoadLane.warning([paused, trying])
        == "Warning: this counts against the run: porteiro/apns is paused until somebody resumes it; porteiro/webpush/google has an "
        + "open circuit until a push succeeds, and still has 1 delivery of earlier calls, for 1 s at most")
  }

  @Test func `nobody is waited for longer than the limit, which begins anew with each answer`() {
    var silence = LoadSilence()
    let early = silence.note(at: Self.start)
    let almost = silence.note(at: Self.start + LoadSilence.max - .milliseconds(1))
    #expect(!early && !almost && silence.count == 2)
    silence.end()
    let again = silence.note(at: Self.start + LoadSilence.max)
    #expect(!again && silence.count == 1)
    let over = silence.note(at: Self.start + LoadSilence.max * 2)
    #expect(over && silence.count == 2)
  }

  @Test func `a log that goes on is waited for as long as its lines take, one that does not up to the limit`() {
    let late = LoadLogWait.max - .milliseconds(1)
    var frozen = LoadLogWait(at: Self.start)
    let waits = [Nanoseconds.zero, LoadLogWait.delayMax, late].map { frozen.isOver(isPast: false, at: Self.start + $0) }
    let ends = frozen.isOver(isPast: false, at: Self.start + LoadLogWait.max)
    #expect(waits == [false, false, false] && ends)
    // Simulators that go on just before the end still get the time that their lines take.
    var thawed = LoadLogWait(at: Self.start)
    let steps = [late, LoadLogWait.max, late + LoadLogWait.delayMax].map {
      thawed.isOver(isPast: true, at: Self.start + $0)
    }
    #expect(steps == [false, false, true])
  }
}
