// TLS of the listeners, tested with other clients: curl, openssl, and the TLS of the connections to providers.

import HTTPSurfaceTestSupport
import Foundation
import HTTP2TestSupport
import Logging
import Runtime
import ServiceLifecycle
import Synchronization
import TestSupport
import TestTime
import Testing

@testable import HTTPSurface
@testable import Settings

/// Keeps log messages with their listener and reason.
private final class LogKeeper: Sendable {
  private let kept = Mutex<[String]>([])
  private let keptCounts = Mutex<[String]>([])
  /// The values of `count`, in lines that have one.
  var counts: [String] { keptCounts.withLock { $0 } }
  var messages: [String] { kept.withLock { $0 } }
  func keep(_ message: String) { kept.withLock { $0.append(message) } }
  func keep(count: String) { keptCounts.withLock { $0.append(count) } }
  func logger() -> Logger { Logger(label: "tls") { _ in Handler(keeper: self) } }

  private struct Handler: LogHandler {
    let keeper: LogKeeper
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.notice

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
      get { metadata[key] }
      set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
      if let count = event.metadata?["count"] { keeper.keep(count: "\(count)") }
      keeper.keep("\(event.message)\(event.metadata?["reason"].map { ": \($0)" } ?? "")")
    }
  }
}

/// A wall clock that the test sets.
private struct FixedClock: GatewayClock {
  var atSeconds: Int64
  func now() -> Instant { SystemClock().now() }
  func wallMilliseconds() -> Int64 { atSeconds * 1000 }
}

