// Which connections are evicted when a listener is full, without a socket.

import Logging
import NIOCore
import NIOEmbedded
import Runtime
import Synchronization
import TestSeed
import Testing

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

@testable import HTTPSurface
@testable import Settings

@Suite struct HTTPConnectionSeatsTests {
  private typealias Seat = HTTPConnectionSeats.Seat

  private func peer(_ number: Int) -> IPRange {
    IPAddress(high: 0, low: 10 << 24 + UInt64(number), isIPv6: false).network
  }

  private func seated(_ admission: HTTPConnectionSeats.Admission) throws -> (seat: Seat, evicted: Seat?) {
    guard case .seated(let seat, let evicted) = admission else { throw Unexpected() }
    return (seat, evicted)
  }

  private struct Unexpected: Error {}

  private final class SteppedClock: GatewayClock {
    private let time = Mutex(Instant(nanoseconds: 0))
    func now() -> Instant { time.withLock { $0 } }
    func wallMilliseconds() -> Int64 { 0 }
    func advance(_ duration: Nanoseconds) { time.withLock { $0 = $0 + duration } }
  }

  /// A log that counts its lines.
  private final class LogLines: Sendable {
    private struct Handler: LogHandler {
      let lines: LogLines
      var metadata: Logger.Metadata = [:]
      var logLevel = Logger.Level.trace
      subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
      }
      func log(event: LogEvent) { lines.kept.withLock { $0 += 1 } }
    }

