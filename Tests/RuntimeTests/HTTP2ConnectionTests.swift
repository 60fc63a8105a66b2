// Tests of the HTTP/2 connection over real TLS, with nghttpd and with a server that misbehaves on request.

import Foundation
import HTTP2TestSupport
import Runtime
import Testing

/// Owns one connection on a loop and lets a test await its events.
// @unchecked: everything is touched on the loop only.
private final class ConnectionProbe: HTTP2ConnectionDelegate, @unchecked Sendable {
  let loop = EventLoop(name: "test-client")
  let connection: HTTP2Connection
  var limits: [Int] = []
  var ended: [Int: HTTP2Exchange] = [:]
  var endings = 0
  var goingAway: [String] = []
  var healths: [HTTP2ConnectionHealth] = []
  var isClosed = false
  /// The requests that may not be written; nil: all may.
  var withheld: Set<Int>?
  var error: HTTP2Error?
  private var waiting: (condition: (ConnectionProbe) -> Bool, continuation: CheckedContinuation<Void, Never>)?

  init(_ endpoint: HTTP2Endpoint, _ change: (inout HTTP2ConnectionSettings) -> Void = { _ in }) {
    var settings = HTTP2ConnectionSettings()
    change(&settings)
    connection = HTTP2Connection(endpoint, settings: settings, loop: loop)
    connection.delegate = self
    loop.execute { self.connection.connect() }
  }

  func stop() { loop.stop() }

  /// Queues requests in one turn; the tags are the indices of `paths`, beginning with `first`.
  func request(_ paths: [String], body: [UInt8] = [], first: Int = 0, timeout: Nanoseconds = .seconds(20)) {
    loop.execute { [self] in
      for (index, path) in paths.enumerated() {
        let tag = first + index
        var head = HTTP2RequestHead([
          ":method": body.isEmpty ? "GET" : "POST", ":scheme": "https", ":authority": connection.endpoint.authority,
        ])
        head.add(.path, path)
        if !connection.request(head, body: body, deadline: loop.now + timeout, tag: tag) {
          ended[tag] = HTTP2Exchange(.refused("not taken"), sentAt: nil, endedAt: loop.now)
        }
      }
    }
  }

  /// From now on these requests may not be written, as if the process had been stopped for a while.
  func withhold(_ requests: Set<Int>) {
    loop.execute { self.withheld = requests }
  }

  func connection(_ connection: HTTP2Connection, mayWriteRequestsAt now: Instant) -> Bool { withheld == nil }

  func connection(_ connection: HTTP2Connection, mayWrite tag: Int, at now: Instant) -> Bool {
    withheld.map { !$0.contains(tag) } ?? true
  }

  func perform(_ body: @escaping @Sendable (HTTP2Connection) -> Void) {
    loop.execute { body(self.connection) }
  }

  /// Returns when `condition` holds; it is checked after each event.
  func wait(until condition: @escaping @Sendable (ConnectionProbe) -> Bool) async {
    await withCheckedContinuation { continuation in
      loop.execute { [self] in
        waiting = (condition, continuation)
        check()
      }
    }
  }

  private func check() {
    guard let (condition, continuation) = waiting, condition(self) else { return }
    waiting = nil
    continuation.resume()
  }

  func connection(_ connection: HTTP2Connection, didLimitStreamsTo streamsMax: Int) {
    limits.append(streamsMax)
    check()
  }
  func connection(_ connection: HTTP2Connection, didEnd tag: Int, _ exchange: HTTP2Exchange) {
    endings += 1
    ended[tag] = exchange
    check()
  }
  func connection(_ connection: HTTP2Connection, didBecome health: HTTP2ConnectionHealth) {
    healths.append(health)
    check()
  }
  func connection(_ connection: HTTP2Connection, isGoingAwayBecause reason: String) {
    goingAway.append(reason)
    check()
  }
  func connection(_ connection: HTTP2Connection, didCloseWith error: HTTP2Error?) {
    isClosed = true
    self.error = error
    check()
  }

