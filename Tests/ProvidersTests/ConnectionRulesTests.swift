// The rules of connections to APNs (docs/protocols.md §1), over real TLS.

import HTTP2TestSupport
import PushModel
import Runtime
import Simulators
import Synchronization
import TestTime
import Testing

@testable import Providers
@testable import Runtime

@Suite("Connection rules, APNs", .timeLimit(.minutes(10))) struct ConnectionRulesTests {
  @Test
  func `with a GOAWAY every 500 requests, none of 50,000 pushes is lost and none repeated`() async throws {
    let server = try HTTP2TestServer { exchange in
      let last: Int32 = 999  // the 500th stream of a client
      guard exchange.stream <= last else { return }  // requests above it are never processed
      exchange.connection.note(exchange.message.headers.text("apns-id")!)
      exchange.respond(200)
      if exchange.stream == last { exchange.connection.session.goAway(lastStream: last) }
    }
    let bench = try ProviderBench.apns(server)
    await bench.start()
    for start in stride(from: 0, to: 50_000, by: 2000) {
      await bench.provider.send(bench.requests(start..<start + 2000))
      _ = await bench.reports.results(start + 1000)
    }
    let results = await bench.reports.results(50_000)
    #expect(results.values.allSatisfy { $0.outcome.isAccepted })
    let seen = await server.perform { Array($0.notes.values) }
    #expect(seen.count == 50_000)
    #expect(seen.allSatisfy { $0 == 1 })
    #expect(await server.perform { $0.connectionCount } >= 100)
    await bench.stop()
  }

  @Test
  func `a request on a refused stream is sent again at once, and the second answer decides`() async throws {
    let server = try HTTP2TestServer { exchange in
      guard exchange.connection.number > 0 || exchange.stream > 1 else {
        return exchange.connection.session.reset(exchange.stream, .refusedStream)
      }
      exchange.accept()
    }
    let bench = try ProviderBench.apns(server)
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    #expect(await server.perform { $0.requestCount } == 2)
    await bench.stop()
  }

  @Test(arguments: [HTTP2ErrorCode.internalError, .cancel, .enhanceYourCalm, .protocolError])
  func `a push on a stream that is reset for another reason has an unknown outcome, and the connection stays`(
    code: HTTP2ErrorCode
  ) async throws {
    let server = try HTTP2TestServer { exchange in
      if exchange.stream == 1 { exchange.connection.session.reset(1, code) } else { exchange.accept() }
    }
    let bench = try ProviderBench.apns(server)
    await bench.start()
    let result = await bench.push(0)
    #expect(result.outcome == .unknown(reason: "ConnectionLost"))
    #expect(result.sentAt != nil)
    #expect(result.connection == 0)
    #expect(await bench.push(1).outcome.isAccepted)
    #expect(await server.perform { $0.requestCount } == 2)
    #expect(await server.perform { $0.connectionCount } == 1)
    await bench.stop()
  }

  @Test
  func `a stream limit that falls and rises at run time is obeyed, and shown in the capacity`() async throws {
    let server = try HTTP2TestServer { $0.accept() }
    let bench = try ProviderBench.apns(server) { $0.connectionsMax = 1 }
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    for limit in [10, 3, 60] {
      await server.perform { server in
        server.notes = [:]
        let before = server.requestCount
        for connection in server.connections {
          connection.session.limitStreams(to: UInt32(limit))
          connection.flushLater()
        }
        // Holds requests until the client has opened all streams that it may, or all it needs, and then waits for one too many.
        server.handler = { [weak server] exchange in
          guard let server else { return }
          exchange.connection.hold(exchange)
          let most = max(server.notes["most", default: 0], server.held.count)
          server.notes["most"] = most
          guard server.held.count == limit || server.requestCount - before == 130 else { return }
          let loop = exchange.connection.loop
          loop.schedule(at: loop.now + .milliseconds(20)) {
            for held in server.held { held.accept() }
            server.held = []
          }
        }
      }
      await bench.reports.capacity { $0 == limit }
      let before = bench.reports.results.count
      await bench.provider.send(bench.requests(before..<before + 130))
      let results = await bench.reports.results(before + 130)
      #expect(results.values.allSatisfy { $0.outcome.isAccepted })
      #expect(await server.perform { $0.notes["most"] } == limit)
    }
    await server.perform { $0.handler = { $0.accept() } }
    await bench.stop()
  }

  @Test
  func `PINGs are sent only while requests are in flight`() async throws {
    let server = try HTTP2TestServer { $0.accept() }
    let bench = try ProviderBench.apns(server) { $0.connection.liveness.silenceBeforePing = .milliseconds(20) }
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    // By then all PINGs that were sent while the push was in flight have arrived.
    await bench.pass(.milliseconds(20))
    let before = await server.perform { $0.connections[0].received.pings }
    await bench.pass(.milliseconds(150))
    #expect(await server.perform { $0.connections[0].received.pings } == before)
    await server.perform { $0.handler = { $0.connection.hold($0) } }
    await bench.provider.send([bench.request(1)])
    try await eventually("a PING") { await server.perform { $0.connections[0].received.pings } > before }
    await server.perform { server in for held in server.held { held.accept() } }
    #expect(await bench.reports.results(2)[1]?.outcome.isAccepted == true)
    await bench.stop()
  }

  @Test
  func `a connection that does not answer a PING is replaced, and the outcome of its requests is unknown`() async throws
  {
    let server = try HTTP2TestServer { $0.accept() }
    let bench = try ProviderBench.apns(server) {
      $0.connection.liveness.silenceBeforePing = .milliseconds(200)
      $0.connection.liveness.doubtAfterPing = .milliseconds(1_000)
      $0.connection.liveness.pingTimeout = .milliseconds(2_000)
      // Only the PING detects the loss.
      $0.connection.liveness.answerTimeout = .seconds(60)
      $0.connection.requestTimeout = .seconds(60)
    }
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    await server.perform { $0.isMute = true }
    await bench.provider.send(bench.requests(1..<6))
    let results = await bench.reports.results(6)
    for tag in 1..<6 { #expect(results[UInt64(tag)]?.outcome == .unknown(reason: "ConnectionLost")) }
    await server.perform { server in
      server.isMute = false
      for connection in server.connections { connection.flushLater() }
    }
    let result = await bench.push(6)
    #expect(result.outcome.isAccepted)
    #expect(try #require(result.connection) > 0)
    await bench.stop()
  }

  @Test
  func `a server that closes every connection is retried only after growing waits`() async throws {
    let loop = EventLoop(name: "closing-server")
    let accepted = Mutex<[Instant]>([])
    let listener = try TCPListener(on: SocketAddress(numericHost: "127.0.0.1", port: 0)!, loop: loop)
    let port = listener.port
    let sixth = AsyncStream<Void>.makeStream()
    nonisolated(unsafe) let door = listener
    loop.execute {
      door.start { _ in  // the socket is closed when it is released
        let count = accepted.withLock { accepted in
          accepted.append(loop.now)
          return accepted.count
        }
        if count == 6 { sixth.continuation.finish() }
      }
    }
    var pool = APNsConfiguration.defaultPool
    pool.backoff.base = .milliseconds(20)
    let endpoint = HTTP2Endpoint(host: "127.0.0.1", port: port, tls: try TestCertificates.shared.client())
    let provider = HTTP2Provider(
      APNsConfiguration(topic: "t", production: endpoint, sandbox: endpoint, pool: pool), tokens: NumberedTokens(),
      loop: .paced("apns-test"), logger: silentLogger)
    let bench = ProviderBench(provider: provider)
    await provider.start { [reports = bench.reports] in reports.receive($0) }
    // Waiting requests do not shorten the waits.
    let begun = SystemClock().now()
    await provider.send(bench.requests(0..<100))
    for await _ in sixth.stream {}
    let times = accepted.withLock { $0 }
    // From the beginning: a busy machine may see a connection late, and then the next one soon after it.
    for (index, time) in times.enumerated() {
      #expect((time - begun).milliseconds >= 10 * ((1 << index) - 1), "wait \(index)")
    }
    await bench.stop()
    loop.execute { door.close() }
    loop.stop()
  }

  @Test
  func `after ExpiredProviderToken a new token is sent on a new connection, because the old one keeps refusing`()
    async throws
  {
    let suite = try await SimulatorSuite.start()
    let material = suite.material
    let credentials = APNsCredentials(
      teamID: material.identity.teamID, keyID: material.identity.keyID, key: material.apnsKey)
    let tokens = TokensFromClosure { asked throws(ProviderTokenError) in
      let now = SystemClock().wallMilliseconds()
      return try APNsTokenSource.mint(credentials, wallMilliseconds: asked == 0 ? now - 2 * 3_600_000 : now)
    }
    let bench = try ProviderBench.apns(suite, tokens: tokens)
    await bench.start()
    await bench.provider.send(bench.requests(0..<200))
    let results = await bench.reports.results(200)
    #expect(results.values.allSatisfy { $0.outcome.isAccepted })
    let counters = await suite.apnsProduction.counters
    #expect(counters.connections == 2)
    #expect(counters.refused.keys.sorted() == ["ExpiredProviderToken"])
    await bench.stop()
    await suite.stop()
  }

  @Test(arguments: [false, true])
  func `ExpiredProviderToken within 20 minutes of the last token creates no new token`(isShared: Bool) async throws {
    let server = try HTTP2TestServer { exchange in
      exchange.connection.note(exchange.authorization)
      exchange.respond(403, body: #"{"reason":"ExpiredProviderToken"}"#)
    }
    let key = try SigningKey.generate(for: .es256)
    let credentials = APNsCredentials(teamID: "TEAM123456", keyID: "KEY1234567", key: key)
    let shared = SharedTokenSource(
      identity: "key", ageMin: APNsTokenSource.replacementAgeMin, store: SharedTokenSourceTests.Store()
    ) { _ throws(ProviderTokenError) in
      try APNsTokenSource.mint(credentials, wallMilliseconds: SystemClock().wallMilliseconds())
    }
    let tokens: any ProviderTokenSource = isShared ? shared : APNsTokenSource(credentials)
    let bench = try ProviderBench.apns(server, tokens: tokens) { $0.backoff.base = .milliseconds(1) }
    await bench.start()
    await bench.provider.send(bench.requests(0..<5))
    let results = await bench.reports.results(5)
    #expect(results.values.allSatisfy { $0.outcome == .unauthorized(reason: "ExpiredProviderToken") })
    #expect(await server.perform { $0.notes.count } == 1, "every request carried the same token")
    await bench.stop()
  }

  @Test
  func `after TooManyProviderTokenUpdates the older token stays in use, and the pushes are sent again`() async throws {
    var configuration = SimulatorSuite.Configuration()
    configuration.tokenUpdateInterval = 20 * 60
    let suite = try await SimulatorSuite.start(configuration)
    let material = suite.material
    let credentials = APNsCredentials(
      teamID: material.identity.teamID, keyID: material.identity.keyID, key: material.apnsKey)
    let tokens = TokensFromClosure { asked throws(ProviderTokenError) in
      let now = SystemClock().wallMilliseconds()
      let token = try APNsTokenSource.mint(credentials, wallMilliseconds: asked == 0 ? now - 60_000 : now)
      // The first token is renewed at once, much too early.
      return ProviderToken(
        value: token.value, issuedAtMilliseconds: token.issuedAtMilliseconds,
        renewAtMilliseconds: asked == 0 ? 0 : now + 3_000_000)
    }
    let bench = try ProviderBench.apns(suite, tokens: tokens)
    await bench.start()
    var sent = 0
    while await suite.apnsProduction.counters.refused["TooManyProviderTokenUpdates"] == nil, sent < 100_000 {
      await bench.provider.send(bench.requests(sent..<sent + 20))
      sent += 20
      _ = await bench.reports.results(sent)
    }
    await bench.provider.send(bench.requests(sent..<sent + 100))
    let results = await bench.reports.results(sent + 100)
    #expect(results.values.allSatisfy { $0.outcome.isAccepted })
    let counters = await suite.apnsProduction.counters
    #expect((1...20).contains(counters.refused["TooManyProviderTokenUpdates"] ?? 0), "only what was on the wire")
    #expect(counters.refused.count == 1)
    await bench.stop()
    await suite.stop()
  }

  @Test
  func `the retry after a 503 uses another connection`() async throws {
    let server = try HTTP2TestServer { exchange in
      if exchange.connection.number == 0, exchange.stream > 1 {
        exchange.respond(503, body: #"{"reason":"ServiceUnavailable"}"#)
      } else {
        exchange.accept()
      }
    }
    let bench = try ProviderBench.apns(server)
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    let first = await bench.push(1)
    #expect(first.outcome == .unavailable(reason: "ServiceUnavailable", after: nil))
    #expect(first.connection == 0)
    // There is no other connection yet: one is opened, but the retry does not wait for it.
    let second = await bench.push(2, avoiding: first.connection)
    #expect(second.connection == 0)
    await bench.reports.capacity { $0 == 1001 }
    let third = await bench.push(3, avoiding: second.connection)
    #expect(third.outcome.isAccepted)
    #expect(third.connection == 1)
    await bench.stop()
  }

  @Test(arguments: ["first refuses", "first is silent"])
  func `the first of several addresses that answers is used`(trouble: String) async throws {
    let server = try HTTP2TestServer { $0.accept() }
    let loop = EventLoop(name: "silent-server")
    let silent = trouble == "first is silent" ? "127.0.0.3" : "127.0.0.4"
    // This listener never accepts, and the other address has no listener.
    let listener = try TCPListener(on: SocketAddress(numericHost: "127.0.0.3", port: server.port)!, loop: loop)
    #expect(try await dial([silent, "127.0.0.1"], server.port) == nil)
    #expect(await server.perform { $0.connectionCount } == 1)
    listener.close()
    loop.stop()
  }

  @Test
  func `if no address answers, the error names the host and the last address`() async throws {
    let port = try ServerProcess.freePort()
    let error = try #require(try await dial(["127.0.0.2", "127.0.0.3"], port))
    #expect(error.description.contains("localhost (127.0.0.3:\(port))"))
  }

  /// Connects to a name that resolves to these addresses; returns the error.
  private func dial(_ hosts: [String], _ port: UInt16) async throws -> TLSError? {
    final class Keeper { var dialer: AddressDialer? }
    let resolver = NameResolver { _ in .success(hosts.map { SocketAddress(numericHost: $0, port: 0)! }) }
    let context = try TestCertificates.shared.client()
    let loop = EventLoop.paced("dialer-test")
    defer { loop.stop() }
    return await withCheckedContinuation { continuation in
      loop.execute {
        let keeper = Keeper()
        keeper.dialer = AddressDialer(
          host: "localhost", port: port, context: context, loop: loop, resolver: resolver, book: AddressBook()
        ) { result in
          keeper.dialer = nil
          switch result {
          case .success(let dialed):
            if case .tls(let stream) = dialed.link { stream.close() }
            continuation.resume(returning: nil)
          case .failure(let error): continuation.resume(returning: error)
          }
        }
        keeper.dialer?.start()
      }
    }
  }
}
