// Lone calls over a connection that answers only PINGs, slow providers, and peers that close connections.

import HTTP2TestSupport
import Runtime
import Testing

@testable import Providers

@Suite("Unresponsive connections", .timeLimit(.minutes(10))) struct UnresponsiveConnectionTests {
  /// From now on existing connections answer no request, and new ones do.
  private static func deafen(_ server: HTTP2TestServer) async {
    await server.perform { server in
      let deaf = server.connectionCount
      server.handler = { if $0.connection.number >= deaf { $0.accept() } else { $0.connection.note("unanswered") } }
    }
  }

  /// One connection, whose requests end soon.
  private static func short(_ settings: inout HTTP2ConnectionPoolSettings) {
    settings.connectionsMax = 1
    settings.connection.requestTimeout = .seconds(3)
  }

  private static func expectRings<Provider>(_ bench: ProviderBench<Provider>, _ server: HTTP2TestServer) async throws {
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    await deafen(server)
    let first = await bench.ring(10)
    #expect(try #require(first.ringTime) < .seconds(5), "\(first)")
    #expect(first.failures == [.unknown(reason: "TimedOut")], "the connection is kept: its provider may only be slow")
    #expect(await server.perform { $0.notes["unanswered"] } == 1)
    for call in 2..<6 {
      let next = await bench.ring(call * 10)
      #expect(try #require(next.ringTime) < .milliseconds(500), "\(next)")
      #expect(next.failures.isEmpty)
    }
    #expect(await server.perform { $0.connectionCount } == 2)
    #expect(await server.perform { $0.notes["unanswered"] } == 1)
    await bench.stop()
  }

  @Test
  func `over APNs with one connection, the first call rings within 5 s, later ones at once`() async throws {
    let server = try HTTP2TestServer { $0.accept() }
    try await Self.expectRings(try ProviderBench.apns(server, Self.short), server)
  }

  @Test
  func `over FCM with one connection, the first call rings within 5 s, later ones at once`() async throws {
    let server = try HTTP2TestServer { $0.accept() }
    try await Self.expectRings(try ProviderBench.fcm(server, Self.short), server)
  }

  @Test
  func `forty simultaneous calls over an unresponsive connection all ring, each sent at most twice`() async throws {
    let server = try HTTP2TestServer { $0.accept() }
    let bench = try ProviderBench.apns(server, Self.short)
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    await Self.deafen(server)
    await bench.provider.send(bench.requests(100..<140))
    let first = await bench.reports.results(41)
    #expect((100..<140).allSatisfy { first[UInt64($0)]?.outcome == .unknown(reason: "TimedOut") })
    await bench.provider.send(bench.requests(200..<240))
    let second = await bench.reports.results(81)
    #expect((200..<240).allSatisfy { second[UInt64($0)]?.outcome.isAccepted == true })
    await bench.stop()
  }

  @Test
  func `a provider slower than one wait gets no push twice, and at most one connection more`() async throws {
    let server = try HTTP2TestServer { exchange in
      let loop = exchange.connection.loop
      loop.schedule(at: loop.now + .seconds(5)) { exchange.accept() }
    }
    let bench = try ProviderBench.apns(server) {
      $0.connectionsMax = 1
      $0.connection.liveness.answerTimeout = .seconds(4)
      $0.connection.requestTimeout = .seconds(30)
    }
    await bench.start()
    for tag in 0..<2 { #expect(await bench.push(tag).outcome.isAccepted) }
    #expect(await server.perform { $0.requestCount } == 2)
    #expect(await server.perform { $0.connectionCount } <= 2)
    await bench.stop()
  }

  @Test
  func `a peer that closes after each answer gets a few connections, and calls over it ring`() async throws {
    let server = try HTTP2TestServer { exchange in
      exchange.accept()
      let connection = exchange.connection
      connection.loop.schedule(at: connection.loop.now + .milliseconds(1)) { connection.drop() }
    }
    let bench = try ProviderBench.apns(server) { $0.connectionsMax = 1 }
    await bench.start()
    let start = bench.provider.loop.now
    var tag = 0
    while bench.provider.loop.now < start + .seconds(2) {
      let call = await bench.ring(tag)
      #expect(call.ringTime != nil)
      tag += 10
    }
    #expect(await server.perform { $0.connectionCount } <= 8)
    await bench.stop()
  }

  @Test
  func `after the last stream ids of a connection, pushes are sent over the next one`() async throws {
    let server = try HTTP2TestServer { $0.accept() }
    let bench = try ProviderBench.apns(server) {
      $0.connectionsMax = 1
      $0.answersWorthAConnection = 3
      $0.connection.session.firstStreamID = .max - 4
    }
    await bench.start()
    await bench.provider.send(bench.requests(0..<20))
    let results = await bench.reports.results(20)
    #expect(results.values.allSatisfy { $0.outcome.isAccepted })
    #expect(await server.perform { $0.requestCount } == 20)
    #expect(await server.perform { $0.connectionCount } >= 7)
    await bench.stop()
  }
}
