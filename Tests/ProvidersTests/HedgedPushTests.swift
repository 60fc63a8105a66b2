// Tests of hedged invites over real connections: what the phone gets, what the peer gets, and what the history contains.

import HTTP2TestSupport
import PushModel
import Runtime
import TestTime
import Testing

@testable import Providers

@Suite("Hedged pushes", .timeLimit(.minutes(10))) struct HedgedPushTests {
  private static let hedging = HedgingSettings()
  /// Long enough for a test to act before the hedge is due.
  private static let slowHedging: HedgingSettings = {
    var settings = HedgingSettings()
    settings.delayAtFirst = .seconds(3)
    return settings
  }()

  /// An FCM provider with one connection that has answered once. From now on `second` answers on it, and `first` on new
  /// connections.
  private static func fcm(
    hedging: HedgingSettings? = HedgedPushTests.hedging, permit: ((EventLoop) -> SendPermit)? = nil,
    stalled: @escaping (HTTP2TestServer.Exchange) -> Void = { $0.connection.hold($0) },
    other: @escaping (HTTP2TestServer.Exchange) -> Void = { $0.accept() },
    _ body: (ProviderBench<HTTP2Provider>, HTTP2TestServer) async throws -> Void
  ) async throws {
    let server = try HTTP2TestServer { $0.accept() }
    let bench = try ProviderBench.fcm(server, hedging: hedging, permit: permit) {
      $0.connectionsMax = 1
      $0.connection.requestTimeout = .seconds(60)
      $0.connection.liveness.answerTimeout = .seconds(60)
    }
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    nonisolated(unsafe) let (stalled, other) = (stalled, other)
    await server.perform { server in
      server.handler = { unsafe $0.connection.number == 0 ? stalled($0) : other($0) }
    }
    try await body(bench, server)
    await bench.stop()
  }

  // MARK: - The lone call

  @Test
  func `over APNs a lone call on a connection that a NAT has forgotten rings within a second`() async throws {
    let server = try HTTP2TestServer { $0.accept() }
    let proxy = try ForgetfulProxy(to: server)
    let bench = try ProviderBench.apns(through: proxy, hedging: Self.hedging) { $0.connectionsMax = 1 }
    try await Self.expectRings(bench, proxy, server)
  }

  @Test
  func `over FCM a lone call on a connection that a NAT has forgotten rings within a second`() async throws {
    let server = try HTTP2TestServer { $0.accept() }
    let proxy = try ForgetfulProxy(to: server)
    let bench = try ProviderBench.fcm(through: proxy, hedging: Self.hedging) { $0.connectionsMax = 1 }
    try await Self.expectRings(bench, proxy, server)
  }

  private static func expectRings<Provider>(
    _ bench: ProviderBench<Provider>, _ proxy: ForgetfulProxy, _ server: HTTP2TestServer
  ) async throws {
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    await proxy.forget()
    let call = await bench.ring(10)
    #expect(try #require(call.ringTime) < .seconds(1), "\(call)")
    #expect(call.failures.isEmpty)
    #expect(call.connection == 1)
    #expect(bench.reports.hedges == 1)
    #expect(await bench.provider.condition.hedged == 1)
    #expect(await bench.provider.condition.unanswered == .zero)
    // The PING detects the forgotten connection nevertheless, with the request on it whose answer is not needed.
    try await eventually("it is replaced") { await bench.provider.condition.replacements[.silent] == 1 }
    #expect(bench.reports.results.count == 2)
    #expect(await server.perform { $0.connectionCount } == 2)
    await bench.stop()
  }

  // MARK: - Two answers

  @Test
  func `both requests contain the same push, and the first answer is the outcome, with the earlier send time`()
    async throws
  {
    try await Self.fcm { bench, server in
      let before = bench.provider.loop.now
      let result = await bench.push(1)
      #expect(result.outcome.isAccepted)
      #expect(result.isHedged)
      #expect(result.connection == 1)
      let sentAt = try #require(result.sentAt)
      #expect(sentAt >= before && result.answeredAt - sentAt >= .milliseconds(500))
      #expect(await server.perform { $0.requestCount } == 3)
      // The other answer arrives late, and differs.
      await server.perform { server in
        for exchange in server.held { exchange.respond(404, body: Self.unregistered) }
      }
      await bench.pass(.milliseconds(100))
      #expect(bench.reports.results.count == 2, "nothing is told twice")
    }
  }

  @Test
  func `simultaneous calls after a successful hedge do not use the connection that it overtook`() async throws {
    try await Self.fcm { bench, server in
      #expect(await bench.push(1).isHedged)
      await server.perform { server in
        // The simultaneous calls are all in flight before the first is answered.
        server.handler = { exchange in
          exchange.connection.hold(exchange)
          exchange.connection.note("together")
          guard exchange.connection.noted("together") == 8 else { return }
          for exchange in exchange.connection.held { exchange.accept() }
        }
      }
      await bench.provider.send(bench.requests(2..<10))
      let results = await bench.reports.results(10).filter { $0.key > 1 }.values
      #expect(results.allSatisfy { $0.outcome.isAccepted && !$0.isHedged && $0.connection == 1 }, "\(results)")
    }
  }

  private static let unregistered = """
    {"error":{"code":404,"message":"Requested entity was not found.","status":"NOT_FOUND","details":[
    {"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"UNREGISTERED"}]}}
    """

  @Test
  func `a token is dead if either of the two requests gets that answer`() async throws {
    try await Self.fcm(other: { $0.respond(404, body: Self.unregistered) }) { bench, _ in
      let result = await bench.push(1)
      #expect(result.outcome == .tokenInvalid(reason: "UNREGISTERED", since: nil))
      #expect(result.isHedged)
    }
  }

  @Test
  func `the answer to the first request counts while the hedge is in flight`() async throws {
    try await Self.fcm(other: { $0.connection.hold($0) }) { bench, server in
      await bench.provider.send([bench.request(1)])
      try await eventually("it holds 2") { await server.perform { $0.held.count } >= 2 }
      await server.perform { server in
        for exchange in server.held where exchange.connection.number == 0 { exchange.accept() }
      }
      let result = try #require(await bench.reports.results(2)[1])
      #expect(result.outcome.isAccepted && result.isHedged && result.connection == 0)
      await server.perform { server in
        for exchange in server.held where exchange.connection.number == 1 { exchange.accept() }
      }
      await bench.pass(.milliseconds(50))
      #expect(bench.reports.results.count == 2)
    }
  }

  @Test
  func `if the hedge's connection breaks, the answer to the first request is awaited`() async throws {
    try await Self.fcm(other: { $0.connection.drop() }) { bench, server in
      await bench.provider.send([bench.request(1)])
      try await eventually("a hedge") { bench.reports.hedges == 1 }
      await bench.pass(.milliseconds(50))
      #expect(bench.reports.results.count == 1, "nothing is known yet")
      await server.perform { server in
        for exchange in server.held { exchange.accept() }
      }
      #expect(await bench.reports.results(2)[1]?.outcome.isAccepted == true)
    }
  }

  @Test
  func `if both requests are lost, the outcome of the push is unknown, and reported once`() async throws {
    try await Self.fcm(other: { $0.connection.hold($0) }) { bench, server in
      await bench.provider.send([bench.request(1)])
      try await eventually("it holds 2") { await server.perform { $0.held.count } >= 2 }
      await server.perform { server in
        for exchange in server.held { exchange.connection.drop() }
      }
      let result = try #require(await bench.reports.results(2)[1])
      #expect(result.outcome == .unknown(reason: "ConnectionLost"))
      #expect(result.isHedged)
    }
  }

  @Test
  func `a hedge that waits for a connection when the answer arrives is not sent`() async throws {
    var settings = HTTP2SessionSettings()
    settings.streamsMax = 1
    let server = try HTTP2TestServer(settings: settings) { $0.accept() }
    let bench = try ProviderBench.fcm(server, hedging: Self.hedging, permit: nil) {
      $0.connectionsMax = 2
      $0.replacementsMax = 0
      $0.connection.liveness.answerTimeout = .seconds(60)
    }
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    await bench.reports.capacity { $0 == 2 }
    await server.perform { $0.handler = { $0.connection.hold($0) } }
    await bench.provider.send([bench.request(1)])
    try await eventually("it holds 1") { await server.perform { $0.held.count } >= 1 }
    await bench.provider.send([bench.request(2, kind: .missedCall)])
    try await eventually("it holds 2") { await server.perform { $0.held.count } >= 2 }
    await bench.pass(.milliseconds(700))
    await server.perform { $0.held[0].accept() }
    #expect(await bench.reports.results(2)[1]?.isHedged == false)
    await server.perform { $0.held[1].accept() }
    #expect(await bench.reports.results(3)[2]?.outcome.isAccepted == true)
    await bench.pass(.milliseconds(100))
    #expect(await server.perform { $0.requestCount } == 3)
    #expect(bench.reports.hedges == 0)
    await bench.stop()
  }

  // MARK: - Pushes that are not hedged

  /// Checks that no earlier push was hedged: sends an invite and waits for its hedge, which is due after theirs.
  private static func expectNoHedgeButOfAnother(
    _ bench: ProviderBench<HTTP2Provider>, _ server: HTTP2TestServer
  ) async throws {
    let (requests, results) = (await server.perform { $0.requestCount }, bench.reports.results.count)
    await bench.provider.send([bench.request(99)])
    #expect(await bench.reports.results(results + 1)[99]?.isHedged == true)
    #expect(await server.perform { $0.requestCount } == requests + 2)
    #expect(bench.reports.hedges == 1)
  }

  /// Waits until the server holds the push, so that everything else happens later.
  private static func isHeld(_ server: HTTP2TestServer) async throws {
    try await eventually("it holds the push") { await server.perform { !$0.held.isEmpty } }
  }

  @Test(arguments: [PushKind.missedCall, .notification, .cancel])
  func `pushes that people see and cancels are sent once`(kind: PushKind) async throws {
    try await Self.fcm { bench, server in
      await bench.provider.send([bench.request(1, kind: kind)])
      try await Self.isHeld(server)
      try await Self.expectNoHedgeButOfAnother(bench, server)
      await server.perform { server in
        for exchange in server.held { exchange.accept() }
      }
      #expect(await bench.reports.results(3)[1]?.outcome.isAccepted == true)
    }
  }

  @Test
  func `an invite whose call has ended is not hedged`() async throws {
    try await Self.fcm(hedging: Self.slowHedging) { bench, server in
      await bench.provider.send([bench.request(1)])
      try await Self.isHeld(server)
      await bench.provider.withdraw([1])
      try await Self.expectNoHedgeButOfAnother(bench, server)
      await server.perform { server in
        for exchange in server.held { exchange.accept() }
      }
      #expect(await bench.reports.results(3)[1]?.outcome.isAccepted == true)
    }
  }

  @Test
  func `nothing is hedged after its deadline`() async throws {
    try await Self.fcm(hedging: Self.slowHedging) { bench, server in
      await bench.provider.send([bench.request(1, within: .milliseconds(2_900))])
      try await Self.isHeld(server)
      try await Self.expectNoHedgeButOfAnother(bench, server)
      await server.perform { server in
        for exchange in server.held { exchange.accept() }
      }
      #expect(await bench.reports.results(3)[1]?.isHedged == false)
    }
  }

  @Test
  func `nothing is hedged while the lease is not confirmed, and unanswered requests are as soon as it is`() async throws
  {
    nonisolated(unsafe) var permit: SendPermit!
    try await Self.fcm(
      hedging: Self.slowHedging,
      permit: {
        unsafe permit = SendPermit(on: $0, until: .distantFuture)
        return unsafe permit
      }
    ) { bench, server in
      let loop = bench.provider.loop
      let shared = unsafe permit!
      await bench.provider.send([bench.request(1)])
      try await Self.isHeld(server)
      loop.execute { shared.until = loop.now }
      await bench.pass(.milliseconds(3_300))
      #expect(bench.reports.hedges == 0)
      #expect(await server.perform { $0.requestCount } == 2)
      loop.execute { shared.until = .distantFuture }
      let result = try #require(await bench.reports.results(2)[1])
      #expect(result.outcome.isAccepted && result.isHedged)
      #expect(await server.perform { $0.requestCount } == 3)
    }
  }

  @Test
  func `without the setting nothing is hedged`() async throws {
    try await Self.fcm(hedging: nil) { bench, server in
      await bench.provider.send([bench.request(1)])
      await bench.pass(.milliseconds(800))
      #expect(await server.perform { $0.requestCount } == 2)
      await server.perform { server in
        for exchange in server.held { exchange.accept() }
      }
      #expect(await bench.reports.results(2)[1]?.outcome.isAccepted == true)
    }
  }

  // MARK: - Shutdown

  @Test
  func `a shutdown does not wait for a request whose push already has its outcome`() async throws {
    try await Self.fcm { bench, _ in
      #expect(await bench.push(1).outcome.isAccepted)
      // Longer than the test may take.
      await bench.provider.shutDown(by: bench.provider.loop.now + .seconds(3_600))
      #expect(bench.reports.results.count == 2)
    }
  }
}
