// Tests in virtual time of which connection a hedge uses.

import Runtime
import Testing

@testable import Providers

@Suite("Pool: hedges", .timeLimit(.minutes(10))) struct HTTP2ConnectionPoolHedgeTests {
  private let deadline = Instant.distantFuture

  /// One proven connection that received bytes an hour ago; request 0 is in flight on it.
  private func stalled(_ change: (inout HTTP2ConnectionPoolSettings) -> Void = { _ in }) -> MachineDriver {
    var pool = MachineDriver {
      $0.connectionsMax = 1
      change(&$0)
    }
    pool.connect(streamsMax: 10)
    _ = pool.submit(0)
    _ = pool.feed(.answered(0, 0, .done))
    pool.now = pool.now + .seconds(3600)
    _ = pool.submit(0)
    return pool
  }

  @Test func `with one configured connection, another one is opened for a hedge`() {
    var pool = stalled()
    #expect(withoutWakes(pool.feed(.hedged(7, of: 0, deadline: deadline))) == [.open(1)])
    #expect(
      withoutWakes(pool.feed(.limited(1, streamsMax: 10))) == [.dispatch(7, 1), .reportCapacity(20)])
    #expect(withoutWakes(pool.feed(.answered(7, 1, .done))) == [])
  }

  @Test func `the connection that was opened for a hedge stays for a minute`() {
    var pool = stalled()
    _ = pool.feed(.hedged(7, of: 0, deadline: deadline))
    _ = pool.feed(.limited(1, streamsMax: 10))
    _ = pool.feed(.answered(7, 1, .done))
    _ = pool.feed(.answered(0, 0, .done))
    #expect(withoutWakes(pool.pass(.seconds(59))) == [])
    #expect(withoutWakes(pool.pass(.seconds(1))).contains { $0 == .drain(0) || $0 == .drain(1) })
  }

  @Test func `a hedge uses the connection that received bytes last`() {
    var pool = MachineDriver { $0.connectionsMax = 3 }
    pool.connect(streamsMax: 1)
    _ = pool.submit(0)
    _ = pool.feed(.limited(1, streamsMax: 1))
    _ = pool.submit(1)
    _ = pool.feed(.limited(2, streamsMax: 1))
    pool.now = pool.now + .seconds(1)
    _ = pool.feed(.answered(1, 1, .done))
    #expect(withoutWakes(pool.feed(.hedged(7, of: 0, deadline: deadline))) == [.dispatch(7, 1)])
  }

  @Test func `a hedge uses no connection that was silent for long, and another one is opened`() {
    var pool = MachineDriver { $0.connectionsMax = 2 }
    pool.connect(streamsMax: 1)
    _ = pool.submit(0)
    _ = pool.feed(.limited(1, streamsMax: 1))
    _ = pool.feed(.answered(0, 0, .done))
    pool.now = pool.now + .seconds(3600)
    #expect(withoutWakes(pool.submit(0)) == [.dispatch(0, 0)])
    #expect(withoutWakes(pool.feed(.hedged(7, of: 0, deadline: deadline))) == [.open(2)])
    #expect(withoutWakes(pool.feed(.limited(2, streamsMax: 1))).contains(.dispatch(7, 2)))
  }

  @Test func `if no other can be opened, a hedge uses a connection that was silent for long`() {
    var pool = MachineDriver {
      $0.connectionsMax = 2
      $0.replacementsMax = 0
    }
    pool.connect(streamsMax: 1)
    _ = pool.submit(0)
    _ = pool.feed(.limited(1, streamsMax: 1))
    pool.now = pool.now + .seconds(3600)
    #expect(withoutWakes(pool.feed(.hedged(7, of: 0, deadline: deadline))) == [.dispatch(7, 1)])
  }

  @Test func `a hedge never uses the connection of its request`() {
    var pool = stalled { $0.replacementsMax = 0 }
    #expect(withoutWakes(pool.feed(.hedged(7, of: 0, deadline: deadline))) == [])
    #expect(withoutWakes(pool.pass(.seconds(9))) == [])
    #expect(withoutWakes(pool.feed(.failed(0, 0, isLost: false))) == [.refuse(7, reason: "NotHedged")])
  }

  @Test func `a hedge waits for a connection as long as its request is in flight`() {
    var pool = stalled { $0.replacementsMax = 0 }
    _ = pool.feed(.hedged(7, of: 0, deadline: deadline))
    _ = pool.pass(.seconds(9))
    _ = pool.feed(.closed(0))  // its request has not ended yet
    #expect(pool.feed(.limited(1, streamsMax: 10)).contains(.dispatch(7, 1)))
  }

  @Test func `a hedge waits until its deadline at the latest`() {
    var pool = stalled { $0.replacementsMax = 0 }
    _ = pool.feed(.hedged(7, of: 0, deadline: pool.now + .seconds(5)))
    #expect(withoutWakes(pool.pass(.milliseconds(4999))) == [])
    #expect(withoutWakes(pool.pass(.milliseconds(1))) == [.expire(7)])
  }

  @Test func `a hedge that waits when its request is refused is not sent`() {
    var pool = stalled { $0.replacementsMax = 0 }
    _ = pool.feed(.hedged(7, of: 0, deadline: deadline))
    #expect(withoutWakes(pool.feed(.refused(0, 0))) == [.refuse(7, reason: "NotHedged")])
    #expect(withoutWakes(pool.pass(.milliseconds(100))) == [.dispatch(0, 0)])
  }

  @Test func `a hedge does not delay waiting requests`() {
    var pool = stalled { $0.replacementsMax = 0 }
    _ = pool.feed(.hedged(7, of: 0, deadline: deadline))
    #expect(withoutWakes(pool.submit(1)) == [.dispatch(1, 0)])
  }

  /// Two connections with room; request 0 is on the first, and its hedge 7 was answered by the second.
  private func overtaken() -> MachineDriver {
    var pool = stalled()
    _ = pool.feed(.hedged(7, of: 0, deadline: deadline))
    _ = pool.feed(.limited(1, streamsMax: 10))
    _ = pool.feed(.overtaken(0))
    _ = pool.feed(.answered(7, 1, .done))
    return pool
  }

  @Test func `an overtaken connection gets no new requests while there is another`() {
    var pool = overtaken()
    #expect((1...9).map { withoutWakes(pool.submit($0)).first } == (1...9).map { .dispatch($0, 1) })
  }

  @Test func `an overtaken connection that answers after all is used like any other`() {
    var pool = overtaken()
    _ = pool.feed(.answered(0, 0, .done))
    #expect((1...2).map { withoutWakes(pool.submit($0)).first } == [.dispatch(1, 0), .dispatch(2, 1)])
  }

  @Test func `an overtaken connection that never answers is replaced`() {
    var pool = overtaken()
    #expect(withoutWakes(pool.feed(.failed(0, 0, isLost: false))).contains(.drain(0)))
  }

  @Test func `simultaneous hedges wait for the probe of the new connection`() {
    var pool = stalled { $0.probes = true }
    _ = pool.submit(1)
    _ = pool.feed(.hedged(7, of: 0, deadline: deadline))
    _ = pool.feed(.hedged(8, of: 1, deadline: deadline))
    #expect(withoutWakes(pool.feed(.limited(1, streamsMax: 10))) == [.dispatch(7, 1), .reportCapacity(11)])
    #expect(withoutWakes(pool.feed(.answered(7, 1, .done))) == [.dispatch(8, 1), .reportCapacity(20)])
  }

  @Test func `a hedge that its connection refuses is not sent again`() {
    var pool = stalled()
    _ = pool.feed(.hedged(7, of: 0, deadline: deadline))
    _ = pool.feed(.limited(1, streamsMax: 10))
    #expect(withoutWakes(pool.feed(.refused(7, 1))).contains(.refuse(7, reason: "NotHedged")))
  }

  @Test func `a request without a connection or past its deadline is not hedged`() {
    var pool = MachineDriver { $0.connectionsMax = 1 }
    _ = pool.submit(0)
    #expect(withoutWakes(pool.feed(.hedged(7, of: 0, deadline: deadline))) == [.refuse(7, reason: "NotHedged")])
    pool.connect(streamsMax: 1)
    #expect(withoutWakes(pool.feed(.hedged(8, of: 0, deadline: pool.now))) == [.refuse(8, reason: "NotHedged")])
  }

  @Test func `a waiting hedge can be withdrawn like any request, and ends with the pool`() {
    var pool = stalled()
    _ = pool.feed(.hedged(7, of: 0, deadline: deadline))
    #expect(withoutWakes(pool.feed(.withdrawn([7]))) == [.refuse(7, reason: "Withdrawn")])
    _ = pool.feed(.hedged(8, of: 0, deadline: deadline))
    #expect(withoutWakes(pool.feed(.shutDown)).contains(.refuse(8, reason: "ShuttingDown")))
  }

  @Test func `nothing is hedged while there are no credentials`() {
    var pool = stalled()
    _ = pool.feed(.paused)
    _ = pool.feed(.hedged(7, of: 0, deadline: deadline))
    #expect(!pool.feed(.limited(1, streamsMax: 10)).contains(.dispatch(7, 1)))
    #expect(withoutWakes(pool.feed(.resumed)).contains(.dispatch(7, 1)))
  }
}
