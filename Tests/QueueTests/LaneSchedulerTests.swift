// Tests of how many deliveries each lane may claim, and when.

import Queue
import Runtime
import Testing

private func at(_ milliseconds: Int64) -> Instant { Instant(nanoseconds: 0) + .milliseconds(milliseconds) }

@Suite("Lane scheduler")
struct LaneSchedulerTests {
  @Test("a lane without capacity claims nothing and does not affect other lanes")
  func isolation() {
    var scheduler = LaneScheduler()
    scheduler.add(lane: 1, window: 100)
    scheduler.add(lane: 2, window: 100)
    scheduler.setCapacity(50, of: 2)
    #expect(scheduler.allowances(at(0)) == [LaneAllowance(lane: 2, limit: 100)])
  }

  @Test("the allowance is the smaller of the window and twice the capacity, minus what is in flight")
  func room() {
    var scheduler = LaneScheduler()
    scheduler.add(lane: 1, window: 1000)
    scheduler.setCapacity(10, of: 1)
    #expect(scheduler.allowances(at(0)) == [LaneAllowance(lane: 1, limit: 20)])
    scheduler.didClaim(12, of: 1)
    #expect(scheduler.allowances(at(0)) == [LaneAllowance(lane: 1, limit: 8)])
    for _ in 0..<12 { scheduler.didFinish(1) }
    #expect(scheduler.allowances(at(0)) == [LaneAllowance(lane: 1, limit: 20)])
  }

  @Test("a busy lane with little room waits until a claim is worthwhile, an idle one never waits")
  func hysteresis() {
    var scheduler = LaneScheduler()
    scheduler.add(lane: 1, window: 100)
    scheduler.setCapacity(100, of: 1)
    #expect(scheduler.allowances(at(0)).map(\.limit) == [100])
    scheduler.didClaim(90, of: 1)
    #expect(scheduler.allowances(at(0)) == [])
    for _ in 0..<90 { scheduler.didFinish(1) }
    #expect(scheduler.allowances(at(0)) == [LaneAllowance(lane: 1, limit: 100)])
  }

  @Test("deliveries that wait for a turn take no room from others, but count towards the window")
  func aside() {
    var scheduler = LaneScheduler()
    scheduler.add(lane: 1, window: 5)
    scheduler.setCapacity(1, of: 1)
    #expect(scheduler.allowances(at(0)) == [LaneAllowance(lane: 1, limit: 2)])
    scheduler.didClaim(2, of: 1)
    #expect(scheduler.allowances(at(0)) == [])
    for _ in 0..<2 { scheduler.didSetAside(1) }
    #expect(scheduler.allowances(at(0)) == [LaneAllowance(lane: 1, limit: 2)])
    scheduler.didClaim(2, of: 1)
    for _ in 0..<2 { scheduler.didSetAside(1) }
    #expect(scheduler.allowances(at(0)) == [LaneAllowance(lane: 1, limit: 1)])
    scheduler.didComeBack(1)
    scheduler.didComeBack(1)
    #expect(scheduler.allowances(at(0)) == [])
  }

  @Test("rings that were handed on take room until their requests end; beside them, a lane holds eight")
  func handedOn() {
    var scheduler = LaneScheduler()
    scheduler.add(lane: 1, window: 100)
    scheduler.setCapacity(10, of: 1)
    scheduler.didClaim(20, of: 1)
    #expect(scheduler.allowances(at(1000)).map(\.limit) == [1], "one a second tries")
    for _ in 0..<20 { scheduler.didHandOn(1) }
    #expect(scheduler.allowances(at(1000)).map(\.limit) == [8])
    scheduler.didClaim(5, of: 1)
    #expect(scheduler.allowances(at(1000)) == [])
    #expect(scheduler.allowances(at(1200)).map(\.limit) == [3])
    for _ in 0..<5 { scheduler.didFinish(1) }
    for _ in 0..<20 { scheduler.didEndHandedOn(1) }
    #expect(scheduler.allowances(at(1200)).map(\.limit) == [20])
    #expect(scheduler.inFlight == 0)
  }

  @Test("all lanes with room are in every claim; a lane that was served comes last in the next")
  func fairness() {
    var scheduler = LaneScheduler()
    for lane in 1...3 {
      scheduler.add(lane: Int16(lane), window: 100)
      scheduler.setCapacity(100, of: Int16(lane))
    }
    #expect(scheduler.allowances(at(0)).map(\.lane) == [1, 2, 3])
    scheduler.didClaim(1, of: 1)
    scheduler.didFinishClaim()
    #expect(scheduler.allowances(at(0)).map(\.lane) == [2, 3, 1])
    scheduler.didClaim(1, of: 3)
    scheduler.didClaim(1, of: 2)
    scheduler.didFinishClaim()
    #expect(scheduler.allowances(at(0)).map(\.lane) == [1, 2, 3])
    scheduler.didFinishClaim()
    #expect(scheduler.allowances(at(0)).map(\.lane) == [1, 2, 3])
  }