  var statuses: [UInt16] {
    ended.values.compactMap { if case .response(let message) = $0.result { message.status } else { nil } }
  }
  func kind(_ tag: Int) -> String {
    switch ended[tag]?.result {
    case .response(let message): "\(message.status)"
    case .refused: "refused"
    case .timedOut: "timedOut"
    case .lost: "lost"
    case nil: "none"
    }
  }
}

private func endpoint(_ port: UInt16, host: String = "localhost", tls: TLSContext? = nil) throws -> HTTP2Endpoint {
  HTTP2Endpoint(host: host, port: port, tls: try tls ?? TestCertificates.shared.client())
}

@Suite(.timeLimit(.minutes(10))) struct HTTP2ConnectionTests {
  @Suite(.timeLimit(.minutes(10))) struct AgainstNghttpd {
    @Test(arguments: ["localhost", "127.0.0.1"])
    func `requests are answered`(host: String) async throws {
      let server = try NghttpdServer()
      let probe = ConnectionProbe(try endpoint(server.port, host: host))
      await probe.wait { !$0.limits.isEmpty }
      #expect(probe.limits == [100])
      probe.request(["/index.html", "/missing"])
      await probe.wait { $0.ended.count == 2 }
      #expect(probe.kind(0) == "200")
      #expect(probe.kind(1) == "404")
      #expect(probe.ended[0]?.sentAt != nil)
      probe.perform { $0.drain() }
      await probe.wait { $0.isClosed }
      #expect(probe.error == nil)
      probe.stop()
    }

    @Test func `queued requests without a valid permit are refused when the connection is lost`() async throws {
      let server = try NghttpdServer()
      let probe = ConnectionProbe(try endpoint(server.port))
      await probe.wait { !$0.limits.isEmpty }
      probe.request(["/index.html"])
      await probe.wait { $0.ended.count == 1 }
      probe.withhold([0, 1])
      probe.request(["/index.html", "/missing"])
      await probe.wait { $0.isClosed }
      #expect(probe.kind(0) == "refused")
      #expect(probe.kind(1) == "refused")
      #expect(probe.ended[0]?.sentAt == nil)
      probe.stop()
    }

    @Test func `a queued request without a valid permit is refused, and the others are sent`() async throws {
      let server = try NghttpdServer("-m", "1")
      let probe = ConnectionProbe(try endpoint(server.port))
      await probe.wait { !$0.limits.isEmpty }
      // The first gets the only stream; the others wait for it, and one of them may not be written.
      probe.request(["/index.html"])
      probe.withhold([2])
      probe.request(["/index.html", "/missing"], first: 1)
      await probe.wait { $0.ended.count == 3 }
      #expect(probe.kind(0) == "200")
      #expect(probe.kind(1) == "200")
      #expect(probe.kind(2) == "refused")
      #expect(probe.ended[2]?.sentAt == nil)
      #expect(!probe.isClosed)
      probe.stop()
    }

    @Test func `a thousand requests share the streams that the server allows`() async throws {
      let server = try NghttpdServer("-m", "3")
      let probe = ConnectionProbe(try endpoint(server.port))
      await probe.wait { !$0.limits.isEmpty }
      #expect(probe.limits == [3])
      probe.request([String](repeating: "/index.html", count: 1000))
      await probe.wait { $0.ended.count == 1000 }
      #expect(probe.statuses == [UInt16](repeating: 200, count: 1000))
      #expect(probe.endings == 1000)
      probe.stop()
    }

    @Test func `a large body passes small windows in both directions`() async throws {
      let server = try NghttpdServer("--echo-upload", "-w", "10", "-W", "16")
      let body = (0..<1_000_000).map { UInt8(truncatingIfNeeded: $0 &* 31 >> 3) }
      let probe = ConnectionProbe(try endpoint(server.port)) {
        $0.session.bodyBytesMax = 2_000_000
        $0.session.budget.creditsMax = 100_000
        $0.session.streamWindowBytes = 20_000
        $0.outputBytesMax = 10_000
      }
      await probe.wait { !$0.limits.isEmpty }
      probe.request(["/a", "/b", "/c"], body: body)
      await probe.wait { $0.ended.count == 3 }
      for tag in 0..<3 {
        guard case .response(let message) = probe.ended[tag]?.result else {
          Issue.record("\(probe.kind(tag))")
          continue
        }
        #expect(message.body == body)
      }
      probe.stop()
    }

    @Test func `a server with a certificate of an unknown CA is not trusted`() async throws {
      let server = try NghttpdServer()
      let probe = ConnectionProbe(try endpoint(server.port, tls: TLSContext.client()))
      await probe.wait { $0.isClosed }
      let error = try #require(probe.error).description
      #expect(error.contains("the certificate of localhost is not accepted"))
      #expect(error.contains("self-signed certificate in certificate chain") || error.contains("unable to get"))
      probe.stop()
    }

    @Test func `the error for a closed port says that the connection was refused`() async throws {
      let port = try ServerProcess.freePort()
      let probe = ConnectionProbe(try endpoint(port, host: "127.0.0.1"))
      await probe.wait { $0.isClosed }
      let error = try #require(probe.error).description
      #expect(error.contains("127.0.0.1:\(port)"))
      #expect(error.lowercased().contains("connection refused"))
      probe.stop()
    }
  }

  @Test func `the error for a name that does not resolve contains the name`() async throws {
    let probe = ConnectionProbe(try endpoint(443, host: "no-such-host.invalid"))
    await probe.wait { $0.isClosed }
    #expect(try #require(probe.error).description.contains("no-such-host.invalid cannot be resolved"))
    probe.stop()
  }

  @Test func `the attempt ends if the server sends no SETTINGS`() async throws {
    let server = try HTTP2TestServer { $0.respond(200) }
    _ = await server.perform { $0.isMute = true }
    let probe = ConnectionProbe(try server.endpoint()) { $0.settingsTimeout = .milliseconds(50) }
    await probe.wait { $0.isClosed }
    #expect(probe.limits.isEmpty)
    #expect(try #require(probe.error).description.contains("no SETTINGS"))
    probe.stop()
  }

  @Test func `the attempt ends if the server allows no streams`() async throws {
    var settings = HTTP2SessionSettings()
    settings.streamsMax = 0
    let server = try HTTP2TestServer(settings: settings) { $0.respond(200) }
    let probe = ConnectionProbe(try server.endpoint()) { $0.settingsTimeout = .seconds(2) }
    await probe.wait { $0.isClosed }
    #expect(probe.limits.isEmpty)
    #expect(try #require(probe.error).description.contains("no streams are allowed"))
    probe.stop()
  }

  @Test func `a connection is closed if its server allows no more streams`() async throws {
    let server = try HTTP2TestServer { exchange in
      exchange.connection.session.limitStreams(to: 0)
      exchange.respond(200)
    }
    let probe = ConnectionProbe(try server.endpoint()) { $0.settingsTimeout = .seconds(2) }
    await probe.wait { !$0.limits.isEmpty }
    probe.request(["/"])
    await probe.wait { $0.isClosed }
    #expect(probe.kind(0) == "200")
    #expect(probe.goingAway == ["no streams are allowed"])
    probe.stop()
  }

  @Test func `at its deadline a request whose body waits for the server's window is refused`() async throws {
    var settings = HTTP2SessionSettings()
    settings.streamWindowBytes = 0
    let server = try HTTP2TestServer(settings: settings) { $0.respond(200) }
    let probe = ConnectionProbe(try server.endpoint())
    await probe.wait { !$0.limits.isEmpty }
    probe.request(["/held"], body: [1, 2, 3], timeout: .seconds(1))
    await probe.wait { $0.ended.count == 1 }
    #expect(probe.kind(0) == "refused")
    #expect(probe.ended[0]?.sentAt != nil)
    probe.stop()
  }

  @Test func `on a lost connection a request whose body waits for the server's window is refused`() async throws {
    var settings = HTTP2SessionSettings()
    settings.streamWindowBytes = 0
    let server = try HTTP2TestServer(settings: settings) { $0.connection.drop() }
    let probe = ConnectionProbe(try server.endpoint())
    await probe.wait { !$0.limits.isEmpty }
    probe.request(["/held"], body: [1, 2, 3])
    probe.request(["/whole"], first: 1)
    await probe.wait { $0.isClosed }
    #expect((0..<2).map(probe.kind) == ["refused", "lost"])
    probe.stop()
  }

  @Test func `after GOAWAY requests up to the last stream are finished, and the rest are refused`() async throws {
    var held: [HTTP2TestServer.Exchange] = []
    let server = try HTTP2TestServer { exchange in
      held.append(exchange)
      guard held.count == 3 else { return }
      let session = exchange.connection.session
      session.goAway(lastStream: held[1].stream, debugData: Array(#"{"reason":"Shutdown"}"#.utf8))
      for exchange in held[0...1] { exchange.respond(200) }
    }
    let probe = ConnectionProbe(try server.endpoint())
    await probe.wait { !$0.limits.isEmpty }
    probe.request(["/0", "/1", "/2"])
    await probe.wait { $0.isClosed }
    #expect((0..<3).map(probe.kind) == ["200", "200", "refused"])
    #expect(probe.goingAway.count == 1)
    #expect(probe.goingAway[0] == "GOAWAY NO_ERROR: Shutdown")
    #expect(probe.error == nil)
    probe.stop()
  }

  @Test(arguments: [
    ("max_age", "max_age"), (#"{"reason":"/3/device/00aabbcc"}"#, "(unreadable)"),
    ("/3/device/00aabbcc", "(unreadable)"),
    (String(repeating: "a", count: 64), "(unreadable)"), ("\u{1B}[2J", "(unreadable)"),
    (#"{"reason":7}"#, "(unreadable)"),
  ])
  func `the debug data of a GOAWAY is repeated only if it is one word, as it may quote a request with its token`(
    debugData: String, word: String
  ) async throws {
    let server = try HTTP2TestServer { exchange in
      exchange.connection.session.goAway(lastStream: exchange.stream, debugData: Array(debugData.utf8))
      exchange.respond(200)
    }
    let probe = ConnectionProbe(try server.endpoint())
    await probe.wait { !$0.limits.isEmpty }
    probe.request(["/0"])
    await probe.wait { $0.isClosed }
    #expect(probe.goingAway == ["GOAWAY NO_ERROR: \(word)"])
    probe.stop()
  }

  @Test func `the outcome of sent requests is unknown after a connection is lost`() async throws {
    let server = try HTTP2TestServer { exchange in
      if exchange.message.headers.text(":path") == "/drop" { exchange.connection.drop() }
    }
    let probe = ConnectionProbe(try server.endpoint())
    await probe.wait { !$0.limits.isEmpty }
    probe.request(["/hold", "/drop"])
    await probe.wait { $0.isClosed }
    #expect((0..<2).map(probe.kind) == ["lost", "lost"])
    #expect(probe.ended.values.allSatisfy { $0.sentAt != nil })
    #expect(probe.error != nil)
    probe.stop()
  }

  @Test func `a request that waits for a stream is refused when the connection is lost`() async throws {
    var settings = HTTP2SessionSettings()
    settings.streamsMax = 1
    let server = try HTTP2TestServer(settings: settings) { $0.connection.drop() }
    let probe = ConnectionProbe(try server.endpoint())
    await probe.wait { !$0.limits.isEmpty }
    probe.request(["/0", "/1"])
    await probe.wait { $0.isClosed }
    #expect((0..<2).map(probe.kind) == ["lost", "refused"])
    #expect(probe.ended[1]?.sentAt == nil)
    probe.stop()
  }

  @Test func `a request without an answer times out, and its stream is cancelled`() async throws {
    let server = try HTTP2TestServer { exchange in
      if exchange.message.headers.text(":path") == "/answer" { exchange.respond(200) }
    }
    let probe = ConnectionProbe(try server.endpoint())
    await probe.wait { !$0.limits.isEmpty }
    probe.request(["/hold"], timeout: .seconds(1))
    await probe.wait { $0.ended.count == 1 }
    #expect(probe.kind(0) == "timedOut")
    #expect(probe.ended[0]?.sentAt != nil)
    // The connection goes on, and the stream's number is free again.
    probe.request(["/answer"])
    await probe.wait { $0.kind(0) == "200" }
    #expect(probe.endings == 2)
    probe.stop()
  }

  @Test func `the server can lower its stream limit at run time`() async throws {
    let server = try HTTP2TestServer { exchange in
      exchange.connection.session.limitStreams(to: 7)
      exchange.respond(200)
    }
    let probe = ConnectionProbe(try server.endpoint()) { $0.streamsMax = 50 }
    await probe.wait { !$0.limits.isEmpty }
    probe.request(["/"])
    await probe.wait { $0.limits.count == 2 }
    #expect(probe.limits == [50, 7])
    probe.stop()
  }

  @Test func `a silent server is detected by PING`() async throws {
    let server = try HTTP2TestServer { $0.connection.mute() }
    let probe = ConnectionProbe(try server.endpoint()) {
      $0.liveness.silenceBeforePing = .milliseconds(20)
      $0.liveness.doubtAfterPing = .milliseconds(200)
      $0.liveness.pingTimeout = .seconds(2)
    }
    await probe.wait { !$0.limits.isEmpty }
    probe.request(["/"])
    await probe.wait { $0.isClosed }
    #expect(probe.kind(0) == "lost")
    #expect(try #require(probe.error).description.contains("PING"))
    #expect(probe.healths == [.doubtful])
    probe.stop()
  }

  @Test func `a slow answer is awaited while PINGs are answered`() async throws {
    let server = try HTTP2TestServer { exchange in
      let loop = exchange.connection.loop
      loop.schedule(at: loop.now + .milliseconds(100)) { exchange.respond(200) }
    }
    let probe = ConnectionProbe(try server.endpoint()) {
      $0.liveness.silenceBeforePing = .milliseconds(10)
      $0.liveness.pingTimeout = .seconds(30)
    }
    await probe.wait { !$0.limits.isEmpty }
    probe.request(["/"])
    await probe.wait { $0.ended.count == 1 }
    #expect(probe.kind(0) == "200")
    #expect(!probe.isClosed)
    probe.stop()
  }

  @Test func `a server that answers only PINGs is unresponsive until it answers a request`() async throws {
    let server = try HTTP2TestServer { $0.connection.hold($0) }
    let probe = ConnectionProbe(try server.endpoint()) {
      $0.liveness.silenceBeforePing = .milliseconds(20)
      $0.liveness.answerTimeout = .milliseconds(50)
    }
    await probe.wait { !$0.limits.isEmpty }
    probe.request(["/"])
    await probe.wait { $0.healths.last == .unresponsive }
    #expect(probe.healths == [.unanswered, .unresponsive])
    await server.perform { $0.held[0].respond(200) }
    await probe.wait { $0.ended.count == 1 }
    #expect(probe.kind(0) == "200")
    #expect(probe.healths.last == .sound)
    #expect(!probe.isClosed)
    probe.stop()
  }

  @Test func `after the last stream id the connection is drained, and other requests are refused`() async throws {
    let server = try HTTP2TestServer { $0.respond(200) }
    let probe = ConnectionProbe(try server.endpoint()) { $0.session.firstStreamID = .max - 4 }
    await probe.wait { !$0.limits.isEmpty }
    probe.request(["/1"])
    await probe.wait { $0.ended.count == 1 }
    #expect(probe.goingAway.isEmpty)
    probe.request(["/2", "/3", "/none", "/left"])
    await probe.wait { $0.isClosed }
    #expect((0..<4).map(probe.kind) == ["200", "200", "refused", "refused"])
    #expect(probe.goingAway == ["all stream ids of the connection have been used"])
    #expect(probe.error == nil)
    #expect(await server.perform { $0.requestCount } == 3)
    probe.stop()
  }

  @Test func `requests that wait for a stream are refused when the stream ids are used up`() async throws {
    var settings = HTTP2SessionSettings()
    settings.streamsMax = 1
    let server = try HTTP2TestServer(settings: settings) { $0.respond(200) }
    let probe = ConnectionProbe(try server.endpoint()) { $0.session.firstStreamID = .max - 4 }
    await probe.wait { !$0.limits.isEmpty }
    probe.request((0..<6).map { "/\($0)" })
    await probe.wait { $0.isClosed }
    #expect((0..<6).map(probe.kind) == ["200", "200", "200", "refused", "refused", "refused"])
    #expect(probe.endings == 6)
    probe.stop()
  }

  @Test func `a refused stream is reported as not processed`() async throws {
    let server = try HTTP2TestServer { exchange in
      exchange.connection.session.reset(exchange.stream, .refusedStream)
      exchange.connection.flushLater()
    }
    let probe = ConnectionProbe(try server.endpoint())
    await probe.wait { !$0.limits.isEmpty }
    probe.request(["/"])
    await probe.wait { $0.ended.count == 1 }
    #expect(probe.kind(0) == "refused")
    probe.stop()
  }

  @Test func `when a connection is closed, the outcome of every request is reported`() async throws {
    let server = try HTTP2TestServer { _ in }
    let probe = ConnectionProbe(try server.endpoint())
    await probe.wait { !$0.limits.isEmpty }
    probe.request(["/0", "/1"])
    await probe.wait { _ in true }
    probe.perform { $0.close("enough") }
    await probe.wait { $0.isClosed }
    #expect((0..<2).map(probe.kind) == ["lost", "lost"])
    #expect(probe.endings == 2)
    #expect(probe.error == nil)
    probe.stop()
  }
}

@Suite(.timeLimit(.minutes(10))) struct HTTP2EndpointTests {
  @Test func `valid URLs are parsed, and invalid ones are refused`() throws {
    let tls = try TLSContext.client()
    #expect(try HTTP2Endpoint(url: "https://api.push.apple.com", tls: tls).authority == "api.push.apple.com")
    #expect(try HTTP2Endpoint(url: "https://api.push.apple.com:2197/", tls: tls).authority == "api.push.apple.com:2197")
    let v6 = try HTTP2Endpoint(url: "https://[::1]:8443", tls: tls)
    #expect(v6.host == "::1")
    #expect(v6.authority == "[::1]:8443")
    for url in ["http://a", "https://", "https://a/b", "https://a:0", "https://a:x", "https://u@a", "a"] {
      #expect(throws: HTTP2Error.self) { try HTTP2Endpoint(url: url, tls: tls) }
    }
  }

  @Test func `the error for a file that cannot be used names the file`() throws {
    let missing = "/no/such/file.pem"
    #expect { try TLSContext.client(caFile: missing) } throws: { "\($0)".contains(missing) }
    #expect { try TLSContext.server(certificateFile: missing, keyFile: missing) } throws: { "\($0)".contains(missing) }
    let shared = TestCertificates.shared
    let stranger = TestCertificates.stranger
    #expect { try TLSContext.server(certificateFile: shared.certificateFile, keyFile: stranger.keyFile) } throws: {
      "\($0)".contains(stranger.keyFile)
    }
  }
}
