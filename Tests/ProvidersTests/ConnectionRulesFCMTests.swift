// The rules of connections to FCM (docs/protocols.md §2), over real TLS.

import HTTP2TestSupport
import Runtime
import Testing

@testable import Providers

@Suite("Connection rules, FCM", .timeLimit(.minutes(10))) struct ConnectionRulesFCMTests {
  @Test
  func `the hourly GOAWAY (max_age) fails no push and repeats none`() async throws {
    let server = try HTTP2TestServer { exchange in
      exchange.connection.note(exchange.message.body.isEmpty ? "empty" : "requests")
      // In two steps, as in an orderly shutdown: first a warning, then the last stream that is processed.
      if exchange.stream == 201 {
        exchange.connection.session.goAway(lastStream: .max, .noError, debugData: Array("max_age".utf8))
        exchange.connection.flushLater()
        let connection = exchange.connection
        connection.loop.schedule(at: connection.loop.now + .milliseconds(10)) {
          connection.session.goAway(.noError, debugData: Array("max_age".utf8))
          connection.flushLater()
        }
      }
      exchange.accept()
    }
    let bench = try ProviderBench.fcm(server) { $0.connectionsMax = 2 }
    await bench.start()
    for start in stride(from: 0, to: 3000, by: 100) {
      await bench.provider.send(bench.requests(start..<start + 100))
      let results = await bench.reports.results(start + 100)
      #expect(results.values.allSatisfy { $0.outcome.isAccepted })
    }
    #expect(await server.perform { $0.requestCount } == 3000, "nothing was sent twice")
    #expect(await server.perform { $0.connectionCount } >= 10)
    await bench.stop()
  }

  @Test
  func `a connection has at most 100 streams, whatever the server allows`() async throws {
    var settings = HTTP2SessionSettings()
    settings.streamsMax = 1000
    let server = try HTTP2TestServer(settings: settings) { exchange in
      let connection = exchange.connection
      connection.note("open \(connection.number)")
      connection.hold(exchange)
      connection.loop.schedule(at: connection.loop.now + .milliseconds(5)) {
        connection.note("open \(connection.number)", -1)
        exchange.accept()
      }
      connection.most(ofConnection: connection.number)
    }
    let bench = try ProviderBench.fcm(server) { $0.connectionsMax = 3 }
    await bench.start()
    await bench.provider.send(bench.requests(0..<3000))
    let results = await bench.reports.results(3000)
    #expect(results.values.allSatisfy { $0.outcome.isAccepted })
    let most = await server.perform { server in server.notes.filter { $0.key.hasPrefix("most") }.map(\.value) }
    #expect(most.count == 3, "three connections carried them")
    #expect(most.max() == 100)
    #expect(bench.reports.capacities.max() == 300)
    await bench.stop()
  }

  @Test
  func `an idle connection sends no PING, which FCM limits, and a request after a pause sends one`() async throws {
    let server = try HTTP2TestServer { $0.accept() }
    let bench = try ProviderBench.fcm(server) {
      $0.connection.liveness.idleBeforePing = .milliseconds(100)
      $0.connection.liveness.silenceBeforePing = .milliseconds(100)
    }
    await bench.start()
    for tag in 0..<3 {
      // By then all PINGs that were sent while a push was in flight have arrived.
      await bench.pass(.milliseconds(20))
      let before = await server.perform { $0.connections[0].received.pings }
      await bench.pass(.milliseconds(300))
      #expect(await server.perform { $0.connections[0].received.pings } == before)
      #expect(await bench.push(tag).outcome.isAccepted)
      #expect(await server.perform { $0.connections[0].received.pings } > before)
    }
    #expect(await server.perform { $0.connectionCount } == 1)
    await bench.stop()
  }

  @Test
  func `while a refused access token has no successor nothing is sent, and afterwards the pushes are`() async throws {
    let server = try HTTP2TestServer { exchange in
      exchange.connection.note(exchange.authorization)
      if exchange.authorization == "Bearer two" { return exchange.accept() }
      exchange.respond(401, body: #"{"error":{"code":401,"status":"UNAUTHENTICATED"}}"#)
    }
    let tokens = TokensFromClosure { asked throws(ProviderTokenError) in
      if asked == 1 { throw ProviderTokenError("the token endpoint is away") }
      return ProviderToken(
        value: Array((asked == 0 ? "one" : "two").utf8), issuedAtMilliseconds: 0, renewAtMilliseconds: .max / 2)
    }
    let bench = try ProviderBench.fcm(server, tokens: tokens)
    await bench.start()
    await bench.provider.send(bench.requests(0..<10))
    await bench.reports.capacity { $0 == 0 }
    await bench.provider.send(bench.requests(10..<20))
    let results = await bench.reports.results(20)
    #expect(results.values.allSatisfy { $0.outcome.isAccepted })
    #expect(await server.perform { $0.notes } == ["Bearer one": 10, "Bearer two": 20])
    await bench.stop()
  }

  @Test
  func `a connection that the server closed for idleness is replaced before the next push`() async throws {
    let server = try HTTP2TestServer { $0.accept() }
    let bench = try ProviderBench.fcm(server)
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    await server.perform { server in for connection in server.connections { connection.drop() } }
    #expect(try await bench.capacities(3) == [100, 0, 100])
    #expect(await bench.push(1).connection == 1)
    await bench.stop()
  }
}

extension HTTP2TestServer.Connection {
  /// Records the highest number of simultaneous streams.
  fileprivate func most(ofConnection number: Int) {
    let open = noted("open \(number)")
    let most = noted("most \(number)")
    if open > most { note("most \(number)", open - most) }
  }
}
