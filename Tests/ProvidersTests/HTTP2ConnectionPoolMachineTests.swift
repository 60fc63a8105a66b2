// Tests of the pool's decisions: events and the resulting actions.

import Runtime
import Testing

@testable import Providers

/// Passes events to a machine, and sets its clock.
struct MachineDriver {
  var machine: HTTP2ConnectionPoolMachine
  var now = Instant(nanoseconds: 1_000_000_000_000)

  init(_ change: (inout HTTP2ConnectionPoolSettings) -> Void = { _ in }) {
    var settings = HTTP2ConnectionPoolSettings()
    change(&settings)
    machine = HTTP2ConnectionPoolMachine(settings: settings, seed: 1)
  }

  mutating func feed(_ event: HTTP2ConnectionPoolMachine.Event) -> [HTTP2ConnectionPoolMachine.Action] {
    var actions: [HTTP2ConnectionPoolMachine.Action] = []
    machine.handle(event, now: now, &actions)
    return actions
  }

  mutating func submit(
    _ request: Int, within time: Nanoseconds = .seconds(60), avoiding avoided: Int? = nil, isRepeat: Bool = false
  ) -> [HTTP2ConnectionPoolMachine.Action] {
    feed(.submitted(request, deadline: now + time, avoiding: avoided, isRepeat: isRepeat))
  }

  /// A started pool with connection 0, which is ready and proven.
  mutating func connect(streamsMax: Int) {
    _ = feed(.started)
    _ = feed(.limited(0, streamsMax: streamsMax))
  }
}

/// Wake-ups matter only in the tests of wake-ups.
func withoutWakes(_ actions: [HTTP2ConnectionPoolMachine.Action]) -> [HTTP2ConnectionPoolMachine.Action] {
  actions.filter { if case .wake = $0 { false } else { true } }
}

