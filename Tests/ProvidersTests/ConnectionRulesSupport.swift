// Shared by the tests of the connection rules: providers with a server that the test controls, requests, and tokens.

import HTTP2TestSupport
import Logging
import PushModel
import Runtime
import Simulators
import Synchronization
import TestTime

@testable import Providers

/// Returns the tokens "t1", "t2", …: the next one whenever one is refused.
final class NumberedTokens: ProviderTokenSource {
  private let prefix: String
  private let count = Mutex(1)
  init(_ prefix: String = "t") { self.prefix = prefix }

  func token(replacing refused: ProviderToken?) async throws(ProviderTokenError) -> ProviderToken {
    let number = count.withLock { count in
      if refused != nil { count += 1 }
      return count
    }
    let now = SystemClock().wallMilliseconds()
    return ProviderToken(
      value: Array("\(prefix)\(number)".utf8), issuedAtMilliseconds: now, renewAtMilliseconds: now + 3_600_000)
  }
}

/// Returns the result of a closure, which gets the number of earlier calls.
final class TokensFromClosure: ProviderTokenSource {
  private let body: @Sendable (Int) throws(ProviderTokenError) -> ProviderToken
  private let count = Mutex(0)
  init(_ body: @escaping @Sendable (Int) throws(ProviderTokenError) -> ProviderToken) { self.body = body }

  func token(replacing refused: ProviderToken?) async throws(ProviderTokenError) -> ProviderToken {
    try body(
      count.withLock { count in
        defer { count += 1 }
        return count
      })
  }
}

/// A provider on its own loop, its reports, and requests for it. The time of the loop is paced: no limit of the provider ends because the
/// machine is busy.
struct ProviderBench<Provider: PushProvider> {
  let provider: Provider
  let reports = ProviderReports()
  /// The permit of its requests; nil: they may always be written.
  var permit: SendPermit?
  /// The token of its requests, unless a test names another.
  var token = String(repeating: "a1b2c3d4", count: 8)

  /// Returns when there is a connection.
  func start() async {
    await provider.start { [reports] in reports.receive($0) }
    await reports.capacity { $0 > 0 }
  }

  func stop() async {
    await provider.shutDown(by: provider.loop.now + .seconds(5))
    provider.loop.stop()
  }

  func request(
    _ tag: Int, kind: PushKind = .invite, environment: PushEnvironment = .production,
    token: String? = nil, within time: Nanoseconds = .seconds(30),
    avoiding connection: Int? = nil
  ) -> PushRequest {
    let request = PushRequest(
      tag: UInt64(tag), deliveryID: DeliveryID(high: 7, low: UInt64(tag)), kind: kind, environment: environment,
      token: Array((token ?? self.token).utf8)[...],
      body: Array(#"{"callId":"c","from":"u"}"#.utf8),
      collapseID: nil, deadline: provider.loop.now + time,
      expiresAtMilliseconds: SystemClock().wallMilliseconds() + time.milliseconds, avoidedConnection: connection)
    request.permit = permit
    return request
  }

  func requests(_ tags: Range<Int>) -> [PushRequest] { tags.map { request($0) } }

  /// Sends one push and waits for its outcome; all earlier pushes must have theirs.
  func push(_ tag: Int, avoiding connection: Int? = nil) async -> PushResult {
    let count = reports.results.count + 1
    await provider.send([request(tag, avoiding: connection)])
    return await reports.results(count)[UInt64(tag)]!
  }

  /// Waits until this number of capacity changes was reported.
  func capacities(_ count: Int) async throws -> [Int] {
    try await eventually("\(count) changes") { reports.capacities.count >= count }
    return reports.capacities
  }

  /// Waits until the provider's loop has passed this time, and all loops have had a turn every few milliseconds: what has not happened by
  /// then does not happen.
  func pass(_ time: Nanoseconds) async {
    let loop = provider.loop
    await withCheckedContinuation { continuation in
      loop.execute { loop.schedule(at: loop.now + time) { continuation.resume() } }
    }
  }
}

let silentLogger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }

extension ProviderBench where Provider == HTTP2Provider {
  static func apns(
    _ server: HTTP2TestServer, tokens: any ProviderTokenSource = NumberedTokens(), logger: Logger = silentLogger,
    _ change: (inout HTTP2ConnectionPoolSettings) -> Void = { _ in },
    configuration changeConfiguration: (inout APNsConfiguration) -> Void = { _ in }
  ) throws -> Self {
    let endpoint = try server.endpoint(host: "127.0.0.1")
    var configuration = APNsConfiguration(topic: "com.example.app", production: endpoint, sandbox: endpoint)
    configuration.pool.waitTimeout = .seconds(30)
    change(&configuration.pool)
    changeConfiguration(&configuration)
    return Self(
      provider: HTTP2Provider(
        configuration, tokens: tokens, loop: .paced("apns-test", with: [server.loop]), logger: logger))
  }

