// While the permit has lapsed nothing is sent: no new requests, and none that waited for a stream or a connection.

import HTTP2TestSupport
import Logging
import PushModel
import Runtime
import TestTime
import Testing

@testable import Providers

private struct OneToken: ProviderTokenSource {
  func token(replacing refused: ProviderToken?) async throws(ProviderTokenError) -> ProviderToken {
    ProviderToken(value: Array("token".utf8), issuedAtMilliseconds: 0, renewAtMilliseconds: .max / 2)
  }
}

@Suite("Send permit", .timeLimit(.minutes(10))) struct SendPermitTests {
  private static func request(_ tag: Int, _ permit: SendPermit) -> PushRequest {
    let request = PushRequest(
      tag: UInt64(tag), deliveryID: DeliveryID(high: 1, low: UInt64(tag)), kind: .invite, environment: .production,
      token: Array("token-of-a-phone".utf8), body: Array(#"{"callId":"c1"}"#.utf8), collapseID: nil,
      deadline: SystemClock().now() + .seconds(600),
      expiresAtMilliseconds: SystemClock().wallMilliseconds() + 600_000)
    request.permit = permit
    return request
  }

  private static func set(_ permit: SendPermit, _ until: Instant, on loop: EventLoop) async {
    await withCheckedContinuation { continuation in
      loop.execute {
        permit.until = until
        continuation.resume()
      }
    }
  }

  /// An FCM provider with one stream, and its server, which answers when the test says so.
  private static func fcm(
    _ body: (HTTP2Provider, ProviderReports, SendPermit, _ other: SendPermit, HTTP2TestServer) async throws -> Void
  ) async throws {
    var settings = HTTP2SessionSettings()
    settings.streamsMax = 1
    let server = try HTTP2TestServer(settings: settings) { $0.connection.hold($0) }
    let loop = EventLoop.paced("permit-test", with: [server.loop])
    let permit = SendPermit(on: loop)
    let other = SendPermit(on: loop, until: .distantFuture)
    var pool = FCMConfiguration.defaultPool
    pool.connectionsMax = 1
    let provider = HTTP2Provider(
      FCMConfiguration(projectID: "p", endpoint: try server.endpoint(), pool: pool), tokens: OneToken(), loop: loop,
      logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }, permits: SendPermits([permit, other]))
    let reports = ProviderReports()
    await provider.start { reports.receive($0) }
    await reports.capacity { $0 > 0 }
    try await body(provider, reports, permit, other, server)
    await provider.shutDown(by: SystemClock().now() + .seconds(5))
    loop.stop()
  }

  @Test
  func `a request without a permit is returned at once, and the server gets nothing`() async throws {
    try await Self.fcm { provider, reports, permit, _, server in
      await provider.send([Self.request(1, permit)])
      let results = await reports.results(1)
      #expect(results[1]?.outcome == .refused(reason: "LeaseUnconfirmed"))
      #expect(results[1]?.sentAt == nil)
      #expect(await server.perform { $0.requestCount } == 0)
    }
  }

  @Test
  func `a request whose permit lapsed while it waited for a stream is not sent, and one with another permit is`()
    async throws
  {
    try await Self.fcm { provider, reports, permit, other, server in
      await Self.set(permit, .distantFuture, on: provider.loop)
      await provider.send([Self.request(1, permit), Self.request(2, permit), Self.request(3, other)])
      try await eventually("it holds a push") { await server.perform { $0.held.count } == 1 }
      await Self.set(permit, provider.loop.now, on: provider.loop)
      await server.perform { server in
        for exchange in server.held { exchange.respond(200, body: #"{"name": "projects/p/messages/1"}"#) }
        server.held = []
      }
      try await eventually("it holds a push") { await server.perform { $0.held.count } == 1 }
      await server.perform { server in
        for exchange in server.held { exchange.respond(200, body: #"{"name": "projects/p/messages/3"}"#) }
        server.held = []
      }
      let results = await reports.results(3)
      #expect(results[1]?.outcome == .accepted(messageID: "projects/p/messages/1"))
      #expect(results[2]?.outcome == .refused(reason: "LeaseUnconfirmed"))
      #expect(results[3]?.outcome == .accepted(messageID: "projects/p/messages/3"))
      #expect(await server.perform { $0.requestCount } == 2)
    }
  }

  @Test
  func `a message to Expo is refused without a permit, also if it lapses while the connection is made`() async throws {
    let server = try CurlTestServer()
    let loop = EventLoop.paced("permit-test")
    let permit = SendPermit(on: loop)
    let provider = ExpoProvider(
      configuration: ExpoConfiguration(url: "https://localhost:\(server.port)/", caFile: server.caFile), loop: loop,
      permits: SendPermits([permit]))
    let reports = ProviderReports()
    await provider.start { reports.receive($0) }
    await provider.send([Self.request(1, permit)])
    #expect(await reports.results(1)[1]?.outcome == .refused(reason: "LeaseUnconfirmed"))
    await Self.set(permit, .distantFuture, on: loop)
    // In one turn the request is made and the permit lapses.
    await withCheckedContinuation { continuation in
      loop.execute {
        provider.assumeIsolated { $0.send([Self.request(2, permit)]) }
        loop.atEndOfTurn { loop.atEndOfTurn { permit.until = Instant(nanoseconds: .min) } }
        continuation.resume()
      }
    }
    let result = await reports.results(2)[2]
    #expect(result?.outcome == .refused(reason: "LeaseUnconfirmed"))
    #expect(result?.sentAt == nil)
    await provider.shutDown(by: SystemClock().now() + .seconds(5))
    loop.stop()
  }
}
