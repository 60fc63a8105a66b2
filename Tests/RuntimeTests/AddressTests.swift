// Tests of the order in which addresses of a host are tried, and of resolving names.

import Dispatch
import HTTP2TestSupport
import Synchronization
import Testing

@testable import Runtime

/// A race in virtual time between addresses with given behaviours.
private struct Track {
  enum Address {
    /// No SYN is answered.
    case dead
    case refuses(after: Nanoseconds)
    /// TCP answers, TLS does not.
    case mute(after: Nanoseconds)
    /// TCP answers, TLS fails.
    case untrusted(after: Nanoseconds)
    case good(reached: Nanoseconds, open: Nanoseconds)
  }

  var attempts: [Int] = []
  var attemptedAt: [Nanoseconds] = []
  var abandoned: [Int] = []
  var timedOut: [Int] = []
  var winner: Int??
  var finishedAt = Nanoseconds.zero

  init(_ addresses: [Address], _ settings: AddressRace.Settings = AddressRace.Settings()) {
    var race = AddressRace(count: addresses.count, settings: settings)
    let start = Instant(nanoseconds: 1_000_000_000)
    var agenda: [(at: Instant, order: Int, event: AddressRace.Event)] = [(start, 0, .started)]
    var order = 0
    while winner == nil, let next = agenda.min(by: { ($0.at, $0.order) < ($1.at, $1.order) }) {
      agenda.removeAll { $0.order == next.order }
      var actions: [AddressRace.Action] = []
      race.handle(next.event, now: next.at, &actions)
      func plan(_ delay: Nanoseconds, _ event: AddressRace.Event) {
        order += 1
        agenda.append((next.at + delay, order, event))
      }
      for action in actions {
        switch action {
        case .attempt(let place):
          attempts.append(place)
          attemptedAt.append(next.at - start)
          switch addresses[place] {
          case .dead: break
          case .refuses(let after): plan(after, .failed(place))
          case .mute(let after): plan(after, .reached(place))
          case .untrusted(let after):
            plan(after, .reached(place))
            plan(after + .milliseconds(20), .failed(place))
          case .good(let reached, let open):
            plan(reached, .reached(place))
            plan(open, .opened(place))
          }
        case .abandon(let place):
          abandoned.append(place)
          agenda.removeAll { [.reached(place), .opened(place), .failed(place)].contains($0.event) }
        case .timeOut(let place):
          timedOut.append(place)
          agenda.removeAll { [.reached(place), .opened(place), .failed(place)].contains($0.event) }
        case .wake(let at): plan(at - next.at, .woken)
        case .finish(let place):
          winner = .some(place)
          finishedAt = next.at - start
        }
      }
    }
  }
}

private func ms(_ count: Int64) -> Nanoseconds { .milliseconds(count) }

@Suite struct AddressRaceTests {
  @Test func `eight dead addresses before a good one delay the connection by two seconds`() {
    let track = Track([Track.Address](repeating: .dead, count: 8) + [.good(reached: ms(10), open: ms(30))])
    #expect(track.winner == 8)
    #expect(track.attemptedAt == (0...8).map { ms(250 * $0) })
    #expect(track.finishedAt == ms(2030))
    #expect(track.abandoned == Array(0..<8), "no socket is left behind")
  }

  @Test func `addresses that refuse the connection cause no delay`() {
    let track = Track([.refuses(after: ms(1)), .refuses(after: ms(1)), .good(reached: ms(10), open: ms(30))])
    #expect(track.winner == 2)
    #expect(track.finishedAt == ms(32))
  }

  @Test func `no second address is tried during a slow handshake`() {
    let track = Track([.good(reached: ms(200), open: ms(900)), .good(reached: ms(1), open: ms(2))])
    #expect(track.winner == 0)
    #expect(track.attempts == [0])
  }

  @Test func `an address that answers only over TCP has one second for its handshake`() {
    let track = Track([.mute(after: ms(5)), .good(reached: ms(10), open: ms(30))])
    #expect(track.winner == 1)
    #expect(track.finishedAt == ms(5 + 1000 + 30))
  }

  @Test func `a failed handshake counts as a failure of its address`() {
    let track = Track([.untrusted(after: ms(5)), .good(reached: ms(10), open: ms(30))])
    #expect(track.winner == 1)
    #expect(track.finishedAt == ms(25 + 30))
  }

  @Test func `the first address that opens is used, not the first that was tried`() {
    let track = Track([.good(reached: ms(400), open: ms(900)), .good(reached: ms(10), open: ms(30))])
    #expect(track.winner == 1)
    #expect(track.abandoned == [0])
  }

  @Test func `a failure of one address does not shorten the handshake of another`() {
    let track = Track([
      .refuses(after: ms(260)), .good(reached: ms(5), open: ms(500)), .good(reached: ms(1), open: ms(2)),
    ])
    #expect(track.attempts == [0, 1])
    #expect(track.winner == 1)
  }

  @Test func `the race ends when no address is left`() {
    let none = Track([])
    #expect(none.winner == .some(nil))
    let dead = Track([.dead, .refuses(after: ms(1)), .dead])
    #expect(dead.winner == .some(nil))
    #expect(dead.timedOut == [0, 2])
    #expect(dead.finishedAt == ms(250 + 1 + 4000))
  }
}