  @Test("lanes with background take turns, whichever lanes have calls")
  func backgroundTurns() {
    var scheduler = LaneScheduler()
    for lane in 1...4 {
      scheduler.add(lane: Int16(lane), window: 1000)
      scheduler.setCapacity(1000, of: Int16(lane))
    }
    var turns: [Int16] = []
    for _ in 0..<4 {
      // As in the claim: lane 4 has calls, and the first lane with any provides the background.
      let lane = scheduler.allowances(at(0)).first { $0.lane < 4 }!.lane
      turns.append(lane)
      scheduler.didClaim(1, of: 4)
      scheduler.didClaim(100, of: lane, background: 100)
      scheduler.didFinishClaim()
      for _ in 0..<100 { scheduler.didFinish(lane) }
    }
    #expect(turns == [1, 2, 3, 1])
  }

  /// A number of lanes with unlimited room.
  private func roomyLanes(_ count: Int16) -> LaneScheduler {
    var scheduler = LaneScheduler()
    for lane in 1...count {
      scheduler.add(lane: lane, window: 10_000)
      scheduler.setCapacity(5_000, of: lane)
    }
    return scheduler
  }

  /// A claim from an outbox in which the first `count` lanes have as many rows as anybody asks for: what it asked for, of a
  /// lane and in all.
  private func claim(_ scheduler: inout LaneScheduler, from count: Int16) -> (ofLane: Int32, inAll: Int32) {
    let allowances = scheduler.allowances(at(0))
    let inAll = scheduler.claimLimits(at(0)).inAll
    var left = inAll
    for allowance in allowances where allowance.lane <= count && left > 0 {
      let claimed = min(left, allowance.limit)
      scheduler.didClaim(Int(claimed), of: allowance.lane)
      for _ in 0..<claimed { scheduler.didFinish(allowance.lane) }
      left -= claimed
    }
    scheduler.didFinishClaim()
    #expect(Set(allowances.map(\.limit)).count == 1)
    return (allowances[0].limit, inAll)
  }

  @Test("lanes with a backlog share the limit of a claim, in portions large enough for a write")
  func share() {
    var scheduler = roomyLanes(8)
    #expect((0..<3).map { _ in claim(&scheduler, from: 1).ofLane } == [500, 500, 500])
    #expect((0..<6).map { _ in claim(&scheduler, from: 3).ofLane }.suffix(3) == [333, 333, 333])
    #expect((0..<6).map { _ in claim(&scheduler, from: 8).ofLane }.suffix(3) == [200, 200, 200])
    #expect((0..<6).map { _ in claim(&scheduler, from: 1).ofLane }.last == 500)
  }

  @Test("if many lanes have a backlog, the limit of a claim is higher")
  func manyLanes() {
    var scheduler = roomyLanes(30)
    #expect((0..<8).map { _ in claim(&scheduler, from: 3).inAll }.suffix(3) == [1000, 1000, 1000])
    #expect((0..<8).map { _ in claim(&scheduler, from: 7).inAll }.last == 1400)
    #expect((0..<8).map { _ in claim(&scheduler, from: 30).inAll }.suffix(3) == [2000, 2000, 2000])
    #expect((0..<8).map { _ in claim(&scheduler, from: 1).inAll }.last == 1000)
  }

  @Test("background is sent at its own rate, in portions that justify a claim and delay no call")
  func background() {
    var scheduler = LaneScheduler()
    scheduler.add(lane: 1, window: 10_000)
    var claimed = 0
    for millisecond in Int64(0)..<10_000 {
      let limits = scheduler.claimLimits(at(millisecond))
      #expect(limits.inAll == 1000)
      #expect(limits.background == 0 || (50...100).contains(limits.background))
      claimed += Int(limits.background)
      scheduler.didClaim(Int(limits.background), of: 1, background: Int(limits.background))
      scheduler.didFinishClaim()
    }
    #expect((50_000...51_000).contains(claimed))
  }

