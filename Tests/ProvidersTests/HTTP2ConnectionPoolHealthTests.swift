// Tests in virtual time of doubtful connections in a pool, and of how often the pool connects.

import Runtime
import Testing

@testable import Providers

extension MachineDriver {
  /// Advances the time, and wakes the machine at each time that it requested.
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

  @Test func `a doubtful connection gets a replacement beyond the configured count, which takes new requests`() {
    var pool = proven()
    #expect(withoutWakes(pool.submit(0)) == [.dispatch(0, 0)])
    #expect(withoutWakes(pool.feed(.healthChanged(0, .doubtful))) == [.open(1), .reportCapacity(1)])
    #expect(withoutWakes(pool.submit(1)) == [], "it waits for the replacement")
    #expect(withoutWakes(pool.feed(.limited(1, streamsMax: 10))) == [.dispatch(1, 1), .reportCapacity(11)])
    #expect(withoutWakes(pool.submit(2)) == [.dispatch(2, 1)])
  }

  @Test func `the replacement is ready when the requests of a dead connection are sent again`() {
    var pool = proven()
    _ = pool.submit(0)
    _ = pool.feed(.healthChanged(0, .doubtful))
    _ = pool.feed(.limited(1, streamsMax: 10))
    #expect(withoutWakes(pool.feed(.failed(0, 0, isLost: false))) == [.drain(0), .reportCapacity(10)])
    #expect(withoutWakes(pool.feed(.closed(0))) == [], "no third is opened")
    #expect(withoutWakes(pool.submit(0)) == [.dispatch(0, 1)])
  }

  @Test func `a doubtful connection gets no replacement if another connection has room`() {
    var pool = MachineDriver { $0.connectionsMax = 2 }
    pool.connect(streamsMax: 4)
    for request in 0...3 { _ = pool.submit(request) }
    _ = pool.feed(.limited(1, streamsMax: 10))
    #expect(withoutWakes(pool.feed(.healthChanged(0, .doubtful))) == [.reportCapacity(11)])
    #expect(withoutWakes(pool.submit(4)) == [.dispatch(4, 1)])
  }

  @Test func `the number of replacements is limited`() {
    var pool = proven()
    _ = pool.submit(0)
    _ = pool.feed(.healthChanged(0, .doubtful))
    _ = pool.feed(.limited(1, streamsMax: 10))
    _ = pool.submit(1)
    #expect(withoutWakes(pool.feed(.healthChanged(1, .doubtful))) == [.reportCapacity(2)])
    #expect(withoutWakes(pool.pass(.seconds(1))) == [])
  }

  @Test func `a doubtful connection is used only if there is no other`() {
    var pool = proven { $0.replacementsMax = 0 }
    _ = pool.submit(0)
    _ = pool.feed(.healthChanged(0, .doubtful))
    #expect(withoutWakes(pool.submit(1)) == [], "one request at a time")
    #expect(withoutWakes(pool.feed(.failed(0, 0, isLost: false))) == [.dispatch(1, 0)])
  }

