import Queue
import Runtime
import Testing

private func at(_ milliseconds: Int64) -> Instant { Instant(nanoseconds: 0) + .milliseconds(milliseconds) }

@Suite("Claim floor")
struct ClaimFloorTests {
  /// Claims at `now`, rows with these deadlines; returns the floor it started at.
  private func claim(
    _ floor: inout ClaimFloor, _ deadlines: some Collection<Int64>, passed: Int = 0,
    cost: Nanoseconds = .milliseconds(4),
    at now: Instant
  ) -> Int64 {
    floor.begin(now)
    let start = floor.floor(of: 1)
    for deadline in deadlines { floor.didClaim(lane: 1, deadlineAtMicroseconds: deadline) }
    let scanned = floor.wantsScanCount ? passed + deadlines.count : nil
    floor.didFinish(cost: cost, entriesScanned: scanned, now + cost)
    return start
  }

  @Test("while few entries are claimed or dead, claims start at the bottom: a short call comes before a long one")
  func cheap() {
    var floor = ClaimFloor()
    for time in 0..<10 {
      let start = claim(&floor, [14_400_000_000], passed: 1_000, cost: .milliseconds(200), at: at(Int64(time) * 300))
      #expect(start == .min)
    }
    // Many rows justify a longer scan.
    #expect(claim(&floor, [Int64](repeating: 5_000_000, count: 1000), passed: 2000, at: at(3000)) == .min)
    #expect(claim(&floor, [], at: at(3141)) == .min)
  }

  @Test("with many, claims start just below the newest deadline claimed; sweeps take a twentieth of the time")
  func expensive() {
    var floor = ClaimFloor()
    #expect(claim(&floor, [5_000_000, 4_000_000], passed: 100_000, cost: .milliseconds(30), at: at(0)) == .min)
    #expect(claim(&floor, [6_000_000], at: at(31)) == 4_950_000)
    #expect(claim(&floor, [], at: at(629)) == 5_950_000)
    #expect(claim(&floor, [], passed: 100_000, cost: .milliseconds(30), at: at(630)) == .min)
    #expect(claim(&floor, [], at: at(661)) == 5_950_000)
    #expect(claim(&floor, [], cost: .milliseconds(1), at: at(1260)) == .min)
    #expect(claim(&floor, [], at: at(1262)) == .min)
  }

  @Test(
    "after an expensive sweep the next claim continues where it ended, so that short calls are found in turn")
  func afterSweep() {
    var floor = ClaimFloor()
    #expect(claim(&floor, [600_000_000], passed: 99_999, cost: .milliseconds(30), at: at(0)) == .min)
    #expect(claim(&floor, [601_000_000], at: at(31)) == 599_950_000)
    #expect(claim(&floor, [60_000_000], passed: 99_999, cost: .milliseconds(30), at: at(630)) == .min)
    #expect(claim(&floor, [61_000_000], at: at(661)) == 59_950_000)
    #expect(claim(&floor, [], at: at(670)) == 60_950_000)
  }

  @Test("the number of entries scanned is requested for the first sweep, and for sweeps after a slow one")
  func looking() {
    var floor = ClaimFloor()
    func looks(_ cost: Nanoseconds, scanned: Int?, at now: Instant) -> Bool {
      floor.begin(now)
      let looks = floor.wantsScanCount
      floor.didFinish(cost: cost, entriesScanned: looks ? scanned : nil, now + cost)
      return looks
    }
    #expect(looks(.milliseconds(1), scanned: 0, at: at(0)))
    #expect(!looks(.milliseconds(1), scanned: 0, at: at(2)))
    #expect(!looks(.milliseconds(9), scanned: 0, at: at(4)))
    #expect(looks(.milliseconds(9), scanned: 99_999, at: at(14)))
    #expect(!looks(.milliseconds(9), scanned: 0, at: at(24)))  // no sweep
    #expect(looks(.milliseconds(1), scanned: 99_999, at: at(220)))
    // While there are many, every sweep; and so also without an answer.
    #expect(looks(.milliseconds(1), scanned: nil, at: at(300)))
    #expect(looks(.milliseconds(1), scanned: 0, at: at(400)))
    #expect(!looks(.milliseconds(1), scanned: 0, at: at(402)))
  }

  @Test("deliveries with hours left move their own floor, and never the floor of calls")
  func background() {
    var floor = ClaimFloor()
    floor.begin(at(0))
    floor.didClaim(lane: 1, deadlineAtMicroseconds: 14_400_000_000, isBackground: true)
    floor.didClaim(lane: 1, deadlineAtMicroseconds: 60_000_000)
    floor.didFinish(cost: .milliseconds(30), entriesScanned: 99_999, at(30))
    floor.begin(at(31))
    #expect(floor.floor(of: 1) == 59_950_000)
    #expect(floor.backgroundFloor(of: 1) == 14_399_950_000)
    #expect(floor.floor(of: 2) == .min)
  }

