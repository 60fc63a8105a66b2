// Tests of the APNs provider over real TLS, with a server whose answers the test chooses.

import HTTP2TestSupport
import Logging
import PushModel
import Runtime
import Synchronization
import TestTime
import Testing

@testable import Providers

/// Returns the tokens "t1", "t2", …; obeys Apple's rule about their age only if the test says so.
private final class ScriptedTokens: ProviderTokenSource {
  private let state = Mutex<(number: Int, asked: Int, isYoung: Bool)>((1, 0, false))
  init(areYoung: Bool = false) { state.withLock { $0.isYoung = areYoung } }

  var asked: Int { state.withLock { $0.asked } }

  func token(replacing refused: ProviderToken?) async throws(ProviderTokenError) -> ProviderToken {
    state.withLock { state in
      state.asked += 1
      if refused != nil, !state.isYoung { state.number += 1 }
      let now = SystemClock().wallMilliseconds()
      return ProviderToken(
        value: Array("t\(state.number)".utf8), issuedAtMilliseconds: now, renewAtMilliseconds: now + 3_600_000)
    }
  }
}

/// Collects the reports of a provider.
private final class Collector: Sendable {
  private struct State {
    var results: [UInt64: PushResult] = [:]
    var count = 0
    var capacities: [Int] = []
    var waiting: (condition: @Sendable (Int, [Int]) -> Bool, continuation: CheckedContinuation<Void, Never>)?
  }
  private let state = Mutex(State())

  func take(_ event: PushProviderEvent) {
    let continuation = state.withLock { state -> CheckedContinuation<Void, Never>? in
      switch event {
      case .results(let results):
        state.count += results.count
        for result in results { state.results[result.tag] = result }
      case .capacity(let capacity): state.capacities.append(capacity)
      case .hedged, .clockSkew, .renewed, .divided: break
      }
      guard let waiting = state.waiting, waiting.condition(state.count, state.capacities) else { return nil }
      state.waiting = nil
      return waiting.continuation
    }
    continuation?.resume()
  }

  func wait(until condition: @escaping @Sendable (_ results: Int, _ capacities: [Int]) -> Bool) async {
    await withCheckedContinuation { continuation in
      let isMet = state.withLock { state in
        if condition(state.count, state.capacities) { return true }
        state.waiting = (condition, continuation)
        return false
      }
      if isMet { continuation.resume() }
    }
  }

  func outcome(_ tag: UInt64) -> PushOutcome? { state.withLock { $0.results[tag]?.outcome } }
  func result(_ tag: UInt64) -> PushResult? { state.withLock { $0.results[tag] } }
  var outcomes: [PushOutcome] { state.withLock { $0.results.values.map(\.outcome) } }
  var count: Int { state.withLock { $0.count } }
  var capacities: [Int] { state.withLock { $0.capacities } }
}

private struct Bench {
  let loop: EventLoop
  let provider: HTTP2Provider
  let collector = Collector()

  init(
    _ server: HTTP2TestServer, sandbox: HTTP2TestServer? = nil, tokens: any ProviderTokenSource = ScriptedTokens(),
    _ change: (inout HTTP2ConnectionPoolSettings) -> Void = { _ in }
  ) throws {
    var configuration = APNsConfiguration(
      topic: "com.example.app", production: try server.endpoint(), sandbox: try (sandbox ?? server).endpoint())
    change(&configuration.pool)
    loop = .paced("apns-test", with: [server.loop])
    provider = HTTP2Provider(
      configuration, tokens: tokens, loop: loop,
      logger: Logger(label: "test") { _ in
        SwiftLogNoOpLogHandler()
      })
  }

  func start() async {
    let collector = collector
    await provider.start { collector.take($0) }
    await collector.wait { _, capacities in !capacities.isEmpty }
  }

  func request(
    _ tag: UInt64, kind: PushKind = .invite, environment: PushEnvironment = .production,
    within time: Nanoseconds = .seconds(30)
  ) -> PushRequest {
    PushRequest(
      tag: tag, deliveryID: DeliveryID(high: 0, low: tag), kind: kind, environment: environment,
      token: Array("00ab".utf8), body: Array("{}".utf8), collapseID: nil, deadline: loop.now + time,
      expiresAtMilliseconds: 1_700_000_000_000)
  }

  func stop() async {
    await provider.shutDown(by: loop.now + .seconds(5))
    loop.stop()
  }
}

