// Tests of a server that soon closes idle connections, over real sockets.

import HTTP2TestSupport
import Runtime
import Synchronization
import TestTime
import Testing

@testable import Providers

@Suite("Connections closed while idle", .timeLimit(.minutes(10))) struct IdleEndTests {
  /// The time after which the server closes an idle connection: longer than `HTTP2ConnectionPoolSettings.idleAfter`.
  private static let patience = Nanoseconds.milliseconds(1_600)
  /// The longest wait for the next connection, and the time that an idle machine needs in addition.
  private static let bound = Nanoseconds.seconds(2) + .milliseconds(1_500)

  @Test
  func `a connection that the server closes while idle is replaced within 2 s, each time`() async throws {
    let (peer, bench) = try Self.made()
    let waits = Waits()
    await peer.perform { peer in
      var script = PeerScript()
      script.onOpen = { connection in
        waits.didOpen(connection.loop.now)
        connection.send(RawFrame.settings())
        Self.closeWhenIdle(connection, after: 0, waits)
      }
      script.onRequest = { connection, stream in
        connection.answer(stream)
        Self.closeWhenIdle(connection, after: connection.requestCount, waits)
      }
      peer.arm(script, .always)
    }
    await bench.start()
    for tag in 0..<4 {
      #expect(await bench.push(tag).outcome.isAccepted)
      let count = waits.all.count
      try await eventually("another connection") { waits.all.count > count }
      #expect(waits.all[count] < Self.bound, "\(waits.all[count].milliseconds) ms")
    }
    await bench.stop()
    await peer.perform { $0.close() }
    peer.loop.stop()
  }

  @Test func `a provider tells for how long it has had no connection`() async throws {
    let (peer, bench) = try Self.made()
    await bench.start()
    #expect(await bench.provider.condition.unconnected == .zero)
    await peer.perform { $0.close() }
    try await eventually("it counts") { await bench.provider.condition.unconnected > .milliseconds(100) }
    await bench.stop()
    peer.loop.stop()
  }

  private static func made() throws -> (ScriptedPeer, ProviderBench<HTTP2Provider>) {
    let certificates = TestCertificates.shared
    let contexts = try ScriptedPeer.Contexts(
      certificateFile: certificates.certificateFile, keyFile: certificates.keyFile)
    let clock = PacedClock()
    let peer = try ScriptedPeer(.fcm, contexts, loop: clock.loop("fcm-peer"))
    let endpoint = HTTP2Endpoint(host: "127.0.0.1", port: peer.port, tls: try certificates.client())
    let bench = ProviderBench(
      provider: HTTP2Provider(
        FCMConfiguration(projectID: "p", endpoint: endpoint), tokens: NumberedTokens(),
        loop: clock.loop("fcm-test"), logger: silentLogger))
    return (peer, bench)
  }

  /// Closes a connection that got no request since it had this number of them.
  private static func closeWhenIdle(_ connection: ScriptedConnection, after count: Int, _ waits: Waits) {
    connection.loop.schedule(at: connection.loop.now + patience) {
      guard connection.requestCount == count else { return }
      waits.didClose(connection.loop.now)
      connection.close()
    }
  }

  /// The server's waits for the next connection after each that it closed.
  private final class Waits: Sendable {
    private struct State {
      var closedAt: Instant?
      var all: [Nanoseconds] = []
    }

    private let state = Mutex(State())

    var all: [Nanoseconds] { state.withLock { $0.all } }

    func didClose(_ now: Instant) { state.withLock { $0.closedAt = now } }

    func didOpen(_ now: Instant) {
      state.withLock { state in
        if let closedAt = state.closedAt { state.all.append(now - closedAt) }
        state.closedAt = nil
      }
    }
  }
}
