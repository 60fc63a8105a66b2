// What a pool does about connections whose health is in doubt, and how often it connects: in virtual time.

import Runtime
import Testing

@testable import Providers

extension MachineDriver {
  /// The time passes, and the machine is woken whenever it asked for it.
  mutating func pass(_ time: Nanoseconds) -> [HTTP2ConnectionPoolMachine.Action] {
    now = now + time
    return feed(.woken)
  }
}

@Suite("Pool: health", .timeLimit(.minutes(10))) struct HTTP2ConnectionPoolHealthTests {
  /// One connection, proven, with room for ten requests.
  private func proven(_ change: (inout HTTP2ConnectionPoolSettings) -> Void = { _ in }) -> MachineDriver {
    var pool = MachineDriver {
      $0.connectionsMax = 1
      change(&$0)
    }
    pool.connect(streamsMax: 10)
    _ = pool.submit(0)
    _ = pool.feed(.answered(0, 0, .done))
    pool.now = pool.now + .seconds(3600)
    return pool
  }

  @Test func aDoubtOpensAReplacementBeyondTheConfiguredCountAndNewRequestsGoThere() {
    var pool = proven()
    #expect(withoutWakes(pool.submit(0)) == [.dispatch(0, 0)])
    #expect(withoutWakes(pool.feed(.healthChanged(0, .doubtful))) == [.open(1), .reportCapacity(1)])
    #expect(withoutWakes(pool.submit(1)) == [], "it waits for the replacement")
    #expect(withoutWakes(pool.feed(.limited(1, streamsMax: 10))) == [.dispatch(1, 1), .reportCapacity(11)])
    #expect(withoutWakes(pool.submit(2)) == [.dispatch(2, 1)])
  }

  @Test func theRequestsOfADeadConnectionFindTheReplacementReady() {
    var pool = proven()
    _ = pool.submit(0)
    _ = pool.feed(.healthChanged(0, .doubtful))
    _ = pool.feed(.limited(1, streamsMax: 10))
    #expect(withoutWakes(pool.feed(.failed(0, 0, isLost: false))) == [.drain(0), .reportCapacity(10)])
    #expect(withoutWakes(pool.feed(.closed(0))) == [], "no third is opened")
    #expect(withoutWakes(pool.submit(0)) == [.dispatch(0, 1)])
  }

  @Test func aDoubtOpensNothingWhereAnotherConnectionHasRoom() {
    var pool = MachineDriver { $0.connectionsMax = 2 }
    pool.connect(streamsMax: 4)
    for request in 0...3 { _ = pool.submit(request) }
    _ = pool.feed(.limited(1, streamsMax: 10))
    #expect(withoutWakes(pool.feed(.healthChanged(0, .doubtful))) == [.reportCapacity(11)])
    #expect(withoutWakes(pool.submit(4)) == [.dispatch(4, 1)])
  }

  @Test func noMoreReplacementsAreOpenedThanAllowed() {
    var pool = proven()
    _ = pool.submit(0)
    _ = pool.feed(.healthChanged(0, .doubtful))
    _ = pool.feed(.limited(1, streamsMax: 10))
    _ = pool.submit(1)
    #expect(withoutWakes(pool.feed(.healthChanged(1, .doubtful))) == [.reportCapacity(2)])
    #expect(withoutWakes(pool.pass(.seconds(1))) == [])
  }

  @Test func aConnectionInDoubtIsTheLastResort() {
    var pool = proven { $0.replacementsMax = 0 }
    _ = pool.submit(0)
    _ = pool.feed(.healthChanged(0, .doubtful))
    #expect(withoutWakes(pool.submit(1)) == [], "one request at a time")
    #expect(withoutWakes(pool.feed(.failed(0, 0, isLost: false))) == [.dispatch(1, 0)])
  }

  @Test func aConnectionThatLosesALoneRequestIsReplacedBeforeTheNextTry() {
    var pool = proven()
    _ = pool.submit(0)
    #expect(withoutWakes(pool.feed(.failed(0, 0, isLost: true))) == [.open(1), .reportCapacity(1)])
    #expect(withoutWakes(pool.submit(1, avoiding: 0)) == [], "it waits for the replacement")
    #expect(
      withoutWakes(pool.feed(.limited(1, streamsMax: 10))) == [.drain(0), .dispatch(1, 1), .reportCapacity(10)])
  }

  @Test func theFirstLossOfAConnectionThatHasAnsweredNoneIsNoDoubt() {
    var pool = MachineDriver { $0.connectionsMax = 1 }
    pool.connect(streamsMax: 10)
    _ = pool.submit(0)
    _ = pool.feed(.failed(0, 0, isLost: true))
    #expect(withoutWakes(pool.submit(0, avoiding: 0)) == [.dispatch(0, 0)])
    #expect(withoutWakes(pool.feed(.failed(0, 0, isLost: true))).contains(.open(1)), "the second is")
  }

  @Test func oneLossAmongManyRequestsIsNoDoubt() {
    var pool = proven()
    for request in 0...2 { _ = pool.submit(request) }
    #expect(withoutWakes(pool.feed(.failed(0, 0, isLost: true))) == [])
    _ = pool.feed(.answered(1, 0, .done))
    #expect(withoutWakes(pool.submit(0)) == [.dispatch(0, 0)])
    _ = pool.feed(.failed(0, 0, isLost: true))
    #expect(withoutWakes(pool.feed(.failed(2, 0, isLost: true))).contains(.open(1)), "two in a row are")
  }

  @Test func aLoneLossOnTheLastConnectionThatMayBeOpenDoesNotStopTheNextTry() {
    var pool = proven { $0.replacementsMax = 0 }
    _ = pool.submit(0)
    _ = pool.feed(.failed(0, 0, isLost: true))
    #expect(withoutWakes(pool.submit(1, avoiding: 0)) == [.dispatch(1, 0)])
  }

  @Test func aSurplusConnectionStaysForAMinuteAfterTheDoubt() {
    var pool = proven()
    _ = pool.submit(0)
    _ = pool.feed(.healthChanged(0, .doubtful))
    _ = pool.feed(.limited(1, streamsMax: 10))
    let actions = pool.feed(.healthChanged(0, .sound))
    #expect(withoutWakes(actions) == [.reportCapacity(20)])
    #expect(actions.contains(.wake(pool.now + .seconds(60))))
    _ = pool.feed(.answered(0, 0, .done))
    #expect(withoutWakes(pool.pass(.seconds(59))) == [])
    #expect(withoutWakes(pool.pass(.seconds(1))) == [.drain(0), .reportCapacity(10)])
  }

  // MARK: - Unresponsive

  /// The configured connection is unresponsive with request 0 in flight, its replacement is ready.
  private func unresponsive() -> (MachineDriver, [HTTP2ConnectionPoolMachine.Action]) {
    var pool = proven()
    _ = pool.submit(0)
    _ = pool.feed(.healthChanged(0, .doubtful))
    _ = pool.feed(.limited(1, streamsMax: 10))
    pool.now = pool.now + .seconds(2)
    let actions = pool.feed(.healthChanged(0, .unresponsive))
    return (pool, actions)
  }

  @Test func anUnresponsiveConnectionIsGivenUpWhenItsReplacementIsReady() {
    let (_, actions) = unresponsive()
    #expect(withoutWakes(actions) == [.abandon(0), .reportCapacity(10)])
  }

  @Test func anUnresponsiveConnectionIsKeptWhileNothingIsReadyInItsPlace() {
    var pool = proven()
    _ = pool.submit(0)
    _ = pool.feed(.healthChanged(0, .doubtful))
    #expect(withoutWakes(pool.feed(.healthChanged(0, .unresponsive))) == [])
    #expect(pool.feed(.limited(1, streamsMax: 10)).contains(.abandon(0)))
  }

  @Test func ifItsReplacementAnswersNeitherTheProviderIsSlowAndTheNextIsKeptForThirtySeconds() {
    var (pool, _) = unresponsive()
    _ = pool.feed(.failed(0, 0, isLost: false))
    _ = pool.feed(.closed(0))
    _ = pool.submit(0)
    pool.now = pool.now + .seconds(2)
    #expect(withoutWakes(pool.feed(.healthChanged(1, .doubtful))) == [.open(2), .reportCapacity(1)])
    _ = pool.feed(.limited(2, streamsMax: 10))
    pool.now = pool.now + .seconds(2)
    #expect(withoutWakes(pool.feed(.healthChanged(1, .unresponsive))) == [])
    #expect(withoutWakes(pool.pass(.seconds(25))) == [])
    #expect(withoutWakes(pool.pass(.seconds(1))) == [.abandon(1), .reportCapacity(10)])
  }

  @Test func anAnswerOnAnotherConnectionShowsThatTheProviderIsNotSlow() {
    var (pool, _) = unresponsive()
    _ = pool.feed(.failed(0, 0, isLost: false))
    _ = pool.feed(.closed(0))
    _ = pool.submit(0)
    _ = pool.feed(.healthChanged(1, .doubtful))
    _ = pool.feed(.limited(2, streamsMax: 10))
    _ = pool.feed(.healthChanged(1, .unresponsive))
    _ = pool.submit(1)
    #expect(withoutWakes(pool.feed(.answered(1, 2, .done))).contains(.abandon(1)))
  }

  @Test func anUnresponsiveConnectionWithoutRequestsIsDrained() {
    var pool = proven()
    _ = pool.submit(0)
    _ = pool.feed(.healthChanged(0, .doubtful))
    _ = pool.feed(.closed(1))  // the replacement cannot be had
    _ = pool.feed(.healthChanged(0, .unresponsive))
    #expect(withoutWakes(pool.feed(.failed(0, 0, isLost: false))).contains(.drain(0)))
  }

  @Test func aConnectionThatAllowsNoStreamsIsNoReasonToWait() {
    var pool = MachineDriver { $0.connectionsMax = 1 }
    pool.connect(streamsMax: 10)
    #expect(withoutWakes(pool.feed(.limited(0, streamsMax: 0))) == [.open(1), .reportCapacity(0)])
    #expect(withoutWakes(pool.submit(0)) == [])
    #expect(withoutWakes(pool.feed(.limited(1, streamsMax: 10))) == [.dispatch(0, 1), .reportCapacity(10)])
  }

  // MARK: - Reconnecting

  /// A peer that accepts every connection, answers so many requests on it and hangs up. Calls come one at a time, each
  /// `interval` after the one before; a call that finds no connection waits for one. Gives when connections were opened
  /// and how long calls waited.
  private func churn(
    answers: Int, calls: Int, every interval: Nanoseconds
  ) -> (openings: [Nanoseconds], waits: [Nanoseconds]) {
    var pool = MachineDriver {
      $0.connectionsMax = 1
      $0.waitTimeout = .seconds(60)
    }
    let start = pool.now
    var openings: [Nanoseconds] = []
    var waits: [Nanoseconds] = []
    var answered: [Int: Int] = [:]
    var wakes: [Instant] = []
    var submittedAt: [Int: Instant] = [:]
    var queue = pool.feed(.started)
    func drain(_ pool: inout MachineDriver) {
      while !queue.isEmpty {
        switch queue.removeFirst() {
        case .open(let id):
          openings.append(pool.now - start)
          queue += pool.feed(.limited(id, streamsMax: 10))
        case .dispatch(let request, let id):
          waits.append(pool.now - (submittedAt[request] ?? pool.now))
          answered[id, default: 0] += 1
          queue += pool.feed(.answered(request, id, .done))
          if answered[id] == answers { queue += pool.feed(.closed(id)) }
        case .wake(let at): wakes.append(at)
        default: break
        }
      }
    }
    drain(&pool)
    for call in 0..<calls {
      let at = start + interval * Int64(call)
      while let wake = wakes.filter({ $0 <= at }).min() {
        wakes.removeAll { $0 == wake }
        pool.now = max(pool.now, wake)
        queue += pool.feed(.woken)
        drain(&pool)
      }
      pool.now = max(pool.now, at)
      submittedAt[call] = pool.now
      queue += pool.submit(call)
      drain(&pool)
    }
    return (openings, waits)
  }

  @Test func aPeerThatAnswersOnceAndHangsUpIsConnectedToAFewTimesInTwoSeconds() {
    let (openings, _) = churn(answers: 1, calls: 2_000, every: .milliseconds(1))
    #expect(openings.count <= 7, "\(openings.map(\.milliseconds))")
    #expect(openings.count >= 4)
  }

  @Test func soItIsHoweverLongThatGoesOn() {
    let (openings, _) = churn(answers: 1, calls: 6_000, every: .milliseconds(100))
    let last = openings.filter { $0 > .seconds(480) }
    #expect(last.count <= 24, "a connection every 5 s at most: \(last.map(\.milliseconds))")
  }

  @Test func loneCallsRingAtOnceOverAPeerThatAnswersOnceAndHangsUp() {
    let (_, waits) = churn(answers: 1, calls: 100, every: .seconds(20))
    #expect(waits.count == 100)
    #expect(waits.allSatisfy { $0 == .zero })
  }

  @Test func callsEveryFiveSecondsRingWithinTheirWindowOverSuchAPeer() {
    let (_, waits) = churn(answers: 1, calls: 200, every: .seconds(5))
    #expect(waits.allSatisfy { $0 <= .seconds(15) })
  }

  /// A peer that closes each connection that had nothing to do for so long, whether by GOAWAY or without a word.
  private func idle(
    for patience: Nanoseconds, goesAway: Bool, calls: Int, every interval: Nanoseconds
  ) -> (openings: Int, waits: [Nanoseconds]) {
    var pool = MachineDriver {
      $0.connectionsMax = 1
      $0.waitTimeout = .seconds(60)
    }
    let start = pool.now
    var (openings, waits) = (0, [Nanoseconds]())
    var submittedAt: [Int: Instant] = [:]
    /// What happens when: the machine wakes, or the peer closes a connection unless it was used since.
    var wakes: [Instant] = []
    var open: (id: Int, closesAt: Instant)?
    var queue = pool.feed(.started)
    func drain(_ pool: inout MachineDriver) {
      while !queue.isEmpty {
        switch queue.removeFirst() {
        case .open(let id):
          openings += 1
          queue += pool.feed(.limited(id, streamsMax: 10))
          open = (id, pool.now + patience)
        case .dispatch(let request, let id):
          waits.append(pool.now - (submittedAt[request] ?? pool.now))
          queue += pool.feed(.answered(request, id, .done))
          open = (id, pool.now + patience)
        case .wake(let at): wakes.append(at)
        default: break
        }
      }
    }
    drain(&pool)
    for call in 0..<calls {
      let at = start + interval * Int64(call)
      while let next = (wakes + (open.map { [$0.closesAt] } ?? [])).filter({ $0 <= at }).min() {
        pool.now = max(pool.now, next)
        if let closing = open, closing.closesAt <= next {
          open = nil
          if goesAway { queue += pool.feed(.goingAway(closing.id)) }
          queue += pool.feed(.closed(closing.id))
        } else {
          wakes.removeAll { $0 == next }
          queue += pool.feed(.woken)
        }
        drain(&pool)
      }
      pool.now = max(pool.now, at)
      submittedAt[call] = pool.now
      queue += pool.submit(call)
      drain(&pool)
    }
    return (openings, waits)
  }

  @Test(arguments: [false, true]) func loneCallsWaitTwoSecondsAtMostForAPeerThatClosesWhatIsIdle(goesAway: Bool) {
    let (openings, waits) = idle(for: .seconds(2), goesAway: goesAway, calls: 300, every: .milliseconds(7_300))
    #expect(waits.count >= 299)
    #expect(waits.allSatisfy { $0 <= .seconds(2) }, "\(waits.max()?.milliseconds ?? 0)")
    // Two seconds of life, and one to two of waiting.
    #expect(openings <= 300 * 7_300 / 3_000)
  }

  @Test func loneCallsWaitTwoSecondsAtMostForAPeerThatClosesSoonAfterItsAnswer() {
    let (openings, waits) = idle(for: .milliseconds(900), goesAway: false, calls: 600, every: .seconds(1))
    #expect(waits.allSatisfy { $0 <= .seconds(2) }, "\(waits.max()?.milliseconds ?? 0)")
    // About one second of life, and one to two of waiting.
    #expect(openings <= 600 / 2 + 12)
  }

  @Test func aPeerThatHangsUpAfterAHundredAnswersIsReplacedAtOnce() {
    let (openings, waits) = churn(answers: 100, calls: 2_000, every: .milliseconds(1))
    #expect(openings.count == 21)
    #expect(waits.allSatisfy { $0 == .zero })
  }

  @Test func connectionsThatEndTogetherCountOnce() {
    var pool = MachineDriver { $0.connectionsMax = 8 }
    pool.connect(streamsMax: 1)
    for id in 0..<7 {
      _ = pool.submit(id)
      _ = pool.feed(.limited(id + 1, streamsMax: 1))
    }
    for id in 0..<7 { _ = pool.feed(.answered(id, id, .done)) }
    var waits: [Nanoseconds] = []
    for id in 0..<7 {
      for case .wake(let at) in pool.feed(.closed(id)) { waits.append(at - pool.now) }
    }
    #expect(waits.allSatisfy { $0 <= .milliseconds(250) }, "\(waits.map(\.milliseconds))")
  }
}
