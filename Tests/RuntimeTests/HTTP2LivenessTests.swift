// Tests in virtual time of when a connection is probed by PING, becomes doubtful, and is given up.

import Testing

@testable import Runtime

@Suite(.timeLimit(.minutes(10))) struct HTTP2LivenessTests {
  private let start = Instant(nanoseconds: 1_000_000_000_000)

  private func at(_ milliseconds: Int64) -> Instant { start + .milliseconds(milliseconds) }

  /// A connection that received bytes at time 0.
  private func connected(_ change: (inout HTTP2LivenessSettings) -> Void = { _ in }) -> HTTP2Liveness {
    var settings = HTTP2LivenessSettings()
    change(&settings)
    var liveness = HTTP2Liveness(settings: settings)
    liveness.didReceive(start, inFlight: 0)
    return liveness
  }

  /// A connection without a timeout for requests.
  private func waitingForBytes() -> HTTP2Liveness { connected { $0.answerTimeout = .seconds(600) } }

  @Test func `without requests no check is due`() {
    let liveness = waitingForBytes()
    #expect(liveness.due == .distantFuture)
  }

  @Test func `a request after a pause sends a PING at once, and the connection is lost after 2 s of silence`() {
    var liveness = waitingForBytes()
    let asked = liveness.didRequest(at(60_000))
    #expect(asked)
    #expect(liveness.due == at(61_000))
    #expect(liveness.check(at(60_999)) == .nothing)
    #expect(liveness.health == .sound)
    #expect(liveness.check(at(61_000)) == .nothing)
    #expect(liveness.health == .doubtful)
    #expect(liveness.due == at(62_000))
    #expect(liveness.check(at(61_999)) == .nothing)
    #expect(liveness.check(at(62_000)) == .fail)
  }

  @Test func `a request soon after another sends a PING after 1 s, and the connection is lost after 2 s`() {
    var liveness = waitingForBytes()
    let asked = liveness.didRequest(at(2_000))
    #expect(!asked)
    #expect(liveness.due == at(3_000))
    #expect(liveness.check(at(3_000)) == .ping)
    #expect(liveness.due == at(3_500))
    #expect(liveness.check(at(3_500)) == .nothing)
    #expect(liveness.health == .doubtful)
    #expect(liveness.check(at(4_000)) == .fail)
  }

  @Test func `the start of a request is no sign of life`() {
    var liveness = waitingForBytes()
    _ = liveness.didRequest(at(60_000))
    for milliseconds in stride(from: Int64(60_100), through: 61_900, by: 100) {
      let asked = liveness.didRequest(at(milliseconds))
      #expect(!asked, "one PING is out")
      #expect(liveness.check(at(milliseconds)) == .nothing)
    }
    #expect(liveness.check(at(62_000)) == .fail)
  }

  @Test func `any received byte shows that the connection is alive`() {
    var liveness = waitingForBytes()
    _ = liveness.didRequest(at(60_000))
    _ = liveness.check(at(61_500))
    #expect(liveness.health == .doubtful)
    liveness.didReceive(at(61_600), inFlight: 1)
    #expect(liveness.health == .sound)
    #expect(liveness.check(at(62_500)) == .nothing)
    #expect(liveness.check(at(62_600)) == .ping)
  }

  @Test func `the intervals between the PINGs for a slow request grow`() {
    var liveness = waitingForBytes()
    var pings: [Int64] = []
    var now = at(60_000)
    var isAsked = liveness.didRequest(now)
    while now < at(90_000) {
      if isAsked { pings.append((now - at(60_000)).milliseconds) }
      liveness.didReceive(now + .milliseconds(50), inFlight: 1)  // PONG
      #expect(liveness.health == .sound)
      now = liveness.due
      isAsked = liveness.check(now) == .ping
    }
    #expect(pings == [0, 1_050, 3_100, 7_150, 15_200, 23_250])
  }

  @Test func `without requests no PING is sent, but the answer to a sent one is awaited`() {
    var liveness = waitingForBytes()
    _ = liveness.didRequest(at(2_000))
    liveness.didReceive(at(2_100), inFlight: 1)
    liveness.didAnswer(at(2_100), inFlight: 0)
    liveness.didBecomeIdle()
    #expect(liveness.due == .distantFuture)

    _ = liveness.didRequest(at(60_000))
    liveness.didBecomeIdle()  // its deadline passed
    #expect(liveness.check(at(61_000)) == .nothing)
    #expect(liveness.check(at(62_000)) == .fail)
  }

  @Test func `a late check reports the connection as doubtful before it reports it as lost`() {
    var liveness = waitingForBytes()
    _ = liveness.didRequest(at(60_000))
    #expect(liveness.check(at(70_000)) == .nothing)
    #expect(liveness.health == .doubtful)
    #expect(liveness.check(at(70_500)) == .fail)
  }

  // MARK: - Answers

  /// Feeds a PONG after every PING until `end`; returns the changes of health with their times in milliseconds.
  private func healths(
    of liveness: inout HTTP2Liveness, from begin: Int64, to end: Int64
  ) -> [Int64: HTTP2ConnectionHealth] {
    var changes: [Int64: HTTP2ConnectionHealth] = [:]
    var last = liveness.health
    while liveness.due <= at(end) {
      let now = max(liveness.due, at(begin))
      let isAsked = liveness.check(now) == .ping
      if liveness.health != last { changes[(now - start).milliseconds] = liveness.health }
      last = liveness.health
      if isAsked { liveness.didReceive(now + .milliseconds(1), inFlight: 1) }
    }
    return changes
  }

  @Test func `a connection is unanswered after one timeout and unresponsive after two`() {
    var liveness = connected()
    _ = liveness.didRequest(at(60_000))
    liveness.didReceive(at(60_001), inFlight: 1)
    #expect(healths(of: &liveness, from: 60_000, to: 69_000) == [61_750: .unanswered, 63_500: .unresponsive])
  }

  @Test func `an answer to any request resets the count of timeouts`() {
    var liveness = connected()
    _ = liveness.didRequest(at(60_000))
    _ = liveness.didRequest(at(61_000))
    liveness.didReceive(at(61_001), inFlight: 2)
    #expect(healths(of: &liveness, from: 61_001, to: 63_000) == [61_750: .unanswered])
    liveness.didAnswer(at(63_000), inFlight: 1)
    liveness.didReceive(at(63_000), inFlight: 1)
    #expect(liveness.health == .sound)
    #expect(healths(of: &liveness, from: 63_000, to: 66_000) == [64_750: .unanswered])
  }

  @Test func `two consecutive timeouts count even with a pause between them`() {
    var liveness = connected()
    _ = liveness.didRequest(at(60_000))
    liveness.didReceive(at(60_001), inFlight: 1)
    #expect(healths(of: &liveness, from: 60_001, to: 63_000) == [61_750: .unanswered])
    liveness.didBecomeIdle()  // it was given up at its deadline
    _ = liveness.didRequest(at(90_000))
    liveness.didReceive(at(90_001), inFlight: 1)
    #expect(liveness.health == .unanswered)
    #expect(healths(of: &liveness, from: 90_001, to: 93_000) == [91_750: .unresponsive])
  }

  @Test func `answers that take three seconds never make a connection unresponsive`() {
    var liveness = connected()
    var seen: Set<String> = []
    for call in 0..<10 {
      let begin = Int64(call) * 10_000 + 60_000
      _ = liveness.didRequest(at(begin))
      liveness.didReceive(at(begin + 1), inFlight: 1)
      for health in healths(of: &liveness, from: begin, to: begin + 2_999).values { seen.insert("\(health)") }
      liveness.didAnswer(at(begin + 3_000), inFlight: 0)
      liveness.didReceive(at(begin + 3_000), inFlight: 0)
      #expect(liveness.health == .sound)
    }
    #expect(seen == ["unanswered"])
  }
}