@Suite struct AddressBookTests {
  private let book = AddressBook()
  private let now = Instant(nanoseconds: 1_000_000_000_000)

  private func order(_ addresses: [String], after time: Nanoseconds = .zero, interleaves: Bool = true) -> [String] {
    book.order(
      addresses.map { ($0, $0.contains(":")) }, of: "host", now: now + time, interleaves: interleaves
    ).map { addresses[$0] }
  }

  @Test func `address families alternate, starting with the family of the first address`() {
    #expect(order(["::1", "::2", "::3", "1", "2"]) == ["::1", "1", "::2", "2", "::3"])
    #expect(order(["1", "::1", "::2"]) == ["1", "::1", "::2"])
    #expect(order(["1", "2", "1"]) == ["1", "2"])
    #expect(order(["::1", "::2", "1"], interleaves: false) == ["::1", "::2", "1"])
  }

  @Test func `the address that worked is tried first, and those that failed last`() {
    book.didFail("1", of: "host", now: now)
    book.didWork("3", of: "host")
    #expect(order(["1", "2", "3", "4"]) == ["3", "2", "4", "1"])
    #expect(book.order([("1", false), ("2", false)], of: "other", now: now) == [0, 1])
  }

  @Test func `a failure is forgotten after ten minutes, or when the address works`() {
    book.didFail("1", of: "host", now: now)
    #expect(order(["1", "2"], after: .seconds(599)) == ["2", "1"])
    #expect(order(["1", "2"], after: .seconds(601)) == ["1", "2"])
    book.didWork("1", of: "host")
    #expect(order(["1", "2"]) == ["1", "2"])
    book.didFail("1", of: "host", now: now)
    #expect(order(["1", "2"]) == ["2", "1"], "it is not the one that worked any more")
  }

  @Test func `the number of remembered addresses is limited`() {
    book.didWork("2", of: "first")
    for number in 0..<1000 { book.didFail("1", of: "host-\(number)", now: now) }
    #expect(book.order([("1", false), ("2", false)], of: "first", now: now) == [0, 1])
    #expect(book.order([("1", false), ("2", false)], of: "host-999", now: now) == [1, 0])
  }
}

@Suite(.timeLimit(.minutes(10))) struct NameResolverTests {
  /// A resolver whose answers the test gives.
  private final class Names: Sendable {
    struct State {
      var answers: [String: NameResolver.Outcome] = [:]
      var asked: [String] = []
      var blocked: [String: DispatchSemaphore] = [:]
    }
    let state = Mutex(State())

    func lookUp(_ host: String) -> NameResolver.Outcome {
      let (blocked, _) = state.withLock { state in
        state.asked.append(host)
        return (state.blocked[host], 0)
      }
      blocked?.wait()
      let missing = NameResolver.Outcome.failure(SocketAddress.ResolutionError(description: "\(host) is not known"))
      return state.withLock { $0.answers[host] ?? missing }
    }

    func set(_ host: String, _ address: String) {
      state.withLock { $0.answers[host] = .success([SocketAddress(numericHost: address, port: 0)!]) }
    }
    func remove(_ host: String) { state.withLock { $0.answers[host] = nil } }
    func block(_ host: String) { state.withLock { $0.blocked[host] = DispatchSemaphore(value: 0) } }
    func unblock(_ host: String) {
      let semaphore = state.withLock { $0.blocked.removeValue(forKey: host) }
      for _ in 0..<100 { semaphore?.signal() }
    }
    var asked: [String] { state.withLock { $0.asked } }
  }

  private let names = Names()

  private func resolver(_ change: (inout NameResolver.Limits) -> Void = { _ in }) -> NameResolver {
    var limits = NameResolver.Limits()
    limits.timeLimit = .milliseconds(1_500)
    limits.timeLimitWithStale = .milliseconds(300)
    change(&limits)
    return NameResolver(limits: limits) { [names] in names.lookUp($0) }
  }

  private func ask(_ resolver: NameResolver, _ host: String, _ loop: EventLoop) async -> String {
    await withCheckedContinuation { continuation in
      loop.execute {
        resolver.resolve(host, port: 443, on: loop) { outcome in
          switch outcome {
          case .success(let addresses):
            continuation.resume(returning: addresses.map(\.description).joined(separator: " "))
          case .failure(let error): continuation.resume(returning: error.description)
          }
        }
      }
    }
  }

  @Test func `a resolver that does not answer delays no look-up of another name`() async {
    let loop = EventLoop(name: "resolver-test")
    defer { loop.stop() }
    let resolver = resolver()
    names.block("silent")
    names.set("good", "127.0.0.1")
    async let silent = ask(resolver, "silent", loop)
    #expect(await ask(resolver, "good", loop) == "127.0.0.1:443")
    #expect(await silent == "silent cannot be resolved: no answer within 1.5 s")
    names.unblock("silent")
  }

  @Test func `the last answer is used if the resolver fails or does not answer`() async {
    let loop = EventLoop(name: "resolver-test")
    defer { loop.stop() }
    let resolver = resolver()
    names.set("host", "127.0.0.1")
    #expect(await ask(resolver, "host", loop) == "127.0.0.1:443")
    names.remove("host")
    #expect(await ask(resolver, "host", loop) == "127.0.0.1:443")
    names.set("host", "127.0.0.2")
    names.block("host")
    #expect(await ask(resolver, "host", loop) == "127.0.0.1:443")
    names.unblock("host")
    var later = ""
    while later != "127.0.0.2:443" { later = await ask(resolver, "host", loop) }  // a name that moves is followed
  }

  @Test func `an answer that is too old is not used`() async {
    let loop = EventLoop(name: "resolver-test")
    defer { loop.stop() }
    let resolver = resolver { $0.staleTime = .zero }
    names.set("host", "127.0.0.1")
    #expect(await ask(resolver, "host", loop) == "127.0.0.1:443")
    names.remove("host")
    #expect(await ask(resolver, "host", loop) == "host is not known")
  }

  @Test func `simultaneous look-ups of one name share a single query`() async {
    let loop = EventLoop(name: "resolver-test")
    defer { loop.stop() }
    let resolver = resolver { $0.timeLimit = .seconds(20) }
    names.set("host", "127.0.0.1")
    names.block("host")
    async let first = ask(resolver, "host", loop)
    async let second = ask(resolver, "host", loop)
    async let third = ask(resolver, "host", loop)
    while names.asked.isEmpty { await Task.yield() }
    await withCheckedContinuation { continuation in loop.execute { continuation.resume() } }
    names.unblock("host")
    #expect(await [first, second, third] == [String](repeating: "127.0.0.1:443", count: 3))
    #expect(names.asked.count <= 2)
  }

  @Test func `the number of simultaneous look-ups is limited`() async {
    let loop = EventLoop(name: "resolver-test")
    defer { loop.stop() }
    let resolver = resolver { $0.lookupsMax = 1 }
    names.block("one")
    names.set("two", "127.0.0.2")
    async let one = ask(resolver, "one", loop)
    while names.asked.isEmpty { await Task.yield() }
    #expect(await ask(resolver, "two", loop).contains("no answer"))
    #expect(names.asked == ["one"])
    names.unblock("one")
    _ = await one
    var answer = ""
    while answer != "127.0.0.2:443" { answer = await ask(resolver, "two", loop) }
  }

  @Test func `a numeric address needs no resolver`() async {
    let loop = EventLoop(name: "resolver-test")
    defer { loop.stop() }
    #expect(await ask(resolver(), "127.0.0.9", loop) == "127.0.0.9:443")
    #expect(await ask(resolver(), "::1", loop) == "[::1]:443")
    #expect(names.asked.isEmpty)
  }
}