@Suite(.timeLimit(.minutes(10))) struct HTTP2ConnectionPoolMachineTests {
  @Test func `a start opens one connection`() {
    var pool = MachineDriver()
    #expect(pool.feed(.started) == [.open(0)])
    #expect(pool.feed(.limited(0, streamsMax: 100)) == [.reportCapacity(100)])
  }

  @Test func `requests before the start wait for it`() {
    var pool = MachineDriver()
    #expect(withoutWakes(pool.submit(0)) == [])
    #expect(withoutWakes(pool.feed(.started)) == [.open(0)])
    #expect(pool.feed(.limited(0, streamsMax: 1)).contains(.dispatch(0, 0)))
  }

  @Test func `a request is sent on the connection with the most room`() {
    var pool = MachineDriver { $0.connectionsMax = 2 }
    pool.connect(streamsMax: 4)
    #expect(withoutWakes(pool.submit(0)) == [.dispatch(0, 0)])
    for request in 1...2 { _ = pool.submit(request) }
    #expect(withoutWakes(pool.submit(3)) == [.dispatch(3, 0), .open(1)])
    #expect(withoutWakes(pool.feed(.limited(1, streamsMax: 4))) == [.reportCapacity(8)])
    #expect(withoutWakes(pool.submit(4)) == [.dispatch(4, 1)])
  }

  @Test func `at most as many requests are in flight as the server allows, also after its limit falls`() {
    var pool = MachineDriver { $0.connectionsMax = 1 }
    pool.connect(streamsMax: 2)
    _ = pool.submit(0)
    _ = pool.submit(1)
    #expect(withoutWakes(pool.submit(2)) == [])
    #expect(withoutWakes(pool.feed(.limited(0, streamsMax: 1))) == [.reportCapacity(1)])
    #expect(withoutWakes(pool.feed(.answered(0, 0, .done))) == [])
    #expect(withoutWakes(pool.feed(.answered(1, 0, .done))) == [.dispatch(2, 0)])
  }

  @Test func `a probing pool uses one stream until the first authorised answer`() {
    var pool = MachineDriver {
      $0.probes = true
      $0.connectionsMax = 1
    }
    _ = pool.feed(.started)
    #expect(pool.feed(.limited(0, streamsMax: 1000)) == [.reportCapacity(1)])
    #expect(withoutWakes(pool.submit(0)) == [.dispatch(0, 0)])
    #expect(withoutWakes(pool.submit(1)) == [])
    // After an answer that proves nothing about our credentials there is still one stream.
    #expect(withoutWakes(pool.feed(.answered(0, 0, .init(.unproven)))) == [.dispatch(1, 0)])
    _ = pool.submit(2)
    _ = pool.submit(3)
    #expect(
      withoutWakes(pool.feed(.answered(1, 0, .done))) == [.dispatch(2, 0), .dispatch(3, 0), .reportCapacity(1000)])
  }

  @Test func `first tries come before repeats, and only they get connections while streams are taken`() {
    var pool = MachineDriver {
      $0.probes = true
      $0.connectionsMax = 1
      $0.replacementsMax = 0
    }
    pool.connect(streamsMax: 100)
    #expect(withoutWakes(pool.submit(0)) == [.dispatch(0, 0)])
    #expect(withoutWakes(pool.submit(1, isRepeat: true)) == [])
    #expect(withoutWakes(pool.pass(.seconds(1))) == [], "a repeat gets no connection of its own")
    #expect(withoutWakes(pool.submit(2)) == [.open(1)])
    #expect(withoutWakes(pool.submit(3)) == [])
    #expect(withoutWakes(pool.feed(.limited(1, streamsMax: 100))) == [.dispatch(2, 1), .reportCapacity(2)])
    #expect(withoutWakes(pool.feed(.answered(2, 1, .init(.unproven)))) == [.dispatch(3, 1)])
    #expect(withoutWakes(pool.feed(.withdrawn([3]))) == [])
    #expect(withoutWakes(pool.pass(.seconds(1))) == [.refuse(1, reason: "NoConnection")], "as long as others")
  }

  @Test func `a line is left in its order, also if some leave it early`() {
    var line = WaitingLine<Int>()
    for element in [1, 2, 3, 4] { line.append(element) }
    line.appendLast(8)
    line.appendLast(9)
    line.append(5)
    #expect(line.popFirst() == 1)
    line.prepend(1)
    line.prepend(0)
    #expect(line.remove { $0 % 4 == 0 } == [0, 4, 8])
    #expect(line.count == 5 && line.hasFirst)
    let left = (0..<4).map { _ in line.popFirst() }
    #expect(left == [1, 2, 3, 5] && !line.hasFirst && line.first == 9)
    #expect(line.popFirst() == 9 && line.popFirst() == nil && line.isEmpty)
  }

  @Test func `GOAWAY opens another connection, and refused requests are sent there first`() {
    var pool = MachineDriver { $0.connectionsMax = 1 }
    pool.connect(streamsMax: 2)
    for request in 0...2 { _ = pool.submit(request) }
    #expect(withoutWakes(pool.feed(.goingAway(0))) == [.open(1), .reportCapacity(0)])
    #expect(withoutWakes(pool.feed(.refused(1, 0))) == [])
    #expect(
      withoutWakes(pool.feed(.limited(1, streamsMax: 100))) == [.dispatch(1, 1), .dispatch(2, 1), .reportCapacity(100)])
    // The old connection finishes request 0 and closes; no other is opened in its place.
    #expect(withoutWakes(pool.feed(.answered(0, 0, .done))) == [])
    #expect(withoutWakes(pool.feed(.closed(0))) == [])
  }

  @Test func `a connection that refuses a stream without GOAWAY is not used for a moment`() {
    var pool = MachineDriver { $0.connectionsMax = 1 }
    pool.connect(streamsMax: 10)
    _ = pool.submit(0)
    let actions = pool.feed(.refused(0, 0))
    #expect(withoutWakes(actions) == [])
    #expect(actions.contains(.wake(pool.now + .milliseconds(100))))
    pool.now = pool.now + .milliseconds(100)
    #expect(withoutWakes(pool.feed(.woken)) == [.dispatch(0, 0)])
  }

  @Test func `a request that was withdrawn in flight is not sent again`() {
    var pool = MachineDriver { $0.connectionsMax = 1 }
    pool.connect(streamsMax: 10)
    for request in 0...2 { _ = pool.submit(request) }
    #expect(withoutWakes(pool.feed(.withdrawn([0, 1, 9]))) == [])
    #expect(
      withoutWakes(pool.feed(.answered(0, 0, .init(.proven, resends: true)))) == [.refuse(0, reason: "Withdrawn")])
    #expect(withoutWakes(pool.feed(.answered(2, 0, .init(.proven, resends: true)))) == [.dispatch(2, 0)])
    #expect(withoutWakes(pool.feed(.refused(1, 0))) == [.refuse(1, reason: "Withdrawn")])
    // Its number is free for another request.
    pool.now = pool.now + .milliseconds(100)
    #expect(withoutWakes(pool.submit(1)) == [.dispatch(1, 0)])
    #expect(withoutWakes(pool.feed(.answered(1, 0, .init(.proven, resends: true)))) == [.dispatch(1, 0)])
  }

  @Test func `a request that every connection refuses is reported as refused before its deadline`() {
    var pool = MachineDriver()
    _ = pool.feed(.started)
    _ = pool.submit(0)
    #expect(withoutWakes(pool.pass(.milliseconds(1_999))) == [.open(1)])
    #expect(withoutWakes(pool.pass(.milliseconds(1))) == [.refuse(0, reason: "NoConnection")])
  }

  @Test func `a request expires at its deadline and is never sent after it`() {
    var pool = MachineDriver { $0.connectionsMax = 1 }
    pool.connect(streamsMax: 1)
    _ = pool.submit(0)
    #expect(pool.submit(1, within: .milliseconds(500)) == [.wake(pool.now + .milliseconds(500))])
    pool.now = pool.now + .milliseconds(500)
    #expect(withoutWakes(pool.feed(.answered(0, 0, .done))) == [.expire(1)])
    #expect(pool.submit(2, within: .zero) == [.expire(2)])
    // The server refuses it after its deadline.
    _ = pool.submit(3, within: .milliseconds(1))
    pool.now = pool.now + .milliseconds(1)
    #expect(withoutWakes(pool.feed(.refused(3, 0))) == [.expire(3)])
  }

  @Test func `a full queue refuses requests`() {
    var pool = MachineDriver { $0.waitingMax = 2 }
    _ = pool.feed(.started)
    _ = pool.submit(0)
    _ = pool.submit(1)
    #expect(withoutWakes(pool.submit(2)) == [.refuse(2, reason: "TooManyWaiting")])
  }

  @Test(arguments: [true, false])
  func `the waits after failures grow, and after connections that were never ready to a second`(wasReady: Bool) {
    var pool = MachineDriver()
    #expect(pool.feed(.started) == [.open(0)])
    var waits: [Int64] = []
    for id in 0..<8 {
      if wasReady { _ = pool.feed(.limited(id, streamsMax: 10)) }
      let wakes = pool.feed(.closed(id)).compactMap { if case .wake(let instant) = $0 { instant } else { nil } }
      guard let instant = wakes.last else { break }
      waits.append((instant - pool.now).milliseconds)
      pool.now = instant - Nanoseconds(1)
      #expect(pool.feed(.woken).contains(.open(id + 1)) == false)
      pool.now = instant
      #expect(pool.feed(.woken) == [.open(id + 1)])
    }
    let bounds: [ClosedRange<Int64>] = [
      125...250, 250...500, 500...1000, 1000...2000, 2000...4000, 4000...8000, 7500...15000, 7500...15000,
    ]
    #expect(waits.count == bounds.count)
    for (wait, bound) in zip(waits, bounds) {
      #expect((wasReady || bound.upperBound <= 1000 ? bound : 500...1000).contains(wait))
    }
    // An answer resets the count of failures.
    _ = pool.feed(.limited(8, streamsMax: 10))
    _ = pool.submit(0)
    _ = pool.feed(.answered(0, 8, .done))
    #expect(pool.feed(.closed(8)).contains(.open(9)))
  }

  @Test
  func `if connections are lost with a request, the next call waits for at most half a second`() {
    var pool = MachineDriver()
    #expect(pool.feed(.started) == [.open(0)])
    var waits: [Int64] = []
    for id in 0..<20 {
      _ = pool.feed(.limited(id, streamsMax: 10))
      _ = pool.submit(0)
      if id % 2 == 1 { _ = pool.feed(.answered(0, id, .done)) }
      if id % 2 == 1 { _ = pool.submit(0) }
      _ = pool.feed(.failed(0, id, isLost: false))
      let actions = pool.feed(.closed(id))
      if actions.contains(.open(id + 1)) { continue }
      guard let instant = actions.compactMap({ if case .wake(let at) = $0 { at } else { nil } }).last else { break }
      waits.append((instant - pool.now).milliseconds)
      pool.now = instant
      #expect(pool.feed(.woken) == [.open(id + 1)])
    }
    #expect(waits.count > 15)
    #expect(waits.max() ?? 0 <= 500)
    #expect(waits.suffix(5).min() ?? 0 >= 250, "but it does wait")
  }

  @Test func `a connection that was open for long is replaced at once, even if it never answered`() {
    var pool = MachineDriver()
    pool.connect(streamsMax: 10)
    pool.now = pool.now + .seconds(10)
    #expect(withoutWakes(pool.feed(.closed(0))) == [.open(1), .reportCapacity(0)])
  }

  @Test func `a server that sends GOAWAY at once is retried with growing waits`() {
    var pool = MachineDriver()
    pool.connect(streamsMax: 10)
    #expect(pool.feed(.goingAway(0)) == [.open(1), .reportCapacity(0)])
    _ = pool.feed(.closed(0))
    #expect(!pool.feed(.closed(1)).contains(.open(2)))
  }

  @Test func `a worn connection is drained, and its request is sent on another`() {
    var pool = MachineDriver()
    pool.connect(streamsMax: 10)
    _ = pool.submit(0)
    _ = pool.feed(.answered(0, 0, .done))
    _ = pool.submit(0)
    _ = pool.submit(1)
    #expect(
      withoutWakes(pool.feed(.answered(0, 0, .init(.worn, resends: true))))
        == [.drain(0), .open(1), .reportCapacity(0)])
    #expect(withoutWakes(pool.feed(.answered(1, 0, .init(.worn, resends: true)))) == [])
    #expect(withoutWakes(pool.feed(.limited(1, streamsMax: 10))).prefix(2) == [.dispatch(1, 1), .dispatch(0, 1)])
  }

  @Test func `connections that are worn before their first authorised answer are replaced with pauses`() {
    var pool = MachineDriver { $0.probes = true }
    pool.connect(streamsMax: 10)
    _ = pool.submit(0)
    let actions = pool.feed(.answered(0, 0, .init(.worn, resends: true)))
    #expect(withoutWakes(actions) == [.drain(0), .reportCapacity(0)])
    #expect(actions.contains { if case .wake(let at) = $0 { at < pool.now + .milliseconds(251) } else { false } })
  }

  @Test func `a paused pool sends nothing`() {
    var pool = MachineDriver()
    pool.connect(streamsMax: 10)
    #expect(pool.feed(.paused) == [.reportCapacity(0)])
    #expect(withoutWakes(pool.submit(0)) == [])
    #expect(withoutWakes(pool.feed(.resumed)) == [.dispatch(0, 0), .reportCapacity(10)])
  }

  @Test func `a shutdown refuses waiting requests and finishes those in flight`() {
    var pool = MachineDriver { $0.connectionsMax = 1 }
    pool.connect(streamsMax: 1)
    _ = pool.submit(0)
    _ = pool.submit(1)
    #expect(
      withoutWakes(pool.feed(.shutDown)) == [.refuse(1, reason: "ShuttingDown"), .drain(0), .reportCapacity(0)])
    #expect(withoutWakes(pool.submit(2)) == [.refuse(2, reason: "ShuttingDown")])
    #expect(withoutWakes(pool.feed(.answered(0, 0, .done))) == [])
    #expect(withoutWakes(pool.feed(.closed(0))) == [.finish])
  }

  @Test func `the shutdown deadline closes the connections that are still open`() {
    var pool = MachineDriver { $0.connectionsMax = 1 }
    pool.connect(streamsMax: 1)
    _ = pool.submit(0)
    _ = pool.feed(.shutDown)
    #expect(withoutWakes(pool.feed(.shutDownDeadline)) == [.close(0)])
    _ = pool.feed(.failed(0, 0, isLost: false))
    #expect(withoutWakes(pool.feed(.closed(0))) == [.finish])
  }

  @Test func `a pool without connections shuts down at once`() {
    var pool = MachineDriver()
    #expect(pool.feed(.shutDown) == [.finish])
  }

  @Test func `a request uses another connection than the one it avoids, if another has room`() {
    var pool = MachineDriver { $0.connectionsMax = 2 }
    pool.connect(streamsMax: 4)
    for request in 0...3 { _ = pool.submit(request) }
    _ = pool.feed(.limited(1, streamsMax: 2))
    for request in 0...3 { _ = pool.feed(.answered(request, 0, .done)) }
    #expect(withoutWakes(pool.submit(4)) == [.dispatch(4, 0)])
    #expect(withoutWakes(pool.submit(5, avoiding: 0)) == [.dispatch(5, 1)])
    #expect(withoutWakes(pool.submit(6, avoiding: 0)) == [.dispatch(6, 1)])
    // The other connection is full, and the request does not wait for it.
    #expect(withoutWakes(pool.submit(7, avoiding: 0)) == [.dispatch(7, 0)])
    // After the refusal the request still avoids this connection.
    _ = pool.feed(.answered(5, 1, .done))
    #expect(withoutWakes(pool.feed(.refused(7, 0))) == [.dispatch(7, 1)])
  }

  @Test func `a request that must use the connection it avoids causes another one to be opened`() {
    var pool = MachineDriver { $0.connectionsMax = 2 }
    pool.connect(streamsMax: 100)
    #expect(withoutWakes(pool.submit(0, avoiding: 0)) == [.dispatch(0, 0), .open(1)])
    #expect(withoutWakes(pool.submit(1, avoiding: 0)) == [.dispatch(1, 0)])
    _ = pool.feed(.limited(1, streamsMax: 100))
    #expect(withoutWakes(pool.submit(2, avoiding: 0)) == [.dispatch(2, 1)])
  }

  @Test func `a long queue keeps its order`() {
    var pool = MachineDriver {
      $0.connectionsMax = 1
      $0.waitingMax = 10_000
    }
    pool.connect(streamsMax: 1)
    for request in 0..<5000 { _ = pool.submit(request) }
    var order: [Int] = []
    for request in 0..<5000 {
      for case .dispatch(let next, _) in pool.feed(.answered(request, 0, .done)) { order.append(next) }
    }
    #expect(order == Array(1..<5000))
    #expect(pool.machine.waitingCount == 0)
  }

  @Test func `the backoff has the values of the table in its comment`() {
    let backoff = ReconnectBackoff()
    func range(_ failures: Int) -> [Int64] {
      let ceiling = backoff.delay(afterFailures: failures, random: 0).milliseconds
      let floor = (1...10_000).map { random in
        backoff.delay(afterFailures: failures, random: UInt64(random) &* 0x9E37_79B9_7F4A_7C15).milliseconds
      }.min()!
      return [floor, ceiling]
    }
    let ceilings: [Int64] = [0, 250, 500, 1000, 2000, 4000, 8000, 15_000, 15_000]
    for (failures, ceiling) in ceilings.enumerated() {
      let (floor, found) = (range(failures)[0], range(failures)[1])
      #expect(found == ceiling)
      #expect(floor >= ceiling / 2 && floor <= ceiling * 51 / 100 + 1)
    }
    #expect(backoff.delay(afterFailures: .max, random: 0) == .seconds(15))
  }
}
