// Tests of all three providers and the token exchange through tinyproxy, and of libcurl through hostile proxies. Connections are
// counted at both ends: each connection of a server is a tunnel of the proxy.

import Foundation
import HTTP2TestSupport
import Logging
import PushModel
import Runtime
import Simulators
import Synchronization
import TestTime
import Testing

@testable import Providers

/// Keeps the logged messages with their values.
private final class ProxyLog: Sendable {
  private let kept = Mutex<[String]>([])
  var lines: [String] { kept.withLock { $0 } }

  private struct Handler: LogHandler {
    let log: ProxyLog
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.trace
    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
      get { metadata[key] }
      set { metadata[key] = newValue }
    }
    func log(event: LogEvent) {
      let values = (event.metadata ?? [:]).map { "\($0.key)=\($0.value)" }.sorted().joined(separator: " ")
      log.kept.withLock { $0.append("\(event.message) \(values)") }
    }
  }

  var logger: Logger { Logger(label: "test") { _ in Handler(log: self) } }

  /// Waits for a line that contains this text.
  func line(with words: String) async throws -> String {
    try await eventually("a line with \(words)") { lines.contains { $0.contains(words) } }
    return lines.first { $0.contains(words) } ?? ""
  }
}

/// Never ends a wait.
private struct StoppedClock: GatewayClock {
  func now() -> Instant { Instant(nanoseconds: 0) }
  func wallMilliseconds() -> Int64 { SystemClock().wallMilliseconds() }
}

private func credentials(_ text: String) throws -> ProxyCredentials {
  let file = FileManager.default.temporaryDirectory.appending(path: "proxy-\(UUID())").path()
  defer { try? FileManager.default.removeItem(atPath: file) }
  try SecretFixture.write(text, to: file)
  return try ProxyCredentials.load(file: file)
}

private func proxy(_ relay: TinyProxy, _ login: String? = nil) throws -> HTTPProxy {
  HTTPProxy(host: "127.0.0.1", port: relay.port, credentials: try login.map(credentials))
}

