// Tests of the API over TLS: calls, and handshakes that stall.

import HTTPSurfaceTestSupport
import HTTP2TestSupport
import Logging
import Runtime
import TestSupport
import TestTime
import Testing

@testable import HTTPSurface
@testable import Settings

@Suite(.timeLimit(.minutes(10))) struct APITLSTests {
  private let pki: ListenerPKI
  private let credentials: ListenerCredentials

  init() throws {
    pki = try ListenerPKI()
    credentials = try ListenerCredentials(
      "api", pki.settings(), privacy: .required, logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
  }

  private func enqueue(_ id: String, _ api: APIHarness, _ client: TLSTestClient) async -> Int {
    let body = APIHarness.call(id)
    return await client.ask(
      "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \(api.key)\r\nContent-Type: application/json\r\n"
        + "Content-Length: \(body.utf8.count)\r\n\r\n\(body)"
    ).status
  }

  @Test func `calls are accepted over TLS, several on one connection`() async throws {
    try await APIHarness.with(credentials: credentials) { api in
      let client = try TLSTestClient(port: api.port, caFile: pki.ours.caFile)
      for id in ["a", "b", "c"] { #expect(await enqueue(id, api, client) == 202) }
      #expect(try await api.database.value("select count(*) from push.outbox") == "3")
      await client.close()
    }
  }

  @Test func `a stalled handshake has the time limit of a request, even if bytes trickle in`() async throws {
    try await APIHarness.with(
      adjust: {
        $0.requestTimeoutSeconds = 10  // enough for a handshake and a call on a busy machine
        $0.connectionsMax = 3
      }, credentials: credentials
    ) { api in
      let sockets = try (0..<3).map { _ in try TestSocket(port: api.port) }
      sockets[1].write(ClientHello.beginning)
      let drip = Task {
        for byte in ClientHello.beginning + [UInt8](repeating: 0, count: 400) {
          sockets[2].write([byte])
          try await letPass(.milliseconds(50), "bytes trickle in")
        }
      }
      // Each connection is closed without an answer, although no client has closed, and one still sends bytes. So there
      // is room again.
      for socket in sockets { #expect(await socket.next() == []) }
      let client = try TLSTestClient(port: api.port, caFile: pki.ours.caFile)
      #expect(await enqueue("a", api, client) == 202)
      // Over TLS, a slow request gets its 408 as well.
      let slow = try TLSTestClient(port: api.port, caFile: pki.ours.caFile)
      #expect(await slow.ask("POST /v1/calls HTTP/1.1\r\nHost: lo").status == 408)
      await slow.end()
      await client.close()
      drip.cancel()
      _ = await drip.result
      for socket in sockets { socket.close() }
    }
  }
}