  @Test func `a connection that loses its only request is replaced before the next attempt`() {
    var pool = proven()
    _ = pool.submit(0)
    #expect(withoutWakes(pool.feed(.failed(0, 0, isLost: true))) == [.open(1), .reportCapacity(1)])
    #expect(withoutWakes(pool.submit(1, avoiding: 0)) == [], "it waits for the replacement")
    #expect(
      withoutWakes(pool.feed(.limited(1, streamsMax: 10))) == [.drain(0), .dispatch(1, 1), .reportCapacity(10)])
  }

  @Test func `the first loss on a connection that has answered no request does not make it doubtful`() {
    var pool = MachineDriver { $0.connectionsMax = 1 }
    pool.connect(streamsMax: 10)
    _ = pool.submit(0)
    _ = pool.feed(.failed(0, 0, isLost: true))
    #expect(withoutWakes(pool.submit(0, avoiding: 0)) == [.dispatch(0, 0)])
    #expect(withoutWakes(pool.feed(.failed(0, 0, isLost: true))).contains(.open(1)), "the second is")
  }

  @Test func `one loss among many requests does not make a connection doubtful`() {
    var pool = proven()
    for request in 0...2 { _ = pool.submit(request) }
    #expect(withoutWakes(pool.feed(.failed(0, 0, isLost: true))) == [])
    _ = pool.feed(.answered(1, 0, .done))
    #expect(withoutWakes(pool.submit(0)) == [.dispatch(0, 0)])
    _ = pool.feed(.failed(0, 0, isLost: true))
    #expect(withoutWakes(pool.feed(.failed(2, 0, isLost: true))).contains(.open(1)), "two in a row are")
  }

  @Test func `a lone loss on the last allowed connection does not delay the next attempt`() {
    var pool = proven { $0.replacementsMax = 0 }
    _ = pool.submit(0)
    _ = pool.feed(.failed(0, 0, isLost: true))
    #expect(withoutWakes(pool.submit(1, avoiding: 0)) == [.dispatch(1, 0)])
  }

  @Test func `a surplus connection stays open for a minute after its last request`() {
    var pool = proven()
    _ = pool.submit(0)
    _ = pool.feed(.healthChanged(0, .doubtful))
    _ = pool.feed(.limited(1, streamsMax: 10))
    #expect(withoutWakes(pool.feed(.healthChanged(0, .sound))) == [.reportCapacity(20)])
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

  @Test func `an unresponsive connection keeps the requests that it has, and is drained after the last`() {
    var (pool, actions) = unresponsive()
    #expect(withoutWakes(actions) == [])
    #expect(withoutWakes(pool.submit(1)) == [.dispatch(1, 1)])
    #expect(withoutWakes(pool.feed(.answered(1, 1, .done))) == [])
    #expect(withoutWakes(pool.pass(.seconds(59))) == [], "the provider may only be slow")
    actions = pool.feed(.failed(0, 0, isLost: true))
    #expect(withoutWakes(actions).contains(.drain(0)))
  }

  @Test func `an unresponsive connection that answers after all is sound again`() {
    var (pool, _) = unresponsive()
    #expect(
      withoutWakes(pool.feed(.healthChanged(0, .sound)) + pool.feed(.answered(0, 0, .done))) == [.reportCapacity(20)])
  }

  @Test func `an unresponsive connection without requests is drained`() {
    var pool = proven()
    _ = pool.submit(0)
    _ = pool.feed(.healthChanged(0, .doubtful))
    _ = pool.feed(.closed(1))  // the replacement cannot be opened
    _ = pool.feed(.healthChanged(0, .unresponsive))
    #expect(withoutWakes(pool.feed(.failed(0, 0, isLost: false))).contains(.drain(0)))
  }

  @Test func `a connection that answers only PINGs and cannot be replaced is tested by one request at a time`() {
    var pool = proven { $0.replacementsMax = 0 }
    _ = pool.submit(0)
    _ = pool.feed(.healthChanged(0, .doubtful))
    #expect(withoutWakes(pool.submit(1)) == [])
    // Request 0 may be the only one without an answer.
    #expect(withoutWakes(pool.feed(.healthChanged(0, .unanswered))) == [.dispatch(1, 0)])
    #expect(withoutWakes(pool.submit(2)) == [])
    #expect(withoutWakes(pool.pass(.milliseconds(1749))) == [])
    #expect(withoutWakes(pool.pass(.milliseconds(1))) == [.dispatch(2, 0)], "nor was 1 answered")
    _ = pool.feed(.answered(2, 0, .done))
    #expect(withoutWakes(pool.feed(.healthChanged(0, .sound))) == [.reportCapacity(10)])
    #expect(withoutWakes(pool.submit(3)) == [.dispatch(3, 0)])
  }

  @Test func `what waits for the only stream of a new connection gets another after 300 ms`() {
    var pool = proven { $0.probes = true }
    _ = pool.submit(0)
    _ = pool.feed(.healthChanged(0, .doubtful))
    _ = pool.feed(.limited(1, streamsMax: 1))
    #expect(withoutWakes(pool.submit(1)) == [.dispatch(1, 1)])
    #expect(withoutWakes(pool.pass(.seconds(1))) == [], "nothing waits")
    #expect(withoutWakes(pool.submit(2)) == [.open(2)])
    #expect(withoutWakes(pool.feed(.limited(2, streamsMax: 1))) == [.dispatch(2, 2), .reportCapacity(3)])
    _ = pool.submit(3)
    #expect(withoutWakes(pool.pass(.milliseconds(300))) == [.open(3)])
    #expect(withoutWakes(pool.feed(.limited(3, streamsMax: 1))) == [.dispatch(3, 3), .reportCapacity(4)])
    _ = pool.submit(4)
    #expect(withoutWakes(pool.pass(.seconds(1))) == [], "four are twice as many as a pool for one connection may have")
  }

  @Test func `while a request waits, a connection that takes more than a second to be made gets another beside it`() {
    var pool = MachineDriver { $0.connectionsMax = 1 }
    #expect(withoutWakes(pool.feed(.started)) == [.open(0)])
    #expect(withoutWakes(pool.pass(.seconds(3))) == [], "nothing waits")
    #expect(withoutWakes(pool.submit(0)) == [.open(1)])
    #expect(withoutWakes(pool.pass(.milliseconds(999))) == [])
    #expect(withoutWakes(pool.pass(.milliseconds(1))) == [.open(2)])
    #expect(withoutWakes(pool.feed(.limited(2, streamsMax: 10))).contains(.dispatch(0, 2)))
    #expect(withoutWakes(pool.feed(.limited(0, streamsMax: 10))) == [.reportCapacity(20)])
    #expect(withoutWakes(pool.pass(.seconds(60))).contains(.drain(0)), "it is one too many")
  }

  @Test func `a new connection whose only stream is taken is waited for`() {
    var pool = MachineDriver {
      $0.connectionsMax = 1
      $0.probes = true
    }
    pool.connect(streamsMax: 1)
    _ = pool.submit(0)
    #expect(pool.submit(1) == [.wake(pool.now + .milliseconds(300))])
    #expect(withoutWakes(pool.pass(.milliseconds(299))) == [])
    #expect(withoutWakes(pool.pass(.milliseconds(1))) == [.open(1)])
  }

  @Test func `connections given up one after another because of their requests are replaced within half a second`() {
    var pool = proven()
    for connection in 0..<12 {
      _ = pool.submit(0)
      pool.now = pool.now + .seconds(2)
      var actions = pool.feed(.healthChanged(connection, .doubtful))
      if !actions.contains(.open(connection + 1)) { actions = pool.pass(.milliseconds(500)) }
      #expect(actions.contains(.open(connection + 1)))
      _ = pool.feed(.limited(connection + 1, streamsMax: 10))
      _ = pool.submit(1)
      _ = pool.feed(.answered(1, connection + 1, .done))
      _ = pool.feed(.healthChanged(connection, .unresponsive))
      #expect(pool.feed(.failed(0, connection, isLost: true)).contains(.drain(connection)))
      _ = pool.feed(.closed(connection))
    }
  }

  @Test func `a connection that allows no streams is replaced without a wait`() {
    var pool = MachineDriver { $0.connectionsMax = 1 }
    pool.connect(streamsMax: 10)
    #expect(withoutWakes(pool.feed(.limited(0, streamsMax: 0))) == [.open(1), .reportCapacity(0)])
    #expect(withoutWakes(pool.submit(0)) == [])
    #expect(withoutWakes(pool.feed(.limited(1, streamsMax: 10))) == [.dispatch(0, 1), .reportCapacity(10)])
  }

  // MARK: - Reconnecting

  /// A peer that accepts every connection, answers this number of requests on it and closes it. Calls arrive one at a time,
  /// each `interval` after the previous one; a call without a connection waits for one. Returns the times at which
  /// connections were opened, and the waits of the calls.
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

  @Test func `a peer that closes after one answer gets a few connections in two seconds`() {
    let (openings, _) = churn(answers: 1, calls: 2_000, every: .milliseconds(1))
    #expect(openings.count <= 7, "\(openings.map(\.milliseconds))")
    #expect(openings.count >= 4)
  }

  @Test func `a peer that closes after one answer gets few connections, however long this lasts`() {
    let (openings, _) = churn(answers: 1, calls: 6_000, every: .milliseconds(100))
    let last = openings.filter { $0 > .seconds(480) }
    #expect(last.count <= 24, "a connection every 5 s at most: \(last.map(\.milliseconds))")
  }

  @Test func `lone calls ring at once over a peer that closes after one answer`() {
    let (_, waits) = churn(answers: 1, calls: 100, every: .seconds(20))
    #expect(waits.count == 100)
    #expect(waits.allSatisfy { $0 == .zero })
  }

  @Test func `calls every five seconds ring in time over a peer that closes after one answer`() {
    let (_, waits) = churn(answers: 1, calls: 200, every: .seconds(5))
    #expect(waits.allSatisfy { $0 <= .seconds(15) })
  }

  /// A peer that closes each connection that was idle for this time, with GOAWAY or without.
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
    /// A future event: the machine wakes, or the peer closes a connection unless it was used since.
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

  @Test(arguments: [false, true]) func `lone calls wait at most two seconds for a peer that closes idle connections`(
    goesAway: Bool
  ) {
    let (openings, waits) = idle(for: .seconds(2), goesAway: goesAway, calls: 300, every: .milliseconds(7_300))
    #expect(waits.count >= 299)
    #expect(waits.allSatisfy { $0 <= .seconds(2) }, "\(waits.max()?.milliseconds ?? 0)")
    // A connection lives two seconds, and the wait is one to two.
    #expect(openings <= 300 * 7_300 / 3_000)
  }

  @Test func `lone calls wait at most two seconds for a peer that closes soon after its answer`() {
    let (openings, waits) = idle(for: .milliseconds(900), goesAway: false, calls: 600, every: .seconds(1))
    #expect(waits.allSatisfy { $0 <= .seconds(2) }, "\(waits.max()?.milliseconds ?? 0)")
    // A connection lives about one second, and the wait is one to two.
    #expect(openings <= 600 / 2 + 12)
  }

  @Test func `a connection that its peer closes after a hundred answers is replaced at once`() {
    let (openings, waits) = churn(answers: 100, calls: 2_000, every: .milliseconds(1))
    #expect(openings.count == 21)
    #expect(waits.allSatisfy { $0 == .zero })
  }

  @Test func `connections that end together count once`() {
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
