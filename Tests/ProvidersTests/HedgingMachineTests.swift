// Tests in virtual time of when requests are hedged, and of how many are.

import Runtime
import Testing

@testable import Providers

@Suite("Hedging: the rule", .timeLimit(.minutes(10))) struct HedgingMachineTests {
  /// A lane, its clock, and the invites that wait.
  private struct Lane {
    var machine: HedgingMachine
    var now = Instant(nanoseconds: 1_000_000_000_000)
    var waiting: Set<Int> = []
    private var next = 0

    init(_ change: (inout HedgingSettings) -> Void = { _ in }) {
      var settings = HedgingSettings()
      change(&settings)
      machine = HedgingMachine(settings: settings)
    }

    /// Sends an invite; returns its number.
    mutating func send() -> Int {
      machine.didSend()
      _ = machine.watch(next, now)
      waiting.insert(next)
      next += 1
      return next - 1
    }

    mutating func answer(_ request: Int, after latency: Nanoseconds) {
      waiting.remove(request)
      machine.didAnswer(after: latency, now)
    }

    /// Sends this number of invites, each of which is answered after this time.
    mutating func answers(_ count: Int, after latency: Nanoseconds) {
      for _ in 0..<count { answer(send(), after: latency) }
    }

    /// The requests that are hedged now.
    mutating func hedges() -> [Int] {
      var hedged: [Int] = []
      while let candidate = machine.next(now, isWaiting: { waiting.contains($0.request) }) {
        hedged.append(candidate.request)
      }
      return hedged
    }

    mutating func pass(_ time: Nanoseconds) { now = now + time }
  }

  private static func isAbout(_ time: Nanoseconds, _ milliseconds: Int64) -> Bool {
    (Double(milliseconds)...Double(milliseconds) * 1.2).contains(Double(time.count) / 1e6)
  }

  // MARK: - When

  @Test func `without measured latencies an invite waits half a second`() {
    var lane = Lane()
    let request = lane.send()
    lane.pass(.milliseconds(499))
    #expect(lane.hedges() == [])
    #expect(lane.machine.due == lane.now + .milliseconds(1))
    lane.pass(.milliseconds(1))
    #expect(lane.hedges() == [request])
    #expect(lane.hedges() == [], "once")
    #expect(lane.machine.due == .distantFuture)
  }

  @Test func `a lane with few answers waits three times the latency of its slowest tenth`() {
    var lane = Lane()
    lane.answers(100, after: .milliseconds(200))
    #expect(Self.isAbout(lane.machine.delay, 600))
    lane.answers(5, after: .seconds(8))
    #expect(Self.isAbout(lane.machine.delay, 600), "a few slow answers say nothing")
  }

  @Test func `a busy lane waits for the latency that 999 of 1,000 answers do not exceed`() {
    var lane = Lane()
    lane.answers(1_990, after: .milliseconds(50))
    lane.answers(1, after: .seconds(1))
    #expect(lane.machine.delay == .milliseconds(300), "never less than that")
    lane.answers(9, after: .milliseconds(700))
    #expect(Self.isAbout(lane.machine.delay, 700), "two of two thousand take longer")
  }

  @Test func `a hedge without an answer holds back the next until something is answered, or 3.5 s`() {
    var lane = Lane()
    let first = lane.send()
    lane.pass(.milliseconds(400))
    let second = lane.send()
    lane.pass(.milliseconds(100))
    #expect(lane.hedges() == [first])
    lane.pass(.milliseconds(400))
    #expect(lane.hedges() == [second], "the first hedge has not waited longer than its request")
    let third = lane.send()
    lane.pass(.milliseconds(600))
    #expect(lane.hedges() == [])
    #expect(lane.machine.due == lane.now + .milliseconds(2_500))
    let fourth = lane.send()
    lane.pass(.milliseconds(2_500))
    #expect(lane.hedges() == [third, fourth], "it may be the connection after all")
    let fifth = lane.send()
    lane.pass(.milliseconds(600))
    #expect(lane.hedges() == [])
    lane.answer(first, after: .seconds(5))
    #expect(lane.machine.due <= lane.now)
    #expect(lane.hedges() == [fifth])
  }

  @Test func `the wait is never shorter than the configured minimum`() {
    var lane = Lane { $0.delayMin = .milliseconds(900) }
    #expect(lane.machine.delay == .milliseconds(900))
    lane.answers(2_000, after: .milliseconds(40))
    #expect(lane.machine.delay == .milliseconds(900))
  }

  @Test func `a busy lane forgets slow answers after a minute`() {
    var lane = Lane()
    lane.answers(1_200, after: .seconds(2))
    #expect(Self.isAbout(lane.machine.delay, 2_000))
    for _ in 0..<3 {
      lane.pass(.seconds(31))
      lane.answers(1_200, after: .milliseconds(50))
    }
    #expect(lane.machine.delay == .milliseconds(300))
  }

  @Test func `a lane with lone calls forgets slow answers after a hundred calls`() {
    var lane = Lane()
    lane.answers(50, after: .seconds(2))
    for _ in 0..<120 {
      lane.pass(.seconds(600))
      lane.answers(1, after: .milliseconds(50))
    }
    #expect(lane.machine.delay == .milliseconds(300))
  }

  // MARK: - Which

  @Test func `requests that were answered meanwhile are skipped`() {
    var lane = Lane()
    let requests = (0..<5).map { _ in lane.send() }
    lane.pass(.milliseconds(100))
    for request in requests where request != 3 { lane.answer(request, after: .milliseconds(100)) }
    lane.pass(.milliseconds(400))
    #expect(lane.hedges() == [3])
  }

  @Test func `nothing is hedged during a pause, and afterwards the requests that still wait are`() {
    var lane = Lane()
    let request = lane.send()
    lane.machine.pause(for: .seconds(2), lane.now)
    lane.pass(.seconds(1))
    #expect(lane.hedges() == [])
    #expect(lane.machine.due == lane.now + .seconds(1))
    lane.pass(.seconds(1))
    #expect(lane.hedges() == [request])
  }

  @Test func `a requested pause of a day stops hedging for a minute`() {
    var lane = Lane()
    lane.machine.pause(for: .seconds(86_400), lane.now)
    lane.pass(.seconds(61))
    let request = lane.send()
    lane.pass(.seconds(1))
    #expect(lane.hedges() == [request])
  }

  // MARK: - How many

  @Test func `lone calls have ten hedges at once, and one more every six seconds`() {
    var lane = Lane()
    for _ in 0..<15 { _ = lane.send() }
    lane.pass(.milliseconds(500))
    #expect(lane.hedges().count == 10)
    #expect(lane.machine.due == lane.now + .milliseconds(50), "the others may have one later")
    lane.pass(.seconds(6))
    #expect(lane.hedges().count == 1)
    lane.pass(.seconds(12))
    #expect(lane.hedges().count == 2)
    lane.pass(.seconds(3_600))
    for _ in 0..<15 { _ = lane.send() }
    lane.pass(.milliseconds(500))
    #expect(lane.hedges().count == 10, "no more are saved up")
  }

  @Test func `beyond these, at most two of a hundred pushes are hedged`() {
    var lane = Lane { $0.loneMax = 0 }
    lane.answers(1_000, after: .milliseconds(50))
    for _ in 0..<500 { _ = lane.send() }
    lane.pass(.milliseconds(300))
    #expect(lane.hedges().count == 30)
  }

  @Test func `at most five hundred hedges are saved up`() {
    var lane = Lane { $0.loneMax = 0 }
    lane.answers(100_000, after: .milliseconds(50))
    for _ in 0..<1_000 { _ = lane.send() }
    lane.pass(.milliseconds(300))
    #expect(lane.hedges().count == 500)
  }

  @Test func `a provider that becomes slow does not get every push twice`() {
    var lane = Lane()
    lane.answers(2_000, after: .milliseconds(50))
    // From now on every answer takes a second and a half.
    var sentAt: [(request: Int, at: Instant)] = []
    var hedges = 0
    for _ in 0..<10_000 {
      sentAt.append((lane.send(), lane.now))
      lane.pass(.milliseconds(2))
      hedges += lane.hedges().count
      while let first = sentAt.first, first.at + .milliseconds(1_500) <= lane.now {
        lane.answer(first.request, after: .milliseconds(1_500))
        sentAt.removeFirst()
      }
    }
    #expect(hedges <= 12_000 * 2 / 100 + 10 + 4)
    #expect(Self.isAbout(lane.machine.delay, 1_500), "what is ordinary now is known")
  }

  // MARK: - Simulated effect

  /// Sends invites over a hundred connections, each over a random one; one connection answers nothing. Answers take 30 to 90 ms,
  /// and one in a thousand 400 ms more. Returns the times from commit to acceptance in ascending order, and the hedges.
  private func calls(_ count: Int, isHedged: Bool) -> (times: [Nanoseconds], hedges: Int) {
    let stalled: UInt64 = 37
    var machine = HedgingMachine(settings: HedgingSettings())
    var random = SplitMix64(seed: 7)
    var answers = DeadlineHeap<(call: Int, sentAt: Instant)>()
    var connections: [UInt64] = []
    var times: [Nanoseconds?] = []
    var hedges = 0
    let start = Instant(nanoseconds: 1_000_000_000_000)
    func leave(_ call: Int, over connection: UInt64, _ now: Instant) {
      guard connection != stalled else { return }
      let tail: Int64 = random.next() % 1_000 == 0 ? 400 : 0
      answers.insert((call, now), at: now + .milliseconds(Int64(30 + random.next() % 60) + tail))
    }
    for millisecond in 0..<Int64(count + 2_000) {
      let now = start + .milliseconds(millisecond)
      if millisecond < count {
        machine.didSend()
        _ = machine.watch(times.count, now)
        connections.append(random.next() % 100)
        times.append(nil)
        leave(times.count - 1, over: connections[times.count - 1], now)
      }
      while let answer = answers.popDue(now) {
        guard times[answer.call] == nil else { continue }
        times[answer.call] = now - (start + .milliseconds(Int64(answer.call)))
        machine.didAnswer(after: now - answer.sentAt, now)
      }
      guard isHedged, machine.due <= now else { continue }
      while let candidate = machine.next(now, isWaiting: { times[$0.request] == nil }) {
        hedges += 1
        leave(candidate.request, over: (connections[candidate.request] + 1 + random.next() % 99) % 100, now)
      }
    }
    return (times.map { $0 ?? .seconds(30) }.sorted(), hedges)
  }

  @Test func `with 1 of 100 connections stalled, 999 of 1,000 invites are accepted within a second`() {
    let (times, hedges) = calls(20_000, isHedged: true)
    #expect(
      times[19_979] < .seconds(1), "p99.9 \(times[19_979].milliseconds) ms, most \(times[19_999].milliseconds) ms")
    #expect(hedges >= 100 && hedges <= 400, "\(hedges)")
  }

  @Test func `with 1 of 100 connections stalled and no hedges, one in 1,000 invites takes at least 30 s`() {
    let (times, _) = calls(20_000, isHedged: false)
    #expect(times[19_979] >= .seconds(30))
  }
}