  @Test("the report of a lane has its limit, deliveries held, waiting ones, and those sent since the last report")
  func conditions() {
    var scheduler = LaneScheduler()
    scheduler.add(lane: 1, window: 100)
    scheduler.setCapacity(10, of: 1)
    _ = scheduler.conditions(at(0))
    scheduler.didClaim(3, of: 1)
    scheduler.didSend(3, of: 1)
    scheduler.throttle(1, until: at(2_500))
    let busy = LaneCondition(
      lane: 1, window: 100, capacity: 10, inFlight: 3, circuit: .closed, wait: .milliseconds(2_000), perSecond: 6)
    #expect(scheduler.conditions(at(500)) == [busy])
    for token: UInt8 in 1...2 { _ = scheduler.didHear(.unauthorized, about: [token], from: 1, at(600)) }
    let open = scheduler.conditions(at(1_000))[0]
    #expect(open.circuit.word == "open" && open.perSecond == 0 && open.wait == .milliseconds(1_500))
  }

  @Test("a provider that asked for a pause gets it, for its lane alone")
  func throttle() {
    var scheduler = LaneScheduler()
    for lane in Int16(1)...2 {
      scheduler.add(lane: lane, window: 10)
      scheduler.setCapacity(10, of: lane)
    }
    scheduler.throttle(1, until: at(500))
    scheduler.throttle(1, until: at(300))
    #expect(scheduler.allowances(at(499)).map(\.lane) == [2])
    #expect(scheduler.wait(of: 1, at(400)) == .milliseconds(100))
    #expect(Set(scheduler.allowances(at(500)).map(\.lane)) == [1, 2])
  }

  @Test("a lane with a rate claims no more than its rate, and pays for what it sends again")
  func rate() {
    var scheduler = LaneScheduler()
    scheduler.add(lane: 1, window: 1000, perSecond: 600)
    scheduler.setCapacity(1000, of: 1)
    #expect(scheduler.allowances(at(0)) == [LaneAllowance(lane: 1, limit: 60, background: 30)])
    scheduler.didClaim(60, of: 1)
    #expect(scheduler.allowances(at(0)) == [])
    scheduler.didResend(1)
    #expect(scheduler.allowances(at(50)) == [LaneAllowance(lane: 1, limit: 29, background: 0)])
  }

  @Test("half of a lane's burst is reserved for calls, whatever its rate; background gets the rest")
  func reserve() {
    for (perSecond, background) in [(1, 1), (10, 1), (600, 30), (10_000, 500), (1_000_000, 500)] {
      var scheduler = LaneScheduler()
      scheduler.add(lane: 1, window: 10_000, perSecond: perSecond)
      scheduler.setCapacity(10_000, of: 1)
      #expect(scheduler.allowances(at(0)).map(\.background) == [Int32(background)], "\(perSecond) a second")
    }
    var unlimited = LaneScheduler()
    unlimited.add(lane: 1, window: 10)
    unlimited.setCapacity(10, of: 1)
    #expect(unlimited.allowances(at(0)) == [LaneAllowance(lane: 1, limit: 10, background: 10)])
  }

  @Test("over a minute a lane sends its rate, however often it asks")
  func rateOverTime() {
    var scheduler = LaneScheduler()
    scheduler.add(lane: 1, window: 10_000, perSecond: 600)
    scheduler.setCapacity(10_000, of: 1)
    var claimed = 0
    for millisecond in Int64(0)..<60_000 {
      for allowance in scheduler.allowances(at(millisecond)) {
        claimed += Int(allowance.limit)
        scheduler.didClaim(Int(allowance.limit), of: 1)
        for _ in 0..<allowance.limit { scheduler.didFinish(1) }
      }
    }
    #expect((35_900...36_060).contains(claimed))
  }

  /// Opens the circuit of lane 1.
  private func open(_ scheduler: inout LaneScheduler) {
    #expect(scheduler.didHear(.unauthorized, about: [1], from: 1, at(0)) == nil)
    #expect(scheduler.didHear(.unauthorized, about: [2], from: 1, at(0)) != nil)
  }