@Suite(.timeLimit(.minutes(10))) struct ListenerTLSTests {
  private let pki: ListenerPKI

  init() throws { pki = try ListenerPKI() }

  /// An ops server with TLS, without a gateway behind it.
  private func with(
    clients: GatewayConfiguration.ListenerTLS.ClientCertificates? = nil, connectionsMax: Int = 128,
    keeper: LogKeeper = LogKeeper(), _ body: (_ port: Int, ListenerCredentials) async throws -> Void
  ) async throws {
    let credentials = try ListenerCredentials(
      "http", pki.settings(clients: clients), privacy: .required, logger: keeper.logger())
    let (ports, listening) = AsyncStream.makeStream(of: Int.self)
    let quiet = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
    let server = OpsServer(
      listener: .init(host: "127.0.0.1", port: 0), connectionsMax: connectionsMax, logger: quiet,
      credentials: credentials, routes: [HealthRoutes { .ready }], onListening: { listening.yield($0) })
    let group = ServiceGroup(services: [server], logger: quiet)
    try await withThrowingTaskGroup(of: Void.self) { tasks in
      tasks.addTask {
        defer { listening.finish() }
        try await group.run()
      }
      let port = try #require(await ports.first { _ in true })
      do {
        try await body(port, credentials)
      } catch {
        await group.triggerGracefulShutdown()
        throw error
      }
      await group.triggerGracefulShutdown()
      try await tasks.waitForAll()
    }
  }

  /// The status of curl's answer; 0 if there is none.
  private func curl(_ port: Int, _ arguments: [String] = []) async throws -> Int {
    let words = [
      "curl", "-s", "-m", "100", "-o", "/dev/null", "-w", "'%{http_code}'", "--cacert", pki.ours.caFile,
    ]
    let output = try await ListenerPKI.runApart(
      (words + arguments + ["https://localhost:\(port)/livez"]).joined(separator: " "))
    return Int(output.suffix(3)) ?? 0
  }

  private func status(_ port: Int, believing pair: TestCertificates) async throws -> Int {
    let client = try TLSTestClient(port: port, caFile: pair.caFile)
    guard case .success = await client.handshake() else { return 0 }
    let status = await client.get("/livez")
    await client.close()
    return status
  }

  // MARK: - Handshakes

  @Test func `curl and our own client are served with HTTP 1.1, and nothing older than TLS 1.2 is accepted`()
    async throws
  {
    try await with { port, _ in
      let client = try TLSTestClient(port: port, caFile: pki.ours.caFile)
      #expect(try await client.handshake().get() == "http/1.1")
      #expect(await client.get("/livez") == 200)
      #expect(await client.get("/readyz") == 200)
      await client.close()
      for version in ["--tlsv1.3", "--tls-max 1.2"] { #expect(try await curl(port, [version]) == 200) }
      #expect(try await curl(port, ["--cacert", pki.others.caFile]) == 0)
      // The client would agree to these versions; the server refuses them.
      for version in ["-tls1", "-tls1_1"] {
        let said = try await ListenerPKI.runApart(
          "openssl s_client \(version) -cipher ALL:@SECLEVEL=0 -connect 127.0.0.1:\(port) </dev/null")
        #expect(said.contains("alert protocol version"), "\(said)")
      }
      let weak = try await ListenerPKI.runApart(
        "openssl s_client -tls1_2 -cipher ECDHE-ECDSA-AES128-SHA:AES128-SHA:@SECLEVEL=0 -connect 127.0.0.1:\(port) </dev/null"
      )
      #expect(weak.contains("handshake failure"), "\(weak)")
    }
  }

  @Test func `a client cannot repeat the handshake on an open connection`() async throws {
    try await with { port, _ in
      // `R` requests a renegotiation. A server that allowed it would answer the request after it.
      let said = try await ListenerPKI.runApart(
        """
        (printf 'GET /livez HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n'; sleep 1; echo R; sleep 2;
          printf 'GET /livez HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n'; sleep 1) |
          openssl s_client -tls1_2 -connect localhost:\(port) -CAfile \(pki.ours.caFile)
        """)
      #expect(said.contains("RENEGOTIATING"), "\(said)")
      #expect(said.matches(of: /HTTP\/1.1 200/).count == 1, "\(said)")
      #expect(try await curl(port) == 200)
    }
  }

  @Test func `clear text at the TLS port is not answered as HTTP, and the connection ends`() async throws {
    try await with(connectionsMax: 1) { port, _ in
      for text in ["GET /livez HTTP/1.1\r\nHost: ops\r\n\r\n", "\0\0\0\0\0\0\0\0", "SSH-2.0-x\r\n"] {
        let socket = try TestSocket(port: port)
        let answer = String(decoding: await socket.exchange(Array(text.utf8)), as: UTF8.self)
        socket.close()
        #expect(!answer.contains("HTTP/"), "\(answer)")
        // Its seat is free again.
        try await eventually("a seat") { try await curl(port) == 200 }
      }
    }
  }

  @Test func `connections with a stalled handshake are counted, and evicted by new ones`() async throws {
    try await with(connectionsMax: 2) { port, _ in
      let silent = try TestSocket(port: port)
      let stalled = try TestSocket(port: port)
      stalled.write(ClientHello.beginning)
      #expect(try await curl(port) == 200)
      #expect(try await curl(port) == 200)
      // One connection found no seat, and was closed without an answer.
      let answers = await withTaskGroup(of: [UInt8].self) { tasks in
        for socket in [silent, stalled] { tasks.addTask { await socket.exchange([]) } }
        return await tasks.next()
      }
      #expect(answers == [])
      silent.close()
      stalled.close()
    }
  }

  // MARK: - Renewals

  @Test func `a new certificate is used for new connections, and open ones continue`() async throws {
    let keeper = LogKeeper()
    try await with(keeper: keeper) { port, credentials in
      let open = try TLSTestClient(port: port, caFile: pki.ours.caFile)
      #expect(await open.get("/livez") == 200)
      credentials.look()
      #expect(keeper.messages == [])
      try pki.install(certificateOf: pki.others)
      try pki.install(keyOf: pki.others)
      credentials.look()
      #expect(keeper.messages == ["A listener's certificate was read again"])
      #expect(try await status(port, believing: pki.ours) == 0)
      #expect(try await status(port, believing: pki.others) == 200)
      #expect(await open.get("/livez") == 200)
      await open.close()
    }
  }

  @Test func `while certificate and key do not match, the old ones stay in use, and that is logged once`()
    async throws
  {
    let keeper = LogKeeper()
    try await with(keeper: keeper) { port, credentials in
      try pki.install(keyOf: pki.others)
      for _ in 0..<3 { credentials.look() }
      #expect(
        keeper.messages == [
          "A listener's new certificate cannot be used: the current one stays in use: \(pki.keyFile) is not the key of the first "
            + "certificate in \(pki.certificateFile): name the key that belongs to it, and put the listener's own certificate first"
        ])
      #expect(try await status(port, believing: pki.ours) == 200)
      try pki.install(certificateOf: pki.others)
      credentials.look()
      #expect(keeper.messages.last == "A listener's certificate was read again")
      #expect(try await status(port, believing: pki.others) == 200)
    }
  }

  @Test func `if the new files cannot be used, the old certificate stays in use`() async throws {
    let keeper = LogKeeper()
    try await with(keeper: keeper) { port, credentials in
      let whole = try Data(contentsOf: URL(filePath: pki.others.certificateFile))
      try SecretFixture.write(whole.prefix(100), to: pki.certificateFile)
      credentials.look()
      #expect(keeper.messages.last?.contains("certificate \(pki.certificateFile): is cut off") == true)
      try FileManager.default.removeItem(atPath: pki.certificateFile)
      credentials.look()
      #expect(keeper.messages.last?.hasSuffix("certificate file \(pki.certificateFile): no such file") == true)
      try pki.install(certificateOf: pki.others)
      try pki.install(keyOf: pki.others, mode: 0o644)
      credentials.reload()
      #expect(keeper.messages.last?.contains("\(pki.keyFile): its mode 0644 lets every user") == true)
      #expect(try await status(port, believing: pki.ours) == 200)
      // Only the mode of the file has changed. The files are still tried again.
      try FileManager.default.setAttributes([.posixPermissions: 0o640], ofItemAtPath: pki.keyFile)
      credentials.look()
      #expect(try await status(port, believing: pki.others) == 200)
    }
  }

  @Test func `a replaced link is noticed, because Kubernetes and certbot renew in this way`() async throws {
    for (name, pair) in [("one", pki.ours), ("two", pki.others)] {
      try FileManager.default.createDirectory(atPath: "\(pki.folder)/\(name)", withIntermediateDirectories: true)
      try SecretFixture.write(
        Data(contentsOf: URL(filePath: pair.certificateFile)), to: "\(pki.folder)/\(name)/server.pem")
      try SecretFixture.write(Data(contentsOf: URL(filePath: pair.keyFile)), to: "\(pki.folder)/\(name)/server.key")
    }
    try ListenerPKI.run(
      "cd \(pki.folder) && ln -s one data && ln -sf data/server.pem server.pem && ln -sf data/server.key server.key")
    try await with { port, credentials in
      #expect(try await status(port, believing: pki.ours) == 200)
      try ListenerPKI.run("cd \(pki.folder) && ln -s two next && mv -T next data")
      credentials.look()
      #expect(try await status(port, believing: pki.others) == 200)
    }
  }

  // MARK: - Clients' certificates

  @Test func `a client without the right certificate is not served where one is required`() async throws {
    let (right, wrong) = (try pki.client(of: pki.ours), try pki.client(of: pki.others))
    let servers = try pki.client(of: pki.ours, purpose: "serverAuth")
    try await with(clients: .required) { port, _ in
      for version in ["--tlsv1.3", "--tls-max 1.2"] {
        for (certificate, expected) in [([], 0), (wrong, 0), (servers, 0), (right, 200)] {
          let found = try await curl(port, [version] + certificate)
          #expect(found == expected, "\(version) \(certificate)")
        }
      }
    }
    try await with(clients: .optional) { port, _ in
      for (certificate, expected) in [([], 200), (wrong, 0), (right, 200)] {
        let found = try await curl(port, certificate)
        #expect(found == expected, "\(certificate)")
      }
    }
  }

  @Test func `each refused handshake is logged and counted, by reason`() async throws {
    let wrong = try pki.client(of: pki.others)
    let keeper = LogKeeper()
    try await with(clients: .required, keeper: keeper) { port, credentials in
      func fail(_ reason: HandshakeFailures.Reason, _ client: () async throws -> Void) async throws {
        let before = HandshakeFailures.Reason.allCases.map { credentials.handshakeFailures.count($0) }
        try await client()
        try await eventually("\(reason) is counted") { credentials.handshakeFailures.count(reason) > 0 }
        let after = HandshakeFailures.Reason.allCases.map { credentials.handshakeFailures.count($0) }
        #expect(zip(before, after).count { $0 != $1 } == 1, "\(reason)")
      }
      try await fail(.noCertificate) { _ = try await curl(port) }
      try await fail(.wrongCertificate) { _ = try await curl(port, wrong) }
      try await fail(.refusedByClient) { _ = try await curl(port, ["--cacert", pki.others.caFile]) }
      try await fail(.protocol) {
        let socket = try TestSocket(port: port)
        _ = await socket.exchange(Array("GET /livez HTTP/1.1\r\nHost: ops\r\n\r\n".utf8))
        socket.close()
      }
      let reasons = ["no_certificate", "wrong_certificate", "refused_by_client", "protocol"]
      #expect(keeper.messages == reasons.map { "A TLS handshake failed: \($0)" })
      let metrics = Metrics(lanes: [])
      metrics.watch([credentials])
      let exposition = try MetricsExposition(await metrics.exposition(.prometheus, readiness: .ready), false)
      for reason in reasons {
        let series = #"push_gateway_tls_handshake_failures_total{listener="http",reason="\#(reason)"}"#
        #expect(exposition.samples[series] == 1, "\(reason)")
      }
    }
  }

  @Test func `a flood of failed handshakes causes one line a second, with their number`() {
    let keeper = LogKeeper()
    let clock = ManualClock()
    let failures = HandshakeFailures(listener: "api", logger: keeper.logger(), clock: clock)
    for _ in 0..<1_000 { failures.note(.noCertificate, of: .unknown) }
    #expect(keeper.messages.count == 1 && failures.count(.noCertificate) == 1_000)
    clock.advance(.seconds(1))
    failures.note(.noCertificate, of: .unknown)
    #expect(keeper.messages.count == 2 && keeper.counts == ["1", "1000"])
  }

  @Test func `if the clients' authorities cannot be read, the current ones stay in use`() async throws {
    let settings = GatewayConfiguration.ListenerTLS(
      certificateFile: pki.certificateFile, keyFile: pki.keyFile, clientCAFile: pki.folder + "/clients.pem")
    let ours = try Data(contentsOf: URL(filePath: pki.ours.caFile))
    try SecretFixture.write(ours, to: pki.folder + "/clients.pem", mode: 0o644)
    let keeper = LogKeeper()
    let credentials = try ListenerCredentials("api", settings, privacy: .required, logger: keeper.logger())
    // With a file without certificates nobody could be verified. That must not turn off the verification.
    try SecretFixture.write("", to: pki.folder + "/clients.pem")
    credentials.look()
    #expect(keeper.messages.last?.contains("clients.pem: no usable CA certificate (PEM)") == true)
    try SecretFixture.write(ours, to: pki.folder + "/clients.pem")
    credentials.look()
    #expect(keeper.messages.last == "A listener's certificate was read again")
  }

  // MARK: - Dates

  @Test func `a certificate that expires soon is warned of, and an expired one does not replace a valid one`() throws {
    let end = try ListenerCertificate(pki.settings(), privacy: .required).expiresAtSeconds
    #expect(end > SystemClock().wallMilliseconds() / 1000)
    func messages(at seconds: Int64) throws -> [String] {
      let keeper = LogKeeper()
      _ = try ListenerCredentials(
        "http", pki.settings(), privacy: .required, clock: FixedClock(atSeconds: seconds), logger: keeper.logger())
      return keeper.messages
    }
    #expect(try messages(at: end - 15 * 86_400) == [])
    #expect(try messages(at: end - 13 * 86_400) == ["A listener's certificate expires soon, or has expired"])
    #expect(try messages(at: end + 1) == ["A listener's certificate expires soon, or has expired"])

    let keeper = LogKeeper()
    let clock = FixedClock(atSeconds: SystemClock().wallMilliseconds() / 1000 + 3 * 86_400)
    let credentials = try ListenerCredentials(
      "http", pki.settings(), privacy: .required, clock: clock, logger: keeper.logger())
    try ListenerPKI.run(
      "openssl req -x509 -newkey rsa:2048 -nodes -keyout \(pki.keyFile) -out \(pki.certificateFile) -days 1 -subj /CN=localhost"
    )
    credentials.look()
    #expect(keeper.messages.count == 1 && keeper.messages[0].contains("expired on 2"), "\(keeper.messages)")
    #expect(credentials.expiresAtSeconds == end)
  }

  @Test func `a metric shows when the certificate expires`() async throws {
    let credentials = try ListenerCredentials(
      "api", pki.settings(), privacy: .required, logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    let metrics = Metrics(lanes: [])
    metrics.watch([credentials])
    let exposition = try MetricsExposition(await metrics.exposition(.prometheus, readiness: .ready), false)
    #expect(
      exposition.samples["push_gateway_certificate_expiry_timestamp_seconds{listener=\"api\"}"]
        == Double(credentials.expiresAtSeconds))
  }
}
