// Tests of the HTTP/2 connection over real TLS with a server that misbehaves on request.

import HTTP2TestSupport
import Runtime
import Testing

@Suite(.timeLimit(.minutes(10))) struct HTTP2ConnectionTests {
  @Test func `the error for a name that does not resolve contains the name`() async throws {
    let probe = ConnectionProbe(
      HTTP2Endpoint(host: "no-such-host.invalid", port: 443, tls: try TestCertificates.shared.client()))
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
}