  @Test("a lane whose circuit is half open tries a single delivery")
  func probe() {
    var scheduler = LaneScheduler()
    scheduler.add(lane: 1, window: 10)
    scheduler.setCapacity(10, of: 1)
    open(&scheduler)
    #expect(scheduler.allowances(at(999)) == [])
    #expect(scheduler.allowances(at(1000)) == [LaneAllowance(lane: 1, limit: 1, takesOnlyNew: true)])
    scheduler.didClaim(1, of: 1)
    scheduler.didFinishClaim()
    #expect(scheduler.allowances(at(1999)) == [])
    #expect(
      scheduler.allowances(at(2000)) == [LaneAllowance(lane: 1, limit: 1, isLast: true)],
      "the first one has no answer yet")
    scheduler.didClaim(1, of: 1)
    scheduler.didFinishClaim()
    #expect(scheduler.allowances(at(2999)) == [])
    #expect(scheduler.didHear(.working, from: 1, at(2999)) == .closed)
    #expect(scheduler.allowances(at(2999)) == [LaneAllowance(lane: 1, limit: 10 - 2)])
  }

  @Test("a try that was handed on keeps a half-open circuit from no other")
  func tryAfterOneHandedOn() {
    var scheduler = LaneScheduler()
    scheduler.add(lane: 1, window: 10)
    scheduler.setCapacity(1, of: 1)
    open(&scheduler)
    #expect(scheduler.allowances(at(1000)).map(\.limit) == [1])
    scheduler.didClaim(1, of: 1)
    scheduler.didFinishClaim()
    #expect(scheduler.allowances(at(1300)) == [])
    scheduler.didHandOn(1)
    #expect(scheduler.allowances(at(1300)).map(\.limit) == [1])
  }

  @Test(
    "a lane that tries lets the other gateways come first; when it has had nothing for 10 s, it does not with what is new"
  )
  func lastAmongGateways() {
    var scheduler = LaneScheduler()
    scheduler.add(lane: 1, window: 10)
    scheduler.setCapacity(10, of: 1)
    func asks(_ milliseconds: Int64) -> String {
      guard let allowance = scheduler.allowances(at(milliseconds)).first else { return "nothing" }
      return (allowance.isLast ? "last " : "first ") + (allowance.takesOnlyNew ? "new" : "any")
    }
    #expect(asks(0) == "first any")
    scheduler.didClaim(1, of: 1)
    scheduler.didFinishClaim()
    scheduler.didFinish(1)
    open(&scheduler)
    #expect(asks(999) == "nothing")
    #expect([1000, 1050, 1100, 9999].map(asks) == ["last new", "last any", "last new", "last any"])
    #expect([10_000, 10_050, 10_100].map(asks) == ["first new", "last any", "first new"])
    scheduler.didClaim(1, of: 1)
    scheduler.didFinishClaim()
    scheduler.didFinish(1)
    #expect([10_101, 10_102].map(asks) == ["last any", "last new"])
    _ = scheduler.didHear(.working, from: 1, at(10_103))
    #expect(asks(10_103) == "first any")
  }

  @Test("what is new does not come first each time that a half-open circuit tries")
  func turns() {
    var scheduler = LaneScheduler()
    scheduler.add(lane: 1, window: 10)
    scheduler.setCapacity(10, of: 1)
    open(&scheduler)
    // Each try is a new push to a bad token, if it may be. It fails at once.
    for (second, isForNew) in [(1, true), (2, false), (3, true), (4, false)] as [(Int64, Bool)] {
      #expect(scheduler.allowances(at(second * 1000 - 1)) == [])
      #expect(scheduler.allowances(at(second * 1000)).map(\.takesOnlyNew) == [isForNew])
      scheduler.didClaim(1, of: 1)
      scheduler.didFinishClaim()
      scheduler.didFinish(1)
      _ = scheduler.didHear(.failing, about: [UInt8(10 + second)], from: 1, at(second * 1000))
    }
  }

  @Test("a lane whose last push failed lets the other gateways come first, until something works")
  func lastAfterAFailure() {
    var scheduler = LaneScheduler()
    scheduler.add(lane: 1, window: 10)
    scheduler.setCapacity(5, of: 1)
    #expect(scheduler.allowances(at(0)).first?.isLast == false)
    scheduler.didClaim(1, of: 1)
    scheduler.didFinishClaim()
    #expect(scheduler.didHear(.failing, about: [1], unansweredSince: at(0), from: 1, at(1200)) == nil)
    #expect(scheduler.allowances(at(1200)).first?.isLast == true)
    #expect(scheduler.allowances(at(9999)).first?.isLast == true)
    _ = scheduler.didHear(.working, from: 1, at(9999))
    #expect(scheduler.allowances(at(9999)).first?.isLast == false)
  }

  @Test("a lane without answers takes what was never tried, after the others, and of the rest one a second")
  func silence() {
    var scheduler = LaneScheduler()
    scheduler.add(lane: 1, window: 10)
    scheduler.setCapacity(10, of: 1)
    for token in 1...2 as ClosedRange<UInt8> {
      _ = scheduler.didHear(.failing, about: [token], unansweredSince: at(0), from: 1, at(1200))
    }
    #expect(!scheduler.isWell(1))
    #expect(scheduler.allowances(at(1200)) == [LaneAllowance(lane: 1, limit: 10, isLast: true, takesOnlyNew: true)])
    #expect(scheduler.allowances(at(2200)) == [LaneAllowance(lane: 1, limit: 1, isLast: true)])
    scheduler.didClaim(1, of: 1)
    scheduler.didFinishClaim()
    #expect(scheduler.allowances(at(3199)) == [LaneAllowance(lane: 1, limit: 9, isLast: true, takesOnlyNew: true)])
    #expect(scheduler.allowances(at(3200)) == [LaneAllowance(lane: 1, limit: 1, isLast: true)])
    // What one token gets instead shows nothing. What two get is no silence.
    #expect(scheduler.didHear(.failing, about: [3], from: 1, at(3200)) == .opened(until: at(4200)))
    #expect(scheduler.allowances(at(3201)).map(\.takesOnlyNew) == [true])
    #expect(scheduler.allowances(at(4200)) == [LaneAllowance(lane: 1, limit: 1, isLast: true)])
    #expect(scheduler.didHear(.failing, about: [4], from: 1, at(4200)) == .opened(until: at(5200)))
    #expect(scheduler.allowances(at(4201)) == [])
  }

  @Test("new calls keep no other from its try, which a half-open circuit has each second")
  func triesAmongNewOnes() {
    var scheduler = LaneScheduler()
    scheduler.add(lane: 1, window: 100)
    scheduler.setCapacity(100, of: 1)
    for token in 1...2 as ClosedRange<UInt8> {
      _ = scheduler.didHear(.failing, about: [token], unansweredSince: at(0), from: 1, at(1200))
    }
    var tries = 0
    for now in stride(from: 1200 as Int64, to: 6200, by: 100) {
      guard let allowance = scheduler.allowances(at(now)).first else { continue }
      if !allowance.takesOnlyNew { tries += 1 }
      scheduler.didClaim(1, of: 1)
      scheduler.didFinishClaim()
    }
    #expect(tries == 4)
  }

  @Test("a lane that tries holds no more than its window")
  func probeInWindow() {
    var scheduler = LaneScheduler()
    scheduler.add(lane: 1, window: 3)
    scheduler.setCapacity(10, of: 1)
    scheduler.didClaim(3, of: 1)
    open(&scheduler)
    #expect(scheduler.allowances(at(5000)) == [])
    scheduler.didFinish(1)
    #expect(scheduler.allowances(at(5000)).map(\.limit) == [1])
  }

  @Test("while connections in doubt hold more than the room, a few deliveries are claimed for the others every 200 ms")
  func doubt() {
    var scheduler = LaneScheduler()
    scheduler.add(lane: 1, window: 800)
    scheduler.setCapacity(400, of: 1)
    #expect(scheduler.allowances(at(0)).map(\.limit) == [500])
    scheduler.didClaim(500, of: 1)
    scheduler.setCapacity(3, of: 1)
    #expect(scheduler.allowances(at(999)) == [])
    #expect(scheduler.allowances(at(1000)).map(\.limit) == [1], "every connection is in doubt: one a second")
    scheduler.didClaim(1, of: 1)
    scheduler.setCapacity(103, of: 1)
    for claim in 0..<24 as Range<Int64> {
      #expect(scheduler.allowances(at(1200 + 200 * claim)).map(\.limit) == [12])
      scheduler.didClaim(12, of: 1)
      #expect(scheduler.allowances(at(1399 + 200 * claim)) == [])
    }
    #expect(scheduler.allowances(at(20_000)).map(\.limit) == [11])
    scheduler.didClaim(11, of: 1)
    #expect(scheduler.allowances(at(40_000)) == [], "the window is full")
  }

  @Test("deliveries without an answer that take most of the room keep others waiting for 200 ms, a lone one not at all")
  func busyWait() {
    var scheduler = LaneScheduler()
    scheduler.add(lane: 1, window: 1000)
    scheduler.setCapacity(10, of: 1)
    #expect(scheduler.allowances(at(0)).map(\.limit) == [20])
    scheduler.didClaim(18, of: 1)
    scheduler.didFinishClaim()
    #expect(scheduler.allowances(at(199)) == [])
    for time in [200, 201, 5000] as [Int64] {
      #expect(scheduler.allowances(at(time)).map(\.limit) == [2])
      scheduler.didFinishClaim()
    }
    #expect(scheduler.allowances(at(5001)).map(\.limit) == [2])
    scheduler.didClaim(1, of: 1)
    scheduler.didFinishClaim()
    #expect(scheduler.allowances(at(5200)) == [])
    #expect(scheduler.allowances(at(5201)).map(\.limit) == [1])
  }
}