  /// For a server behind a proxy.
  static func apns(
    through proxy: ForgetfulProxy, hedging: HedgingSettings? = nil,
    _ change: (inout HTTP2ConnectionPoolSettings) -> Void = { _ in }
  ) throws -> Self {
    let endpoint = try proxy.endpoint()
    var configuration = APNsConfiguration(topic: "com.example.app", production: endpoint, sandbox: endpoint)
    configuration.hedging = hedging
    change(&configuration.pool)
    return Self(
      provider: HTTP2Provider(
        configuration, tokens: NumberedTokens(), loop: .paced("apns-test", with: proxy.loops), logger: silentLogger))
  }

  static func apns(_ suite: SimulatorSuite, tokens: any ProviderTokenSource, logger: Logger = silentLogger) throws
    -> Self
  {
    let tls = try TLSContext.client(caFile: suite.material.authorityFile)
    var configuration = APNsConfiguration(
      topic: suite.material.identity.topic,
      production: try HTTP2Endpoint(url: suite.endpoints.apnsProduction, tls: tls),
      sandbox: try HTTP2Endpoint(url: suite.endpoints.apnsSandbox, tls: tls))
    configuration.pool.waitTimeout = .seconds(30)
    return Self(
      provider: HTTP2Provider(
        configuration, tokens: tokens, loop: .paced("apns-test", with: [suite.apnsProduction.loop]), logger: logger))
  }

  static func fcm(
    _ server: HTTP2TestServer, tokens: any ProviderTokenSource = NumberedTokens(),
    _ change: (inout HTTP2ConnectionPoolSettings) -> Void = { _ in }
  ) throws -> Self {
    var configuration = FCMConfiguration(projectID: "p", endpoint: try server.endpoint(host: "127.0.0.1"))
    configuration.pool.waitTimeout = .seconds(30)
    change(&configuration.pool)
    return Self(
      provider: HTTP2Provider(
        configuration, tokens: tokens, loop: .paced("fcm-test", with: [server.loop]), logger: silentLogger))
  }

  /// - Parameter permit: makes the permit of the provider's loop; nil for none.
  static func fcm(
    _ server: HTTP2TestServer, hedging: HedgingSettings?, permit: ((EventLoop) -> SendPermit)?,
    pool change: (inout HTTP2ConnectionPoolSettings) -> Void
  ) throws -> Self {
    var configuration = FCMConfiguration(projectID: "p", endpoint: try server.endpoint(host: "127.0.0.1"))
    configuration.hedging = hedging
    configuration.pool.waitTimeout = .seconds(30)
    change(&configuration.pool)
    let loop = EventLoop.paced("fcm-test", with: [server.loop])
    let permit = permit?(loop)
    return Self(
      provider: HTTP2Provider(
        configuration, tokens: NumberedTokens(), loop: loop, logger: silentLogger,
        permits: permit.map { SendPermits([$0]) }), permit: permit)
  }

  /// For a server behind a proxy.
  static func fcm(
    through proxy: ForgetfulProxy, hedging: HedgingSettings? = nil,
    _ change: (inout HTTP2ConnectionPoolSettings) -> Void = { _ in }
  ) throws -> Self {
    var configuration = FCMConfiguration(projectID: "p", endpoint: try proxy.endpoint())
    configuration.hedging = hedging
    change(&configuration.pool)
    return Self(
      provider: HTTP2Provider(
        configuration, tokens: NumberedTokens(), loop: .paced("fcm-test", with: proxy.loops), logger: silentLogger))
  }
}

extension ProviderBench where Provider == ExpoProvider {
  /// For a port of 127.0.0.1, over HTTP/2 if the server supports it.
  ///
  /// - Parameter peers: the loops on the way of a request.
  init(
    port: UInt16, caFile: String = TestCertificates.shared.caFile, peers: [EventLoop] = [],
    _ change: (inout ExpoConfiguration) -> Void = { _ in }
  ) {
    var configuration = ExpoConfiguration(url: "https://127.0.0.1:\(port)", caFile: caFile)
    // libcurl counts it by the system's clock.
    configuration.connections.connectTimeout = .seconds(60)
    change(&configuration)
    provider = ExpoProvider(configuration: configuration, loop: .paced("expo-test", with: peers))
  }
}

extension HTTP2TestServer.Exchange {
  var authorization: String { message.headers.text("authorization") ?? "" }
  /// Accepts the push, with an answer that is valid for APNs and for FCM.
  func accept() { respond(200, body: #"{"name":"projects/p/messages/1"}"#) }
  /// Accepts a request with one push, with an answer of Expo.
  func acceptTicket() { respond(200, body: #"{"data":[{"status":"ok","id":"1"}]}"#) }
}

extension PushOutcome {
  var isAccepted: Bool { if case .accepted = self { true } else { false } }
}

extension SimulatorMaterial {
  /// A source that signs with the simulator's own key.
  func apnsTokens() -> APNsTokenSource {
    APNsTokenSource(APNsCredentials(teamID: identity.teamID, keyID: identity.keyID, key: apnsKey))
  }
}