  @Test("the limit of a twentieth of the time counts what sweeps waste, not the rows they claim")
  func waste() {
    var floor = ClaimFloor()
    // 3,000 entries stepped over cost a tenth of the 1,000 rows that were taken: 0.9 of 10 ms.
    let rows = [Int64](repeating: 5_000_000, count: 1000)
    #expect(claim(&floor, rows, passed: 3_000, cost: .milliseconds(10), at: at(0)) == .min)
    #expect(claim(&floor, rows, cost: .milliseconds(10), at: at(11)) == 4_950_000)
    #expect(claim(&floor, rows, cost: .milliseconds(10), at: at(27)) == 4_950_000)
    #expect(claim(&floor, rows, passed: 0, cost: .milliseconds(10), at: at(29)) == .min)
    #expect(claim(&floor, rows, passed: 0, cost: .milliseconds(10), at: at(40)) == .min)
  }

  /// Where a claim at `now` would start.
  private func start(_ floor: inout ClaimFloor, at now: Instant) -> Int64 {
    floor.begin(now)
    return floor.floor(of: 1)
  }

  @Test("a sweep that the server cancelled for its duration is not repeated at once; one that failed early is")
  func failedSweep() {
    var floor = ClaimFloor()
    _ = claim(&floor, [5_000_000], at: at(0))
    #expect(start(&floor, at: at(10)) == .min)
    floor.didFail(cost: .milliseconds(100), isRefused: true, at(110))
    #expect(start(&floor, at: at(120)) == .min)
    floor.didFail(cost: .milliseconds(2_500), isRefused: true, at(2_620))
    #expect(start(&floor, at: at(2_630)) == 4_950_000)
    floor.didFail(cost: .milliseconds(2_500), isRefused: true, at(3_130))  // no sweep
    #expect(start(&floor, at: at(3_619)) == 4_950_000)
  }

  @Test("the pause doubles after successive cancelled sweeps, up to the usual share of the time")
  func failedSweeps() {
    var floor = ClaimFloor()
    _ = claim(&floor, [5_000_000], at: at(0))
    var now: Int64 = 10
    for pause in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 50_000, 50_000] as [Int64] {
      #expect(start(&floor, at: at(now)) == .min)
      now += 2_500
      floor.didFail(cost: .milliseconds(2_500), isRefused: true, at(now))
      #expect(start(&floor, at: at(now + pause - 1)) == 4_950_000)
      now += pause
    }
    _ = claim(&floor, [], cost: .milliseconds(1), at: at(now))
    #expect(start(&floor, at: at(now + 2)) == .min)
    floor.didFail(cost: .milliseconds(2_500), isRefused: true, at(now + 2_502))
    #expect(start(&floor, at: at(now + 3_502)) == .min)
  }

  @Test("a claim whose answer was lost does not count as a sweep: the next claim finds a short call")
  func lostAnswer() {
    var floor = ClaimFloor()
    _ = claim(&floor, [60_000_000], at: at(0))
    #expect(start(&floor, at: at(10)) == .min)
    floor.didFail(cost: .milliseconds(3_000), isRefused: false, at(3_010))
    #expect(start(&floor, at: at(3_260)) == .min)
  }

  @Test("with a new connection the first claim is a sweep")
  func newConnection() {
    var floor = ClaimFloor()
    _ = claim(&floor, [60_000_000], passed: 99_999, cost: .milliseconds(500), at: at(0))
    #expect(start(&floor, at: at(510)) == 59_950_000)
    floor.restart()
    #expect(start(&floor, at: at(520)) == .min)
  }

  @Test("visible pushes never move the floor of calls, whatever time they have left")
  func visible() {
    var floor = ClaimFloor()
    floor.begin(at(0))
    floor.didClaim(lane: 1, deadlineAtMicroseconds: 60_000_000)
    floor.didClaim(lane: 1, deadlineAtMicroseconds: 599_000_000, isVisible: true)
    floor.didClaim(lane: 1, deadlineAtMicroseconds: 14_400_000_000, isBackground: true, isVisible: true)
    floor.didFinish(cost: .milliseconds(30), entriesScanned: 99_999, at(30))
    floor.begin(at(31))
    #expect(floor.floor(of: 1) == 59_950_000)
    #expect(floor.backgroundFloor(of: 1) == 14_399_950_000)
  }
}
