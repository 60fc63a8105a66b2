// Tests of the FCM provider over real HTTP/2 and TLS, with access tokens from the test.

import HTTP2TestSupport
import Logging
import PushModel
import Runtime
import Synchronization
import TestTime
import Testing

@testable import Providers

/// Returns "token-1", "token-2", …: a new one whenever the current one is refused.
private final class ScriptedTokens: ProviderTokenSource {
  private struct State {
    var count = 0
    var failing = false
  }

  private let state = Mutex(State())
  /// Whether a refused token is replaced.
  private let replaces: Bool

  init(replaces: Bool = true, failing: Bool = false) {
    self.replaces = replaces
    state.withLock { $0.failing = failing }
  }

  var count: Int { state.withLock { $0.count } }

  func token(replacing refused: ProviderToken?) async throws(ProviderTokenError) -> ProviderToken {
    let number: Int? = state.withLock { state in
      if state.failing { return nil }
      if state.count == 0 || (refused != nil && replaces) { state.count += 1 }
      return state.count
    }
    guard let number else { throw ProviderTokenError("none today") }
    return ProviderToken(
      value: Array("token-\(number)".utf8), issuedAtMilliseconds: 0, renewAtMilliseconds: .max / 2)
  }
}

/// Returns one token; a request for another one waits until the end.
private final class StallingTokens: ProviderTokenSource {
  private let waiting = Mutex<[CheckedContinuation<Void, Never>]>([])

  func token(replacing refused: ProviderToken?) async throws(ProviderTokenError) -> ProviderToken {
    if refused != nil {
      await withCheckedContinuation { continuation in waiting.withLock { $0.append(continuation) } }
      throw ProviderTokenError("the test is over")
    }
    return ProviderToken(value: Array("token".utf8), issuedAtMilliseconds: 0, renewAtMilliseconds: .max / 2)
  }

  func end() {
    waiting.withLock { waiting in
      for continuation in waiting { continuation.resume() }
      waiting = []
    }
  }
}

