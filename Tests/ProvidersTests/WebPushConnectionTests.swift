// The rules of connections to push services: GOAWAY, refused streams, and connections that a NAT has forgotten.

import HTTP2TestSupport
import Runtime
import TestTime
import Testing

@testable import Providers

@Suite("Connection rules, web push", .timeLimit(.minutes(10))) struct WebPushConnectionTests {
  @Test(arguments: [Nanoseconds.zero, .seconds(5)])
  func `over a forgotten connection the first lone call rings within 2.5 s, and the next one at once`(
    idleBeforePing: Nanoseconds
  ) async throws {
    let server = try HTTP2TestServer { $0.respond(201) }
    let proxy = try ForgetfulProxy(to: server)
    let bench = try ProviderBench.webPush(proxy.port, peers: proxy.loops) {
      $0.pool.connectionsMax = 1
      $0.pool.connection.liveness.idleBeforePing = idleBeforePing
    }
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    await proxy.forget()
    let first = await bench.ring(10)
    #expect(try #require(first.ringTime) < .milliseconds(2_500), "\(first)")
    #expect(first.failures == [.unknown(reason: "ConnectionLost")])
    let second = await bench.ring(20)
    #expect(try #require(second.ringTime) < .milliseconds(500), "\(second)")
    #expect(second.failures.isEmpty)
    #expect(await server.perform { $0.connectionCount } == 2)
    await bench.stop()
  }

  @Test func `with a GOAWAY every 150 requests, no push is lost and none is repeated`() async throws {
    let server = try HTTP2TestServer { exchange in
      let last: Int32 = 299  // the 150th stream of a client
      guard exchange.stream <= last else { return }  // requests above it are never processed
      exchange.connection.note(exchange.message.headers.text(":path")!)
      exchange.respond(201)
      if exchange.stream == last { exchange.connection.session.goAway(lastStream: last) }
    }
    let bench = try ProviderBench.webPush(server.port, peers: [server.loop])
    await bench.start()
    await bench.provider.send(
      (0..<900).map { bench.request($0, token: WebPushFixture.token(server.port, "\($0)")) })
    let results = await bench.reports.results(900)
    #expect(results.values.allSatisfy { $0.outcome.isAccepted })
    let seen = await server.perform { $0.notes }
    #expect(seen.count == 900 && seen.values.allSatisfy { $0 == 1 })
    #expect(await bench.provider.condition.goAways["NO_ERROR"] ?? 0 >= 5)
    await bench.stop()
  }

  @Test func `a push has left while the push service has it, and has not when its stream was refused`() async throws {
    let server = try HTTP2TestServer { exchange in
      guard exchange.connection.noted("held") == 0 else {
        exchange.connection.note("refused")
        return exchange.connection.session.reset(exchange.stream, .refusedStream)
      }
      exchange.connection.note("held")
      exchange.connection.hold(exchange)
    }
    let bench = try ProviderBench.webPush(server.port, peers: [server.loop])
    await bench.start()
    let held = bench.request(0, token: bench.token)
    await bench.provider.send([held])
    try await eventually("it has left") { await bench.provider.hasLeft(held) }
    await server.perform { server in for exchange in server.held { exchange.respond(201) } }
    #expect(await bench.reports.results(1)[0]?.outcome == .accepted(messageID: nil))
    let refused = bench.request(1, token: bench.token)
    await bench.provider.send([refused])
    try await eventually("it was refused, and waits") {
      guard await server.perform({ $0.notes["refused"] ?? 0 }) > 0 else { return false }
      return await !bench.provider.hasLeft(refused)
    }
    await bench.stop()
  }

  @Test func `a push on a refused stream is sent again with the same bytes`() async throws {
    let server = try HTTP2TestServer { exchange in
      exchange.connection.note("\(exchange.message.body)")
      guard exchange.connection.number > 0 || exchange.stream > 1 else {
        return exchange.connection.session.reset(exchange.stream, .refusedStream)
      }
      exchange.respond(201)
    }
    let bench = try ProviderBench.webPush(server.port, peers: [server.loop])
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    #expect(await server.perform { $0.notes.values.sorted() } == [2])
    await bench.stop()
  }

  @Test func `a push that may have arrived is unknown and not sent again by the provider`() async throws {
    let server = try HTTP2TestServer { $0.connection.session.reset($0.stream, .internalError) }
    let bench = try ProviderBench.webPush(server.port, peers: [server.loop])
    await bench.start()
    let result = await bench.push(0)
    #expect(result.outcome == .unknown(reason: "ConnectionLost"))
    #expect(result.sentAt != nil)
    #expect(await server.perform { $0.requestCount } == 1)
    await bench.stop()
  }

  @Test func `connection numbers of different origins differ, and a push avoids its own connection`() async throws {
    let servers = try (0..<2).map { _ in try HTTP2TestServer { $0.respond(201) } }
    let bench = try ProviderBench.webPush(servers[0].port, servers[1].port, peers: servers.map(\.loop))
    await bench.start()
    let first = try #require(await bench.push(0).connection)
    let second = try #require(await bench.push(1, to: WebPushFixture.token(servers[1].port)).connection)
    #expect(first != second)
    #expect(await bench.push(2, avoiding: first).outcome.isAccepted)
    try await eventually("a second connection") { await servers[0].perform { $0.connectionCount } == 2 }
    #expect(await bench.push(3, avoiding: second).connection.map { $0 >> 32 } == first >> 32)
    #expect(await servers[1].perform { $0.connectionCount } == 1)
    await bench.stop()
  }
}

extension WebPushProvider {
  fileprivate func hasLeft(_ request: PushRequest) -> Bool { request.leftAt != nil }
}