@Suite(.timeLimit(.minutes(10))) struct AddressDialerTests {
  @Test func `a connection is made despite eight dead addresses, which are remembered`() async throws {
    let server = try HTTP2TestServer { $0.respond(200) }
    guard let dead = DeadAddresses(8, port: server.port) else {
      print("skipped: this system has no addresses that drop a SYN")
      return
    }
    let book = AddressBook()
    let hosts = dead.hosts + ["127.0.0.1"]
    let resolver = NameResolver { _ in
      .success(hosts.map { SocketAddress(numericHost: $0, port: 0)! })
    }
    // The pauses between the attempts are two seconds in all; with the system's timeout they would be minutes.
    let first = try await time(server, resolver, book)
    #expect(first.time > .milliseconds(1950) && first.time - first.lateness < .seconds(20), "\(first)")
    // The remembered one comes first: no pause at all.
    let second = try await time(server, resolver, book)
    #expect(second.time - second.lateness < .milliseconds(1900), "\(second)")
    withExtendedLifetime(dead) {}
  }

  /// The time to connect, and the delay of the machine.
  private func time(
    _ server: HTTP2TestServer, _ resolver: NameResolver, _ book: AddressBook
  ) async throws -> (time: Nanoseconds, lateness: Nanoseconds) {
    let context = try TestCertificates.shared.client()
    let loop = EventLoop(name: "dialer-test")
    defer { loop.stop() }
    let dialing = await LoopLateness.time(on: [loop, server.loop]) {
      await dial(server.port, resolver, book, context, on: loop)
    }
    try dialing.result.get()
    return (dialing.time, dialing.lateness)
  }

  private func dial(
    _ port: UInt16, _ resolver: NameResolver, _ book: AddressBook, _ context: TLSContext, on loop: EventLoop
  ) async -> Result<Void, TLSError> {
    final class Keeper { var dialer: AddressDialer? }
    return await withCheckedContinuation { continuation in
      loop.execute {
        let keeper = Keeper()
        keeper.dialer = AddressDialer(
          host: "localhost", port: port, context: context, loop: loop, resolver: resolver, book: book
        ) { result in
          keeper.dialer = nil
          if case .success(let dialed) = result, case .tls(let stream) = dialed.link { stream.close() }
          continuation.resume(returning: result.map { _ in })
        }
        keeper.dialer?.start()
      }
    }
  }
}