@Suite(.timeLimit(.minutes(10))) struct FCMProviderTests {
  private struct Fixture {
    let server: HTTP2TestServer
    let provider: HTTP2Provider
    let reports = ProviderReports()

    init(
      tokens: any ProviderTokenSource = ScriptedTokens(), handler: @escaping (HTTP2TestServer.Exchange) -> Void
    ) throws {
      server = try HTTP2TestServer(handler: handler)
      provider = HTTP2Provider(
        FCMConfiguration(projectID: "p", endpoint: try server.endpoint()), tokens: tokens,
        loop: .paced("fcm-test", with: [server.loop]), logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    }

    func start() async { await provider.start { [reports] in reports.receive($0) } }

    func stop() async {
      await provider.shutDown(by: SystemClock().now() + .seconds(5))
      provider.loop.stop()
    }
  }

  private func request(_ tag: Int, in time: Nanoseconds = .seconds(30)) -> PushRequest {
    PushRequest(
      tag: UInt64(tag), deliveryID: DeliveryID(high: 0, low: 0), kind: .invite, environment: .production,
      token: Array("device-\(tag)".utf8), body: Array(#"{"callId":"c"}"#.utf8), collapseID: nil,
      deadline: SystemClock().now() + time, expiresAtMilliseconds: 0)
  }

  private static func device(_ exchange: HTTP2TestServer.Exchange) -> String {
    guard let json = try? JSONScanner(exchange.message.body), let message = json.member("message"),
      let token = json.member("token", of: message).flatMap(json.text)
    else { return "?" }
    return token
  }

  private static func accept(_ exchange: HTTP2TestServer.Exchange) {
    exchange.respond(200, body: #"{"name":"projects/p/messages/\#(device(exchange))"}"#)
  }

  private static let unauthenticated = #"{"error":{"code":401,"status":"UNAUTHENTICATED"}}"#

  @Test func `the pushes of one turn are reported together, with the messages' names`() async throws {
    let fixture = try Fixture(handler: Self.accept)
    await fixture.start()
    await fixture.reports.capacity { $0 > 0 }
    await fixture.provider.send((0..<250).map { request($0) })
    let results = await fixture.reports.results(250)
    for tag in 0..<250 {
      let result = try #require(results[UInt64(tag)])
      #expect(result.outcome == .accepted(messageID: "projects/p/messages/device-\(tag)"))
      #expect(result.status == 200)
      #expect(try #require(result.sentAt) <= result.answeredAt)
    }
    #expect(fixture.reports.batches < 125, "results come in batches")
    await fixture.stop()
    #expect(fixture.reports.capacities.last == 0)
  }

  @Test func `there is no capacity without an access token`() async throws {
    let fixture = try Fixture(tokens: ScriptedTokens(failing: true), handler: Self.accept)
    await fixture.start()
    await fixture.provider.send([request(1, in: .milliseconds(300))])
    let results = await fixture.reports.results(1)
    #expect(results[1]?.outcome == .expired)
    #expect(results[1]?.sentAt == nil)
    #expect(fixture.reports.capacities.allSatisfy { $0 == 0 })
    await fixture.stop()
  }

  @Test func `a refused access token is replaced once, and the pushes are sent again`() async throws {
    let tokens = ScriptedTokens()
    let fixture = try Fixture(tokens: tokens) { exchange in
      if exchange.message.headers.text("authorization") == "Bearer token-2" {
        Self.accept(exchange)
      } else {
        exchange.respond(401, body: Self.unauthenticated)
      }
    }
    await fixture.start()
    await fixture.reports.capacity { $0 > 0 }
    await fixture.provider.send((0..<50).map { request($0) })
    let results = await fixture.reports.results(50)
    for result in results.values { #expect(result.status == 200) }
    #expect(tokens.count == 2)
    await fixture.stop()
  }

  @Test(arguments: [true, false])
  func `an access token that is refused twice is a credentials fault`(isReplaced: Bool) async throws {
    let fixture = try Fixture(tokens: ScriptedTokens(replaces: isReplaced)) { exchange in
      exchange.respond(401, body: Self.unauthenticated)
    }
    await fixture.start()
    await fixture.reports.capacity { $0 > 0 }
    await fixture.provider.send([request(1)])
    let results = await fixture.reports.results(1)
    #expect(results[1]?.outcome == .unauthorized(reason: "UNAUTHENTICATED"))
    #expect(results[1]?.status == 401)
    await fixture.stop()
  }

  @Test func `a push waits for an access token at most until its deadline`() async throws {
    let tokens = StallingTokens()
    let fixture = try Fixture(tokens: tokens) { exchange in exchange.respond(401, body: Self.unauthenticated) }
    await fixture.start()
    await fixture.reports.capacity { $0 > 0 }
    await fixture.provider.send([request(1, in: .milliseconds(400))])
    let results = await fixture.reports.results(1)
    #expect(results[1]?.outcome == .expired)
    tokens.end()
    await fixture.stop()
  }

  @Test func `every answer has the outcome of the table`() async throws {
    let fixture = try Fixture { exchange in
      switch Self.device(exchange) {
      case "device-1":
        exchange.respond(
          404,
          body:
            #"{"error":{"status":"NOT_FOUND","details":[{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","#
            + #""errorCode":"UNREGISTERED"}]}}"#
        )
      case "device-2": exchange.respond(502, body: "<html>")
      case "device-3": exchange.respond(503, [("retry-after", "3")])
      default: break  // no answer
      }
    }
    await fixture.start()
    await fixture.reports.capacity { $0 > 0 }
    await fixture.provider.send([request(1), request(2), request(3), request(4, in: .milliseconds(400))])
    let results = await fixture.reports.results(4)
    #expect(results[1]?.outcome == .tokenInvalid(reason: "UNREGISTERED", since: nil))
    #expect(results[2]?.outcome == .unavailable(reason: "HTTP502", after: nil))
    #expect(results[3]?.outcome == .unavailable(reason: "HTTP503", after: .seconds(3)))
    #expect(results[4]?.outcome == .unknown(reason: "TimedOut"))
    #expect(results[4]?.sentAt != nil)
    await fixture.stop()
  }

  @Test func `after a shutdown every push is refused`() async throws {
    let fixture = try Fixture(handler: Self.accept)
    await fixture.start()
    await fixture.reports.capacity { $0 > 0 }
    await fixture.provider.shutDown(by: SystemClock().now() + .seconds(5))
    await fixture.provider.send([request(1)])
    let results = await fixture.reports.results(1)
    #expect(results[1]?.outcome == .refused(reason: "ShuttingDown"))
    fixture.provider.loop.stop()
  }
}
