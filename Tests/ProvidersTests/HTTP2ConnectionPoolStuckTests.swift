// Tests in virtual time of a pool whose connections have all lost their servers: they answer PINGs but no requests.

import Runtime
import Testing

@testable import Providers

@Suite("Pool: all connections are unresponsive", .timeLimit(.minutes(10))) struct HTTP2ConnectionPoolStuckTests {
  // MARK: - Decisions

  /// One configured connection, proven, and its replacement. Each has a request in flight and is unanswered.
  private func stuck(_ change: (inout HTTP2ConnectionPoolSettings) -> Void = { _ in }) -> MachineDriver {
    var pool = MachineDriver {
      $0.connectionsMax = 1
      change(&$0)
    }
    pool.connect(streamsMax: 10)
    _ = pool.submit(0)
    _ = pool.feed(.answered(0, 0, .done))
    pool.now = pool.now + .seconds(3600)
    _ = pool.submit(0)
    _ = pool.feed(.healthChanged(0, .unanswered))
    _ = pool.feed(.limited(1, streamsMax: 10))
    _ = pool.submit(1)
    _ = pool.feed(.healthChanged(1, .unanswered))
    return pool
  }

  @Test func `an unresponsive connection makes place for another, and its requests go on`() {
    var pool = stuck()
    #expect(withoutWakes(pool.feed(.healthChanged(0, .unresponsive))) == [.drain(0), .open(2), .reportCapacity(1)])
    #expect(withoutWakes(pool.submit(2)) == [], "it waits for the new connection")
    #expect(pool.feed(.limited(2, streamsMax: 10)).contains(.dispatch(2, 2)))
  }

  @Test func `the next makes place 1.75 s later`() {
    var pool = stuck()
    _ = pool.feed(.healthChanged(0, .unresponsive))
    let next = pool.now + .milliseconds(1750)
    _ = pool.feed(.limited(2, streamsMax: 10))
    _ = pool.submit(2)
    pool.now = pool.now + .seconds(1)
    _ = pool.feed(.healthChanged(2, .unanswered))
    #expect(pool.feed(.healthChanged(1, .unresponsive)) == [.wake(next)])
    #expect(withoutWakes(pool.pass(.milliseconds(749))) == [])
    #expect(withoutWakes(pool.pass(.milliseconds(1))) == [.drain(1), .open(3), .reportCapacity(1)])
  }

  @Test func `none makes place while a connection is usable or being opened`() {
    var pool = stuck()
    _ = pool.feed(.healthChanged(0, .unresponsive))
    #expect(withoutWakes(pool.feed(.healthChanged(1, .unresponsive))) == [], "2 is being opened")
    #expect(!pool.pass(.seconds(5)).contains(.drain(1)), "2 is being opened")
    #expect(!pool.feed(.limited(2, streamsMax: 10)).contains(.drain(1)), "2 is usable")
  }

  @Test func `a connection that never worked makes place before one that did`() {
    var pool = stuck {
      $0.connectionsMax = 2
      $0.probes = true
    }
    _ = pool.feed(.limited(2, streamsMax: 10))
    _ = pool.submit(2)
    _ = pool.feed(.healthChanged(2, .unanswered))
    #expect(pool.feed(.healthChanged(1, .unresponsive)).contains(.drain(1)))
    _ = pool.feed(.limited(3, streamsMax: 10))
    _ = pool.submit(3)
    for connection in [3, 0, 2] { _ = pool.feed(.healthChanged(connection, .unresponsive)) }
    #expect(pool.pass(.milliseconds(1750)).contains(.drain(2)), "0 has worked")
  }

  @Test func `what waits for the only stream of the last new connection tests another after 300 ms`() {
    var pool = MachineDriver {
      $0.connectionsMax = 1
      $0.probes = true
    }
    pool.connect(streamsMax: 10)
    _ = pool.submit(0)
    _ = pool.feed(.answered(0, 0, .done))
    pool.now = pool.now + .seconds(3600)
    _ = pool.submit(0)
    _ = pool.feed(.healthChanged(0, .unanswered))
    _ = pool.feed(.limited(1, streamsMax: 1))
    _ = pool.submit(1)
    _ = pool.pass(.milliseconds(300))
    #expect(withoutWakes(pool.submit(2)) == [.open(2)])
    #expect(pool.feed(.limited(2, streamsMax: 1)).contains(.dispatch(2, 2)))
    #expect(withoutWakes(pool.submit(3)) == [])
    #expect(withoutWakes(pool.pass(.milliseconds(299))) == [])
    #expect(withoutWakes(pool.pass(.milliseconds(1))) == [.open(3)])
    #expect(pool.feed(.limited(3, streamsMax: 1)).contains(.dispatch(3, 3)))
    #expect(withoutWakes(pool.submit(4)) == [])
    #expect(withoutWakes(pool.pass(.milliseconds(299))) == [])
    #expect(withoutWakes(pool.pass(.milliseconds(1))) == [.dispatch(4, 0)])
  }

  @Test func `a connection makes place for one that a hedge waits for`() {
    var pool = stuck()
    #expect(withoutWakes(pool.feed(.hedged(7, of: 0, deadline: .distantFuture))) == [])
    _ = pool.pass(.seconds(3))
    #expect(pool.feed(.healthChanged(0, .unresponsive)).contains(.open(2)))
    #expect(pool.feed(.limited(2, streamsMax: 10)).contains(.dispatch(7, 2)))
  }

  // MARK: - Outages

  /// A provider whose connections lose their servers, and calls that arrive regularly. A call that gets no answer is sent again
  /// after its time-out, or when its connection is closed.
  private struct Outage {
    private struct Link {
      let isPinned: Bool
      let readyAt: Instant
      var isReady = false
      var isDraining = false
      var health = HTTP2ConnectionHealth.sound
      var silentSince: Instant?
      var inFlight: [Int: Instant] = [:]
    }

    private static let step = Nanoseconds.milliseconds(50)

    private var pool: MachineDriver
    private let start: Instant
    /// Connections opened before this time never answer a request. Later ones answer each at once.
    private let wellAt: Instant
    /// Streams of a connection that has not answered.
    private let streamsMax: Int
    private var links: [Int: Link] = [:]
    private var queue: [HTTP2ConnectionPoolMachine.Action] = []
    private var again: [Int] = []
    /// The hedges, and the requests that have one.
    private var hedges: Set<Int> = []
    private var hedged: Set<Int> = []
    private let hedgeDelay: Nanoseconds?
    private var wakeAt = Instant.distantFuture
    private var nextRequest = 0
    private(set) var openings: [Nanoseconds] = []
    /// When the first call rang, from the end of the outage.
    private(set) var firstRing: Nanoseconds?

    init(lasting time: Nanoseconds, connections: Int, probes: Bool = false, hedgedAfter delay: Nanoseconds? = nil) {
      hedgeDelay = delay
      pool = MachineDriver {
        $0.connectionsMax = connections
        $0.probes = probes
      }
      streamsMax = probes ? 1 : 100
      start = pool.now
      wellAt = start + time
      queue = pool.feed(.started)
    }

    /// Runs until the first call rings, or for this time.
    mutating func run(callEvery interval: Nanoseconds, for time: Nanoseconds = .seconds(90)) {
      var nextCall = start + .seconds(1)
      while pool.now < start + time, firstRing == nil {
        perform()
        pool.now = pool.now + Self.step
        if wakeAt <= pool.now {
          wakeAt = .distantFuture
          queue += pool.feed(.woken)
        }
        for id in links.keys.sorted() { advance(id) }
        if nextCall <= pool.now {
          nextCall = nextCall + interval
          submit()
        }
        for _ in 0..<again.count { submit() }
        again = []
      }
    }

    private mutating func submit() {
      queue += pool.submit(nextRequest)
      nextRequest += 1
    }

    private mutating func sendAgain(_ request: Int) {
      if !hedges.contains(request) { again.append(request) }
    }

    private mutating func perform() {
      while !queue.isEmpty {
        switch queue.removeFirst() {
        case .open(let id):
          openings.append(pool.now - start)
          links[id] = Link(isPinned: pool.now < wellAt, readyAt: pool.now + Self.step)
        case .dispatch(let request, let id):
          if links[id]?.isPinned == true {
            links[id]?.inFlight[request] = pool.now
            if links[id]?.silentSince == nil { links[id]?.silentSince = pool.now }
          } else {
            firstRing = firstRing ?? pool.now - wellAt
            queue += pool.feed(.answered(request, id, .done))
          }
        case .refuse(let request, _), .expire(let request): sendAgain(request)
        case .drain(let id): links[id]?.isDraining = true
        case .close(let id): close(id)
        case .wake(let at): wakeAt = min(wakeAt, at)
        case .reportCapacity, .finish: break
        }
      }
    }

    private mutating func close(_ id: Int) {
      for request in (links[id]?.inFlight.keys.sorted() ?? []) {
        queue += pool.feed(.failed(request, id, isLost: false))
        sendAgain(request)
      }
      links[id] = nil
      queue += pool.feed(.closed(id))
    }

    private mutating func advance(_ id: Int) {
      guard var link = links[id] else { return }
      if !link.isReady, link.readyAt <= pool.now {
        link.isReady = true
        links[id] = link
        queue += pool.feed(.limited(id, streamsMax: streamsMax))
      }
      for (request, sentAt) in link.inFlight.sorted(by: { $0.key < $1.key }) where sentAt + .seconds(10) <= pool.now {
        link.inFlight[request] = nil
        sendAgain(request)
        queue += pool.feed(.failed(request, id, isLost: true))
      }
      if let hedgeDelay {
        for (request, sentAt) in link.inFlight.sorted(by: { $0.key < $1.key })
        where sentAt + hedgeDelay <= pool.now && !hedges.contains(request) && hedged.insert(request).inserted {
          hedges.insert(nextRequest)
          queue += pool.feed(.hedged(nextRequest, of: request, deadline: pool.now + .seconds(60)))
          nextRequest += 1
        }
      }
      if link.inFlight.isEmpty { link.silentSince = nil }
      let silence = link.silentSince.map { pool.now - $0 } ?? .zero
      let health: HTTP2ConnectionHealth =
        silence >= .milliseconds(3500) ? .unresponsive : silence >= .milliseconds(1750) ? .unanswered : link.health
      let isNew = health != link.health && link.health != .unresponsive
      if isNew { link.health = health }
      links[id] = link
      if isNew { queue += pool.feed(.healthChanged(id, health)) }
      if links[id]?.isDraining == true, links[id]?.inFlight.isEmpty == true { close(id) }
    }
  }

  /// Lengths of outages that end at every moment between the time-outs of requests.
  static let lengths = stride(from: 6_000, through: 26_000, by: 3_100).map { Nanoseconds.milliseconds(Int64($0)) }

  /// The longest time from the end of an outage to the first ring, in milliseconds.
  private func longestWait(
    connections: Int, probes: Bool = false, callEvery interval: Nanoseconds, hedgedAfter delay: Nanoseconds? = nil
  ) throws -> Int64 {
    try Self.lengths.map { length in
      var outage = Outage(lasting: length, connections: connections, probes: probes, hedgedAfter: delay)
      outage.run(callEvery: interval)
      return try #require(outage.firstRing).milliseconds
    }.max() ?? 0
  }

  private static let intervals: [Nanoseconds] = [.milliseconds(700), .seconds(3)]

  // A call may be sent over a new connection just before the end, and the next connection may be opened 1.75 s later.

  @Test(arguments: intervals, [1, 2])
  func `with one stream until the first answer, calls ring soon after an outage`(
    interval: Nanoseconds, connections: Int
  ) throws {
    let wait = try longestWait(connections: connections, probes: true, callEvery: interval)
    #expect(wait <= 1_900 + interval.milliseconds)
    let hedged = try longestWait(
      connections: connections, probes: true, callEvery: interval, hedgedAfter: .milliseconds(500))
    #expect(hedged <= 1_900 + interval.milliseconds)
  }

  @Test(arguments: intervals, [1, 4])
  func `with many streams, calls ring soon after an outage`(interval: Nanoseconds, connections: Int) throws {
    let wait = try longestWait(connections: connections, callEvery: interval)
    #expect(wait <= 3_700 + interval.milliseconds)
    let hedged = try longestWait(connections: connections, callEvery: interval, hedgedAfter: .milliseconds(500))
    #expect(hedged <= 1_900 + interval.milliseconds)
  }

  @Test(arguments: [true, false])
  func `a provider that never answers gets a connection every 1.4 s at most`(probes: Bool) {
    var outage = Outage(lasting: .seconds(600), connections: 2, probes: probes)
    outage.run(callEvery: .milliseconds(500), for: .seconds(120))
    let openings = outage.openings.map(\.milliseconds)
    #expect(openings.count <= 85, "\(openings)")
  }
}
