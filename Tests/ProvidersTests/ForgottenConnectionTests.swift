// Tests of lone calls over a connection that a NAT has forgotten: no bytes arrive, and nothing is closed. One connection
// is configured, and every limit has its default.

import HTTP2TestSupport
import Runtime
import TestTime
import Testing

@testable import Providers

@Suite("Forgotten connections", .timeLimit(.minutes(10))) struct ForgottenConnectionTests {
  /// The longest time until a phone must ring.
  private static let bound = Nanoseconds.milliseconds(2_500)

  private static func expectRings<Provider>(
    _ bench: ProviderBench<Provider>, _ proxy: ForgetfulProxy, _ server: HTTP2TestServer
  ) async throws {
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    await proxy.forget()
    let first = await bench.ring(10)
    #expect(try #require(first.ringTime) < bound, "\(first)")
    #expect(first.failures == [.unknown(reason: "ConnectionLost")])
    #expect(try #require(first.connection) > 0)
    let second = await bench.ring(20)
    #expect(try #require(second.ringTime) < .milliseconds(500), "\(second)")
    #expect(second.failures.isEmpty)
    #expect(await server.perform { $0.connectionCount } == 2)
    await bench.stop()
  }

  @Test(arguments: [Nanoseconds.zero, .seconds(5)])
  func `over APNs the first lone call rings within 2.5 s, and the next one at once`(idleBeforePing: Nanoseconds)
    async throws
  {
    let server = try HTTP2TestServer { $0.accept() }
    let proxy = try ForgetfulProxy(to: server)
    let bench = try ProviderBench.apns(through: proxy) {
      $0.connectionsMax = 1
      $0.connection.liveness.idleBeforePing = idleBeforePing
    }
    try await Self.expectRings(bench, proxy, server)
  }

  @Test(arguments: [Nanoseconds.zero, .seconds(5)])
  func `over FCM the first lone call rings within 2.5 s, and the next one at once`(idleBeforePing: Nanoseconds)
    async throws
  {
    let server = try HTTP2TestServer { $0.accept() }
    let proxy = try ForgetfulProxy(to: server)
    let bench = try ProviderBench.fcm(through: proxy) {
      $0.connectionsMax = 1
      $0.connection.liveness.idleBeforePing = idleBeforePing
    }
    try await Self.expectRings(bench, proxy, server)
  }

  @Test
  func `calls that arrive while the connection is doubtful use its replacement and ring at once`() async throws {
    let server = try HTTP2TestServer { $0.accept() }
    let proxy = try ForgetfulProxy(to: server)
    let bench = try ProviderBench.apns(through: proxy) { $0.connectionsMax = 1 }
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    await proxy.forget()
    await bench.provider.send([bench.request(1)])
    await bench.reports.capacity { $0 == 2 }  // one request on each: the doubtful one and its replacement
    let second = await bench.ring(2)
    #expect(try #require(second.ringTime) < .milliseconds(500), "\(second)")
    #expect(second.connection == 1)
    _ = await bench.reports.results(3)
    await bench.stop()
  }

  @Test
  func `after a longer loss of the network the call rings when it is back, and the peer was not flooded`() async throws
  {
    let server = try HTTP2TestServer { $0.accept() }
    let proxy = try ForgetfulProxy(to: server)
    let bench = try ProviderBench.apns(through: proxy) {
      $0.connectionsMax = 1
      $0.waitTimeout = .seconds(2)
      $0.connection.connectTimeout = .seconds(1)
    }
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    await proxy.sever()
    async let call = bench.ring(1)
    await bench.pass(.seconds(4))
    await proxy.sever(false)
    let ringTime = try #require(await call.ringTime)
    #expect(ringTime < .seconds(10), "\(ringTime.seconds) s")
    #expect(await server.perform { $0.connectionCount } <= 8)
    await bench.stop()
  }

  // MARK: - Expo

  @Test
  func `over Expo the first lone call on a reused connection rings within 2.5 s, and the next one at once`()
    async throws
  {
    let server = try HTTP2TestServer { $0.acceptTicket() }
    let proxy = try ForgetfulProxy(to: server)
    let bench = ProviderBench<ExpoProvider>(port: proxy.port, peers: proxy.loops)
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    await proxy.forget()
    let first = await bench.ring(10, patience: .milliseconds(1_200))
    #expect(try #require(first.ringTime) < Self.bound, "\(first)")
    #expect(first.failures == [.unknown(reason: "TimedOut")])
    let second = await bench.ring(20)
    #expect(try #require(second.ringTime) < .milliseconds(500), "\(second)")
    #expect(second.failures.isEmpty)
    #expect(await server.perform { $0.connectionCount } == 2)
    await bench.stop()
  }

  @Test
  func `over Expo a connection that was idle for long is not used again`() async throws {
    let server = try HTTP2TestServer { $0.acceptTicket() }
    let proxy = try ForgetfulProxy(to: server)
    let bench = ProviderBench<ExpoProvider>(port: proxy.port, peers: proxy.loops) {
      $0.connections.idleConnectionTimeMax = .seconds(1)
    }
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    #expect(await bench.push(1).outcome.isAccepted)
    #expect(await server.perform { $0.connectionCount } == 1)
    await proxy.forget()
    await bench.pass(.milliseconds(2_100))
    let call = await bench.ring(10)
    #expect(try #require(call.ringTime) < .milliseconds(500), "\(call)")
    #expect(call.failures.isEmpty)
    await bench.stop()
  }

  @Test
  func `over Expo a late answer counts although nobody waited for it, and meanwhile another connection is used`()
    async throws
  {
    let server = try HTTP2TestServer { exchange in
      if exchange.connection.number == 0 { exchange.connection.hold(exchange) } else { exchange.acceptTicket() }
    }
    let bench = ProviderBench<ExpoProvider>(port: server.port, peers: [server.loop])
    await bench.start()
    await bench.provider.send([bench.request(1)])
    try await eventually("it has arrived") { await server.perform { !$0.held.isEmpty } }
    await bench.provider.giveUp(on: [1])
    #expect(await bench.push(2).outcome.isAccepted)
    await server.perform { $0.held[0].acceptTicket() }
    #expect(await bench.reports.results(2)[1]?.outcome.isAccepted == true)
    #expect(await server.perform { $0.connectionCount } == 2)
    await bench.stop()
  }
}
