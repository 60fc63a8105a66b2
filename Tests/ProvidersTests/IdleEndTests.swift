// A server with little patience for connections that have nothing to do, over real sockets.

import HTTP2TestSupport
import Runtime
import Testing

@testable import Providers

@Suite("Connections closed while idle", .timeLimit(.minutes(1))) struct IdleEndTests {
  /// How long the server keeps a connection that has nothing to do: longer than `HTTP2ConnectionPoolSettings.idleAfter`.
  private static let patience = Nanoseconds.milliseconds(1_300)
  /// The longest wait for the next connection, and what a busy machine may need besides.
  private static let bound = Nanoseconds.seconds(2) + .milliseconds(1_500)

  @Test("a connection that the server closes while it is idle is there again within 2 s, each time")
  func replaced() async throws {
    let certificates = TestCertificates.shared
    let contexts = try ScriptedPeer.Contexts(
      certificateFile: certificates.certificateFile, keyFile: certificates.keyFile)
    let peer = try ScriptedPeer(.fcm, contexts)
    await peer.perform { peer in
      var script = PeerScript()
      script.onOpen = { connection in
        connection.send(RawFrame.settings())
        Self.closeWhenIdle(connection, after: 0)
      }
      script.onRequest = { connection, stream in
        connection.answer(stream)
        Self.closeWhenIdle(connection, after: connection.requestCount)
      }
      peer.arm(script, .always)
    }
    let endpoint = HTTP2Endpoint(host: "127.0.0.1", port: peer.port, tls: try certificates.client())
    let bench = ProviderBench<FCMProvider>(
      provider: FCMProvider(
        FCMConfiguration(projectID: "p", endpoint: endpoint), tokens: NumberedTokens(),
        loop: EventLoop(name: "fcm-test"), logger: silentLogger))
    await bench.start()
    for tag in 0..<4 {
      #expect(await bench.push(tag).outcome.isAccepted)
      await bench.reports.capacity { $0 == 0 }
      let closedAt = bench.provider.loop.now
      await bench.reports.capacity { $0 > 0 }
      let wait = bench.provider.loop.now - closedAt
      #expect(wait < Self.bound, "after \(wait.milliseconds) ms")
    }
    await bench.stop()
    await peer.perform { $0.close() }
  }

  /// Closes a connection that has had no request since it had so many.
  private static func closeWhenIdle(_ connection: ScriptedConnection, after count: Int) {
    connection.loop.schedule(at: connection.loop.now + patience) {
      if connection.requestCount == count { connection.close() }
    }
  }
}