@Suite("Proxies", .timeLimit(.minutes(10))) struct ProxyTests {
  /// Knows no name, and the proxy has a numeric address: no direct connection is possible.
  private static let nameless = NameResolver { _ in .success([]) }

  private static func apns(
    _ server: HTTP2TestServer, _ proxy: HTTPProxy, logger: Logger = silentLogger,
    change: @escaping (inout HTTP2ConnectionPoolSettings) -> Void = { _ in }
  ) throws -> ProviderBench<HTTP2Provider> {
    let endpoint = HTTP2Endpoint(
      host: "localhost", port: server.port, tls: try TestCertificates.shared.client(), proxy: proxy)
    return try ProviderBench.apns(server, logger: logger) {
      $0.connection.resolver = nameless
      $0.connection.addresses = AddressBook()
      // The proxy is a program of its own, which a busy machine makes slow.
      ($0.connection.connectTimeout, $0.connection.settingsTimeout) = (.seconds(60), .seconds(60))
      change(&$0)
    } configuration: {
      ($0.production, $0.sandbox) = (endpoint, endpoint)
    }
  }

  @Test(arguments: [nil, "gateway word"])
  func `APNs' production and sandbox are reached through the proxy, with a login and without`(login: String?)
    async throws
  {
    let server = try HTTP2TestServer { $0.accept() }
    let relay = try TinyProxy(login: login)
    let bench = try Self.apns(server, try proxy(relay, login.map { $0.replacing(" ", with: ":") }))
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    await bench.provider.send([bench.request(1, environment: .sandbox)])
    #expect(await bench.reports.results(2)[1]?.outcome.isAccepted == true)
    #expect(relay.targets == [String](repeating: "localhost:\(server.port)", count: 2))
    #expect(await server.perform { $0.connectionCount } == 2)
    await bench.stop()
  }

  @Test
  func `a refused proxy login is logged and retried, deletes no token, and ends with other credentials`() async throws {
    let server = try HTTP2TestServer { $0.accept() }
    let relay = try TinyProxy(login: "gateway word")
    let proxy = try proxy(relay)
    let log = ProxyLog()
    let bench = try Self.apns(server, proxy, logger: log.logger) { $0.waitTimeout = .milliseconds(100) }
    await bench.provider.start { [reports = bench.reports] in reports.receive($0) }
    let line = try await log.line(with: "answers 407")
    #expect(line.hasPrefix("http2 connection failed "))
    #expect(line.contains("set proxy.credentials_file"))
    let unsent = await bench.push(0)
    #expect(unsent.sentAt == nil)
    #expect([.refused(reason: "NoConnection"), .expired].contains(unsent.outcome), "\(unsent)")
    #expect(await server.perform { $0.connectionCount } == 0)
    #expect(proxy.use(try credentials("gateway:word")))
    await bench.reports.capacity { $0 > 0 }
    #expect(await bench.push(1).outcome.isAccepted)
    #expect(!log.lines.contains { $0.contains("gateway") || $0.contains("Z2F0ZXdheT") })
    await bench.stop()
  }

  @Test
  func `other proxy credentials are tried at once, however long the wait is`() async throws {
    let server = try HTTP2TestServer { $0.accept() }
    let relay = try TinyProxy(login: "gateway word")
    let proxy = try proxy(relay)
    let log = ProxyLog()
    // Longer than the time limit of the test.
    let bench = try Self.apns(server, proxy, logger: log.logger) {
      $0.backoff.base = .seconds(3600); $0.backoff.max = .seconds(3600)
    }
    await bench.provider.start { [reports = bench.reports] in reports.receive($0) }
    _ = try await log.line(with: "answers 407")
    #expect(proxy.use(try credentials("gateway:word")))
    await bench.provider.retryConnections()
    await bench.reports.capacity { $0 > 0 }
    #expect(await bench.push(0).outcome.isAccepted)
    await bench.stop()
  }

  @Test
  func `FCM's next token exchange uses other proxy credentials, however long the wait is`() async throws {
    let suite = try await SimulatorSuite.start()
    let relay = try TinyProxy(login: "gateway word")
    let proxy = try proxy(relay)
    let account = try FCMServiceAccount.load(file: suite.material.serviceAccountFile)
    let loop = EventLoop(name: "fcm-test")
    let source = FCMTokenSource(
      account: account, caFile: suite.material.authorityFile, proxy: proxy, loop: loop, clock: StoppedClock())
    for _ in 0..<2 { await #expect(throws: ProviderTokenError.self) { _ = try await source.token(replacing: nil) } }
    #expect(proxy.use(try credentials("gateway:word")))
    _ = try await source.token(replacing: nil)
    loop.stop()
    await suite.stop()
  }

  @Test
  func `FCM and its token exchange use the proxy`() async throws {
    let suite = try await SimulatorSuite.start()
    let relay = try TinyProxy(login: "gateway word")
    let proxy = try proxy(relay, "gateway:word")
    let account = try FCMServiceAccount.load(file: suite.material.serviceAccountFile)
    let loop = EventLoop.paced("fcm-test")
    let endpoint = try HTTP2Endpoint(
      url: suite.endpoints.fcm, tls: .client(caFile: suite.material.authorityFile), proxy: proxy)
    let provider = HTTP2Provider(
      FCMConfiguration(projectID: account.projectID, endpoint: endpoint),
      tokens: FCMTokenSource(account: account, caFile: suite.material.authorityFile, proxy: proxy, loop: loop),
      loop: loop, logger: silentLogger)
    let reports = ProviderReports()
    await provider.start { reports.receive($0) }
    await reports.capacity { $0 > 0 }
    await provider.send([
      PushRequest(
        tag: 0, deliveryID: DeliveryID(high: 1, low: 1), kind: .invite, environment: .production,
        token: Array("android-token-1".utf8), body: Array(#"{"callId":"c1","fromId":"u1"}"#.utf8), collapseID: nil,
        deadline: SystemClock().now() + .seconds(600),
        expiresAtMilliseconds: SystemClock().wallMilliseconds() + 600_000)
    ])
    #expect(await reports.results(1)[0]?.outcome.isAccepted == true)
    await provider.shutDown(by: SystemClock().now() + .seconds(5))
    loop.stop()
    // One tunnel for the exchange, and those for pushes.
    #expect(relay.targets.count >= 2)
    try await eventually("every connection is a tunnel") {
      await suite.fcm.counters.connections == relay.targets.count
    }
    await suite.stop()
  }

  @Test
  func `the error of an FCM token exchange without a tunnel says so`() async throws {
    let suite = try await SimulatorSuite.start()
    let relay = try TinyProxy(login: "gateway word")
    let account = try FCMServiceAccount.load(file: suite.material.serviceAccountFile)
    let loop = EventLoop(name: "fcm-test")
    let source = FCMTokenSource(
      account: account, caFile: suite.material.authorityFile, proxy: try proxy(relay), loop: loop)
    let error = await #expect(throws: ProviderTokenError.self) { _ = try await source.token(replacing: nil) }
    #expect(error?.description.contains("ProxyAuthenticationRequired: the proxy 127.0.0.1:") == true)
    #expect(error?.description.hasSuffix("set proxy.credentials_file") == true, "\(String(describing: error))")
    #expect(await suite.fcm.counters.connections == 0)
    loop.stop()
    await suite.stop()
  }

  private static func expo(
    _ server: HTTP2TestServer, _ proxy: HTTPProxy, logger: Logger? = nil
  ) -> ProviderBench<ExpoProvider> {
    ProviderBench<ExpoProvider>(port: server.port, peers: [server.loop]) {
      $0.connections.waitLong()
      $0.url = "https://localhost:\(server.port)"
      $0.connections.proxy = proxy
      $0.connections.logger = logger
      $0.connections.resolver = nameless
      $0.connections.addresses = AddressBook()
    }
  }

  @Test(arguments: [nil, "gateway word"])
  func `Expo is reached through the proxy, and a tunnel is used again`(login: String?) async throws {
    let server = try HTTP2TestServer { $0.acceptTicket() }
    let relay = try TinyProxy(login: login)
    let bench = Self.expo(server, try proxy(relay, login.map { $0.replacing(" ", with: ":") }))
    await bench.start()
    for tag in 0..<3 {
      let result = await bench.push(tag)
      #expect(result.outcome.isAccepted)
      #expect(result.sentAt != nil)
    }
    let count = await server.perform { $0.connectionCount }
    #expect(relay.targets == [String](repeating: "localhost:\(server.port)", count: count))
    // The proxy's headers are not among the server's.
    #expect(await server.perform { $0.requestCount } == 3)
    await bench.stop()
  }

  @Test(arguments: [nil, "gateway:other"])
  func `a refused proxy login is no answer of Expo, counts as no attempt, and ends with other credentials`(
    login: String?
  ) async throws {
    let server = try HTTP2TestServer { $0.acceptTicket() }
    let relay = try TinyProxy(login: "gateway word")
    let proxy = try proxy(relay, login)
    let log = ProxyLog()
    let bench = Self.expo(server, proxy, logger: log.logger)
    await bench.start()
    let failed = await bench.push(0)
    #expect(failed.outcome == .unavailable(reason: "ProxyAuthenticationRequired", after: nil))
    #expect(failed.sentAt == nil)
    #expect(try await log.line(with: "answers 40").contains("proxy.credentials_file"))
    #expect(await server.perform { $0.connectionCount } == 0)
    #expect(proxy.use(try credentials("gateway:word")))
    await bench.reports.capacity { $0 > 0 }
    var tag = 1
    while await !bench.push(tag).outcome.isAccepted { tag += 1 }
    #expect(!log.lines.contains { $0.contains("gateway") || $0.contains("Z2F0ZXdheT") })
    await bench.stop()
  }

  @Test
  func `two apps with different proxies share no connection`() async throws {
    let server = try HTTP2TestServer { $0.acceptTicket() }
    let (first, second) = (try TinyProxy(), try TinyProxy())
    for relay in [first, second] {
      let bench = Self.expo(server, try proxy(relay))
      await bench.start()
      #expect(await bench.push(0).outcome.isAccepted)
      await bench.stop()
    }
    #expect(first.targets.count == 1 && second.targets.count == 1)
    #expect(await server.perform { $0.connectionCount } == 2)
  }

  // MARK: - libcurl and hostile proxies

  /// Owns a client on its loop.
  private actor Caller {
    nonisolated let loop = EventLoop(name: "proxy-test")
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    private let client: CurlClient

    init(_ configuration: CurlConfiguration) {
      client = CurlClient(loop: loop, configuration: configuration)
    }

    func send(_ url: String) async -> Result<CurlResponse, CurlFailure> {
      await client.perform(CurlRequest(url: url, body: [0x5B, 0x5D]))
    }

    func stop() {
      client.close()
      loop.stop()
    }
  }

  private static func send(
    _ url: String, through port: UInt16, _ change: (inout CurlConfiguration) -> Void = { _ in }
  ) async -> CurlFailure? {
    var configuration = CurlConfiguration(caFile: TestCertificates.shared.caFile)
    configuration.proxy = HTTPProxy(host: "127.0.0.1", port: port)
    configuration.resolver = nameless
    configuration.connectTimeout = .seconds(30)
    configuration.totalTimeout = .seconds(40)
    change(&configuration)
    let caller = Caller(configuration)
    let result = await caller.send(url)
    await caller.stop()
    if case .failure(let failure) = result { return failure }
    return nil
  }

  private static let hostileAnswers:
    [(answer: String, ending: HostileProxy.Ending, reason: CurlFailure.Reason, words: String)] = [
      ("HTTP/1.1 403 Forbidden\r\n\r\n", .silence, .proxyFailed, "answers 403: let it allow CONNECT to localhost:"),
      ("HTTP/1.1 407 Login\r\n\r\n", .silence, .proxyAuthenticationRequired, "set proxy.credentials_file"),
      (
        "HTTP/1.1 407 Login\r\nProxy-Authenticate: Basic realm=\"x\"\r\nContent-Length: 99999999\r\n\r\n",
        .endless([UInt8](repeating: 0x78, count: 4096)), .proxyAuthenticationRequired, "set proxy.credentials_file"
      ),
      ("HTTP/1.1 502 No\r\nRetry-After: 99\r\n\r\n", .silence, .proxyFailed, "answers 502: it has no connection"),
      ("HTTP/1.1 302 Found\r\nLocation: http://portal/\r\n\r\n", .silence, .proxyFailed, "answers 302 to CONNECT"),
      ("HTTP/1.1 200 OK\r\n", .endless(Array("X-Field: value\r\n".utf8)), .proxyFailed, "more than 16384 bytes"),
      ("", .endless(Array("HTTP/1.1 100 Continue\r\n\r\n".utf8)), .proxyFailed, "the proxy 127.0.0.1:"),
      ("HTTP/1.1 200 OK\r\nVia: x\r\n", .close, .proxyFailed, "closed the connection before it had answered"),
      ("", .close, .proxyFailed, "closed the connection before it had answered CONNECT"),
      ("SSH-2.0-OpenSSH_9.2\r\n", .silence, .proxyFailed, "does not answer in HTTP/1"),
      ("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", .silence, .tlsFailed, ", through the proxy 127.0.0.1:"),
      ("HTTP/1.1 200 OK\r\n\r\n", .close, .tlsFailed, ", through the proxy 127.0.0.1:"),
    ]

  @Test(arguments: hostileAnswers.indices)
  func `over libcurl a broken answer is a failure of the proxy, and nothing was sent`(index: Int) async throws {
    let (answer, ending, reason, words) = Self.hostileAnswers[index]
    let server = try HTTP2TestServer { $0.respond(200) }
    let relay = try HostileProxy(answer, then: ending)
    let failure = try #require(await Self.send("https://localhost:\(server.port)/", through: relay.port))
    #expect(failure.reason == reason)
    #expect(failure.detail.contains(words), "\(failure)")
    #expect(failure.sentAt == nil)
    #expect(failure.isWithoutConnection)
    #expect(await relay.received().first?.hasPrefix("CONNECT localhost:\(server.port) HTTP/1.1\r\n") == true)
    #expect(await server.perform { $0.connectionCount } == 0)
  }

  @Test
  func `over libcurl a line without an end is a failure of the proxy`() async throws {
    let relay = try HostileProxy("HTTP/1.1 200 OK\r\nA: ", then: .endless(Array("aaaaaaaa".utf8)))
    let failure = try #require(await Self.send("https://localhost:1/", through: relay.port))
    #expect(failure.reason == .proxyFailed && failure.sentAt == nil, "\(failure)")
  }

  @Test(arguments: ["", "HTTP/1.1 200 OK\r\n\r\n"])
  func `over libcurl the time of a silent proxy counts as time to connect`(answer: String) async throws {
    let relay = try HostileProxy(answer)
    let failure = await Self.send("https://localhost:1/", through: relay.port) {
      $0.connectTimeout = .milliseconds(300)
    }
    #expect(failure?.reason == .timedOut)
    #expect(failure?.sentAt == nil)
    #expect(failure?.detail.hasSuffix(", through the proxy 127.0.0.1:\(relay.port)") == true)
  }

  @Test
  func `over libcurl an unknown proxy name and a closed proxy port are failures of the proxy`() async throws {
    let unknown = await Self.send("https://localhost:1/", through: 1) {
      $0.proxy = HTTPProxy(host: "proxy.test", port: 1)
    }
    #expect(unknown == CurlFailure(.nameNotResolved, detail: "the name of the proxy proxy.test:1"))
    let port = try ServerProcess.freePort()
    let refused = await Self.send("https://localhost:1/", through: port)
    #expect(refused?.reason == .notConnected)
    #expect(refused?.detail.hasSuffix(", through the proxy 127.0.0.1:\(port)") == true)
  }

  @Test
  func `over libcurl our resolver looks up the proxy's name, and its addresses are raced`() async throws {
    let server = try HTTP2TestServer { $0.acceptTicket() }
    let relay = try TinyProxy()
    let failure = await Self.send("https://localhost:\(server.port)/", through: relay.port) {
      $0.proxy = HTTPProxy(host: "proxy.test", port: relay.port)
      $0.resolver = NameResolver { name in
        let hosts = name == "proxy.test" ? ["127.0.0.5", "127.0.0.1"] : []
        return .success(hosts.map { SocketAddress(numericHost: $0, port: 0)! })
      }
      $0.addresses = AddressBook()
    }
    #expect(failure == nil)
    #expect(relay.targets == ["localhost:\(server.port)"])
  }

  @Test
  func `the environment selects no proxy, and exempts no host from one`() async throws {
    await #expect(processExitsWith: .success) {
      for name in ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] { setenv(name, "http://127.0.0.1:1", 1) }
      for name in ["no_proxy", "NO_PROXY"] { setenv(name, "*", 1) }
      let server = try HTTP2TestServer { $0.acceptTicket() }
      var configuration = CurlConfiguration(caFile: TestCertificates.shared.caFile)
      let direct = Caller(configuration)
      guard case .success = await direct.send("https://localhost:\(server.port)/") else { exit(2) }
      await direct.stop()
      // With NO_PROXY obeyed, the request would be sent directly.
      let relay = try HostileProxy("HTTP/1.1 403 Forbidden\r\n\r\n")
      configuration.proxy = HTTPProxy(host: "127.0.0.1", port: relay.port)
      let proxied = Caller(configuration)
      guard case .failure(let failure) = await proxied.send("https://localhost:\(server.port)/"),
        failure.reason == .proxyFailed
      else { exit(3) }
      await proxied.stop()
    }
  }
}