@Suite(.timeLimit(.minutes(10))) struct APNsProviderTests {
  @Test func `only one stream is used until the first authorised answer, then all`() async throws {
    var held: [HTTP2TestServer.Exchange] = []
    let server = try HTTP2TestServer { exchange in
      held.append(exchange)
      guard held.count == 1 else { return exchange.respond(200, [("apns-id", "x")]) }
      // Waits, so that a faulty client could send more.
      let loop = exchange.connection.loop
      loop.schedule(at: loop.now + .milliseconds(30)) {
        exchange.connection.note("in flight", held.count)
        exchange.respond(200, [("apns-id", "x")])
      }
    }
    let bench = try Bench(server) { $0.waitTimeout = .seconds(30) }
    await bench.start()
    #expect(bench.collector.capacities == [1])
    await bench.provider.send((0..<500).map { bench.request($0) })
    await bench.collector.wait { count, _ in count == 500 }
    #expect(await server.perform { $0.notes["in flight"] } == 1)
    #expect(bench.collector.outcomes.allSatisfy { $0 == .accepted(messageID: "x") })
    #expect(bench.collector.capacities == [1, 1000])
    #expect(await server.perform { $0.connectionCount } == 1)
    await bench.stop()
  }

  @Test func `every answer has its outcome`() async throws {
    let server = try HTTP2TestServer { exchange in
      let id = exchange.message.headers.text("apns-id")!.suffix(1)
      switch id {
      case "0": exchange.respond(410, body: #"{"reason":"Unregistered","timestamp":5}"#)
      case "1": exchange.respond(400, body: #"{"reason":"BadTopic"}"#)
      default: exchange.respond(500, body: "<html>")
      }
    }
    let bench = try Bench(server)
    await bench.start()
    await bench.provider.send((0..<3).map { bench.request($0) } + [bench.request(3, kind: .cancel)])
    await bench.collector.wait { count, _ in count == 4 }
    #expect(bench.collector.outcome(0) == .tokenInvalid(reason: "Unregistered", since: 5))
    #expect(bench.collector.result(0)?.status == 410)
    #expect(bench.collector.result(0)?.sentAt != nil)
    #expect(bench.collector.outcome(1) == .rejected(reason: "BadTopic"))
    #expect(bench.collector.outcome(2) == .unavailable(reason: "status 500 without a readable reason", after: nil))
    #expect(bench.collector.outcome(3) == .rejected(reason: "CancelNotAllowed"))
    #expect(await server.perform { $0.requestCount } == 3)
    await bench.stop()
  }

  @Test func `the environment of the device token selects the server`() async throws {
    let production = try HTTP2TestServer { $0.respond(200, [("apns-id", "production")]) }
    let sandbox = try HTTP2TestServer { $0.respond(200, [("apns-id", "sandbox")]) }
    let bench = try Bench(production, sandbox: sandbox)
    await bench.start()
    #expect(await sandbox.perform { $0.connectionCount } == 0)
    await bench.provider.send([bench.request(0), bench.request(1, environment: .sandbox)])
    await bench.collector.wait { count, _ in count == 2 }
    #expect(bench.collector.outcome(0) == .accepted(messageID: "production"))
    #expect(bench.collector.outcome(1) == .accepted(messageID: "sandbox"))
    await bench.stop()
  }

  @Test func `an expired provider token counts as no attempt`() async throws {
    let server = try HTTP2TestServer { exchange in
      let isExpired = exchange.message.headers.text("authorization") == "bearer t1"
      exchange.respond(isExpired ? 403 : 200, body: isExpired ? #"{"reason":"ExpiredProviderToken"}"# : "")
    }
    let tokens = ScriptedTokens()
    let bench = try Bench(server, tokens: tokens) {
      $0.backoff.base = .milliseconds(1)
      $0.waitTimeout = .seconds(30)
    }
    await bench.start()
    await bench.provider.send((0..<20).map { bench.request($0) })
    await bench.collector.wait { count, _ in count == 20 }
    #expect(bench.collector.outcomes.allSatisfy { $0 == .accepted(messageID: nil) })
    #expect(tokens.asked == 2)
    let connections = await server.perform { $0.connectionCount }
    #expect(connections == 2)
    await bench.stop()
  }

  @Test func `ExpiredProviderToken for a token that is too young to be replaced is a credentials fault`() async throws {
    let server = try HTTP2TestServer { $0.respond(403, body: #"{"reason":"ExpiredProviderToken"}"#) }
    let bench = try Bench(server, tokens: ScriptedTokens(areYoung: true)) {
      $0.backoff.base = .milliseconds(1)
      $0.waitTimeout = .seconds(30)
    }
    await bench.start()
    await bench.provider.send([bench.request(0)])
    await bench.collector.wait { count, _ in count == 1 }
    #expect(bench.collector.outcome(0) == .unauthorized(reason: "ExpiredProviderToken"))
    await bench.stop()
  }

  @Test func `a GOAWAY during a burst loses no push and repeats none`() async throws {
    let server = try HTTP2TestServer { exchange in
      // Every connection sends GOAWAY after its 50th request; later ones are refused and must be sent again.
      let session = exchange.connection.session
      let last = Int32(99)
      if exchange.stream > last { return }
      exchange.connection.note(exchange.message.headers.text("apns-id")!)
      exchange.respond(200)
      if exchange.stream == last { session.goAway(lastStream: last) }
    }
    let bench = try Bench(server) { $0.waitTimeout = .seconds(30) }
    await bench.start()
    await bench.provider.send((0..<300).map { bench.request($0) })
    await bench.collector.wait { count, _ in count == 300 }
    #expect(bench.collector.outcomes.allSatisfy { $0 == .accepted(messageID: nil) })
    #expect(bench.collector.count == 300)
    #expect(await server.perform { $0.notes.count } == 300)
    #expect(await server.perform { $0.notes.values.max() } == 1)
    #expect(await server.perform { $0.connectionCount } >= 6)
    await bench.stop()
  }

  @Test func `without an answer the outcome is unknown at the deadline`() async throws {
    let server = try HTTP2TestServer { _ in }
    let bench = try Bench(server) { $0.connection.liveness.answerTimeout = .seconds(60) }
    await bench.start()
    let request = bench.request(0, within: .milliseconds(500))
    // The second request never gets the only stream of the probe: it expires unsent.
    await bench.provider.send([request, bench.request(1, within: .milliseconds(300))])
    await bench.collector.wait { count, _ in count == 2 }
    #expect(bench.collector.outcome(0) == .unknown(reason: "TimedOut"))
    #expect(bench.collector.outcome(1) == .expired)
    let result = try #require(bench.collector.result(0))
    #expect(result.answeredAt >= request.deadline)
    #expect(result.sentAt! < request.deadline)
    #expect(bench.collector.result(1)?.sentAt == nil)
    await bench.stop()
  }

  @Test func `requests to a server that cannot be reached are returned`() async throws {
    let gone = try HTTP2TestServer { _ in }
    let port = try ServerProcess.freePort()
    let bench = try Bench(gone)
    var pool = APNsConfiguration.defaultPool
    pool.waitTimeout = .milliseconds(20)
    let configuration = APNsConfiguration(
      topic: "t", production: HTTP2Endpoint(host: "127.0.0.1", port: port, tls: try TestCertificates.shared.client()),
      sandbox: try gone.endpoint(), pool: pool)
    let provider = HTTP2Provider(
      configuration, tokens: ScriptedTokens(), loop: bench.loop,
      logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    let collector = bench.collector
    await provider.start { collector.take($0) }
    await provider.send([bench.request(0)])
    await collector.wait { count, _ in count == 1 }
    #expect(collector.outcome(0) == .refused(reason: "NoConnection"))
    #expect(collector.capacities.isEmpty)
    await provider.shutDown(by: bench.loop.now + .seconds(1))
    bench.loop.stop()
  }

  @Test func `a shutdown finishes the requests in flight`() async throws {
    let server = try HTTP2TestServer { $0.connection.hold($0) }
    let bench = try Bench(server)
    await bench.start()
    await bench.provider.send([bench.request(0), bench.request(1)])
    async let shutDown: Void = bench.provider.shutDown(by: bench.loop.now + .seconds(30))
    // The only stream of the probe is in use, so the second request still waits.
    await bench.collector.wait { count, _ in count == 1 }
    #expect(bench.collector.outcome(1) == .refused(reason: "ShuttingDown"))
    await server.perform { server in
      server.handler = { $0.respond(200) }
      for exchange in server.held { exchange.respond(200) }
    }
    await shutDown
    #expect(bench.collector.outcome(0) == .accepted(messageID: nil))
    await bench.provider.send([bench.request(2)])
    await bench.collector.wait { count, _ in count == 3 }
    #expect(bench.collector.outcome(2) == .refused(reason: "ShuttingDown"))
    bench.loop.stop()
  }

  @Test func `the outcome of requests without an answer at the shutdown deadline is unknown`() async throws {
    let server = try HTTP2TestServer { _ in }
    let bench = try Bench(server)
    await bench.start()
    await bench.provider.send([bench.request(0)])
    await bench.provider.shutDown(by: bench.loop.now + .milliseconds(50))
    #expect(bench.collector.outcome(0) == .unknown(reason: "ConnectionLost"))
    bench.loop.stop()
  }
}