    private let kept = Mutex(0)
    var count: Int { kept.withLock { $0 } }
    var logger: Logger { Logger(label: "test") { _ in Handler(lines: self) } }
  }

  @Test func `above the limit, the connection that has waited longest is evicted`() throws {
    var seats = HTTPConnectionSeats(max: 3)
    let old = try (0..<3).map { try seated(seats.admit(peer($0))).seat }
    #expect(try seated(seats.admit(peer(3))).evicted == old[0])
    #expect(try seated(seats.admit(peer(4))).evicted == old[1])
    #expect(seats.count == 3)
  }

  @Test
  func `a connection whose request was let in is never evicted, and if all have one, new connections are refused`()
    throws
  {
    var seats = HTTPConnectionSeats(max: 2)
    let old = try (0..<2).map { try seated(seats.admit(peer($0))).seat }
    seats.works(old[0])
    let (new, evicted) = try seated(seats.admit(peer(2)))
    #expect(evicted == old[1])
    seats.works(new)
    #expect(seats.admit(peer(3)) == .full)
    seats.waits(old[0])
    #expect(try seated(seats.admit(peer(3))).evicted == old[0])
  }

  @Test func `a client that floods from one address evicts its own connections`() throws {
    var seats = HTTPConnectionSeats(max: 100)
    let neighbour = try seated(seats.admit(peer(1))).seat
    var flood: [Seat] = []
    for _ in 0..<5_000 {
      let (seat, evicted) = try seated(seats.admit(peer(2)))
      #expect(evicted == nil || evicted == flood.first)
      if evicted != nil { flood.removeFirst() }
      flood.append(seat)
    }
    #expect(seats.count == 100)
    #expect(flood.count == 99 && !flood.contains(neighbour))
  }

  @Test
  func
    `connections with a successful answer outlast any number of connections without a request, from any number of addresses`()
    throws
  {
    var seats = HTTPConnectionSeats(max: 100)
    let used = try (0..<50).map { try seated(seats.admit(peer($0))).seat }
    for seat in used { seats.waits(seat) }
    var evicted: Set<Seat> = []
    for number in 0..<10_000 { try seated(seats.admit(peer(number + 100))).evicted.map { _ = evicted.insert($0) } }
    #expect(evicted.count == 9_950)
    #expect(evicted.isDisjoint(with: used))
  }

  @Test func `one answer on every connection does not keep newcomers out`() throws {
    var seats = HTTPConnectionSeats(max: 100)
    for number in 0..<100 {
      let seat = try seated(seats.admit(peer(number))).seat
      seats.works(seat)
      seats.waits(seat)
    }
    let newcomer = try seated(seats.admit(peer(1_000))).seat
    // Answered connections hold only half of the seats, so that many others arrive before the newcomer is evicted.
    for number in 0..<49 { #expect(try seated(seats.admit(peer(1_001 + number))).evicted != newcomer) }
    seats.works(newcomer)
    for number in 0..<1_000 { #expect(try seated(seats.admit(peer(2_000 + number))).evicted != newcomer) }
  }

  @Test func `if nearly all connections are at work, newcomers evict idle ones`() throws {
    var seats = HTTPConnectionSeats(max: 80)
    let old = try (0..<80).map { try seated(seats.admit(peer($0))).seat }
    for seat in old { seats.works(seat) }
    for seat in old.suffix(40) { seats.waits(seat) }
    // Ten newcomers, an eighth of the seats, evict idle connections before they evict each other.
    for number in 0..<10 { #expect(try seated(seats.admit(peer(100 + number))).evicted.map { $0 < 80 } == true) }
    #expect(try seated(seats.admit(peer(110))).evicted.map { $0 < 80 } == true)
    #expect(try seated(seats.admit(peer(111))).evicted == 80)
  }

  @Test
  func
    `a connection with a complete request outlasts any number without one, but not more complete requests than there are seats`()
    throws
  {
    var seats = HTTPConnectionSeats(max: 40)
    let probe = try seated(seats.admit(peer(1))).seat
    seats.asks(probe)
    for number in 0..<1_000 { #expect(try seated(seats.admit(peer(100 + number))).evicted != probe) }
    var evicted: Seat?
    for number in 0..<40 where evicted != probe {
      let (seat, gone) = try seated(seats.admit(peer(2_000 + number)))
      seats.asks(seat)
      evicted = gone
      #expect(gone != probe || number >= 34)
    }
    #expect(evicted == probe)
  }

  @Test func `a connection whose request was refused is a newcomer again`() throws {
    var seats = HTTPConnectionSeats(max: 8)
    let refused = try seated(seats.admit(peer(1))).seat
    seats.asks(refused)
    seats.isRefused(refused)
    var evicted: [Seat?] = []
    for number in 0..<16 { evicted.append(try seated(seats.admit(peer(100 + number))).evicted) }
    #expect(evicted.contains(refused))
  }

  @Test func `events of an evicted seat are ignored`() throws {
    var seats = HTTPConnectionSeats(max: 1)
    let gone = try seated(seats.admit(peer(1))).seat
    let (seat, evicted) = try seated(seats.admit(peer(2)))
    #expect(evicted == gone)
    seats.works(gone)
    seats.waits(gone)
    seats.leave(gone)
    #expect(seats.count == 1)
    #expect(try seated(seats.admit(peer(3))).evicted == seat)
  }

  @Test func `a model that compares every connection gives the same results`() throws {
    var random = TestSeed.generator(7)
    var order = FairOrder()
    var model: [(seat: Seat, peer: IPRange)] = []
    for seat in Seat(0)..<4_000 {
      if model.isEmpty || random.next() % 5 < 3 {
        let peer = peer(Int(random.next() % 6))
        order.append(seat, of: peer)
        model.append((seat, peer))
      } else {
        let isThere = order.remove(model.remove(at: Int(random.next() % UInt64(model.count))).seat)
        #expect(isThere)
      }
      #expect(order.count == model.count)
      guard let first = order.first else {
        #expect(model.isEmpty)
        continue
      }
      let counts = Dictionary(grouping: model) { $0.peer }.mapValues(\.count)
      let peer = try #require(model.first { $0.seat == first }?.peer)
      #expect(counts[peer] == counts.values.max())
      #expect(model.first { $0.peer == peer }?.seat == first)
    }
  }

  @Test func `a peer is an IPv4 address or an IPv6 network`() throws {
    func peer(_ address: String) throws -> IPRange {
      IPAddress(try NIOCore.SocketAddress(ipAddress: address, port: 1)).network
    }
    #expect(try peer("192.0.2.1") == peer("192.0.2.1"))
    #expect(try peer("192.0.2.1") != peer("192.0.2.2"))
    #expect(try peer("::ffff:192.0.2.1") == peer("192.0.2.1"))
    #expect(try peer("2001:db8:1:2::1") == peer("2001:db8:1:2:ffff::9"))
    #expect(try peer("2001:db8:1:2::1") != peer("2001:db8:1:3::1"))
  }

  // MARK: - The count

  @Test func `evicted connections are closed, and that is logged once a minute`() throws {
    let clock = SteppedClock()
    let lines = LogLines()
    let connections = HTTPConnectionCount(max: 1, listener: "api.listen", logger: lines.logger, clock: clock)
    let closed = Mutex<[Int]>([])
    func admit(_ number: Int) -> HTTPConnectionCount.Admission {
      connections.admit(peer(number)) { closed.withLock { $0.append(number) } }
    }
    let first = admit(0)
    #expect(closed.withLock { $0 } == [] && lines.count == 0)
    _ = admit(1)
    _ = admit(2)
    #expect(closed.withLock { $0 } == [0, 1] && lines.count == 1)
    connections.leave(first)
    clock.advance(.seconds(61))
    _ = admit(3)
    #expect(closed.withLock { $0 } == [0, 1, 2] && lines.count == 2)
  }

  @Test func `if all connections are at work, some new ones get a refusal, and further ones are closed at once`() throws
  {
    let connections = HTTPConnectionCount(max: 2)
    let served = try (0..<2).map { number in
      guard case .served(let seat) = connections.admit(peer(number), close: {}) else { throw Unexpected() }
      connections.works(seat)
      return HTTPConnectionCount.Admission.served(seat)
    }
    let others = (0..<HTTPConnectionCount.refusedMax + 1).map { connections.admit(peer($0), close: {}) }
    #expect(others.filter { $0 == .refused }.count == HTTPConnectionCount.refusedMax)
    #expect(others.last == .dropped)
    for admission in others + served { connections.leave(admission) }
    guard case .served = connections.admit(peer(0), close: {}) else { throw Unexpected() }
  }

  @Test(arguments: [1, 2, 128, 512, 100_000]) func `a listener accepts no more than it has descriptors for`(
    max: Int
  ) {
    let accepted = HTTPConnectionCount.acceptedMax(max)
    // At its last read below the limit, the listener may accept several connections.
    #expect(accepted - 1 + HTTPConnectionCount.acceptedAtOnce == max + HTTPConnectionCount.refusedMax)
    #expect(accepted > max)
  }

  // MARK: - The listener

  /// Counts the reads that reach the system.
  private final class ReadCounter: ChannelOutboundHandler {
    typealias OutboundIn = Never
    var count = 0
    func read(context: ChannelHandlerContext) { count += 1 }
  }

  @Test func `a listener without descriptors pauses, logs it once a minute, and continues`() throws {
    let lines = LogLines()
    let reads = ReadCounter()
    let channel = EmbeddedChannel()
    let pipeline = channel.pipeline.syncOperations
    try pipeline.addHandlers([reads, HTTPListenerGuard(listener: "http.listen", logger: lines.logger)])
    func fail(_ code: CInt) { channel.pipeline.fireErrorCaught(IOError(errnoCode: code, reason: "accept")) }

    channel.read()
    #expect(reads.count == 1)
    for round in 0..<2 {
      fail(EMFILE)
      fail(EMFILE)
      channel.read()
      #expect(reads.count == 1 + round && lines.count == 1)
      channel.embeddedEventLoop.advanceTime(by: HTTPListenerGuard.pause)
      channel.read()
      #expect(reads.count == 2 + round)
    }
    channel.embeddedEventLoop.advanceTime(by: .seconds(60))
    fail(ENFILE)
    #expect(lines.count == 2)
    channel.embeddedEventLoop.advanceTime(by: HTTPListenerGuard.pause)
    // A connection that was lost before it was accepted does not pause the listener.
    fail(ECONNABORTED)
    channel.read()
    #expect(reads.count == 4 && lines.count == 2)
    // No error reaches the end of the pipeline, where it would end the listener.
    try channel.throwIfErrorCaught()
    _ = try? channel.finish()
  }
}
