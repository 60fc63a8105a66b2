// The connection is lost, and the next one is hostile as well.

import HTTP2TestSupport
import Runtime

extension HostileBehaviour {
  /// The open connection is reset. The next one is hostile.
  private static func connecting(
    _ name: String, _ phone: String, _ expected: Expectation, hostile: Int = 1,
    _ adjust: (inout PeerScript) -> Void
  ) -> HostileBehaviour {
    HostileBehaviour(name, phone, expected, scope: .connections(hostile + 1)) {
      $0.onArm = { $0.reset() }
      adjust(&$0)
    }
  }

  private static func socket(
    _ step: @escaping @Sendable (ScriptedPeer, FileDescriptor) -> Void
  ) -> (inout PeerScript) -> Void {
    { $0.transport = .socket(step) }
  }

  static let connecting = [
    connecting("nobody listens for 2 s", "rings when the provider is back", .rings(6, attempts: 1...8, requestsMax: 1))
    {
      _ in
    }
    .with {
      $0.prepare = { peer in
        peer.stopListening()
        peer.loop.schedule(at: peer.loop.now + .seconds(2)) { peer.listenAgain() }
      }
    },
    connecting(
      "accepts and closes, three times", "rings over the next connection", .rings(4, attempts: 1...6, requestsMax: 2),
      hostile: 3, socket { _, _ in }),
    connecting(
      "RST on connect, three times", "rings over the next connection", .rings(4, attempts: 1...6, requestsMax: 2),
      hostile: 3, socket { $1.resetConnection() }),
    connecting(
      "accepts, no TLS answer", "rings over the next connection", .rings(5.5, attempts: 1...3, requestsMax: 2),
      socket { $0.hold($1) }),
    connecting(
      "plain text instead of TLS", "rings over the next connection", .rings(3, attempts: 1...3, requestsMax: 2),
      socket { $1.push(Array("HTTP/1.1 400 Bad Request\r\n\r\n".utf8)) }),
    connecting(
      "TLS alert (handshake_failure)", "rings over the next connection", .rings(3, attempts: 1...3, requestsMax: 2),
      socket { $1.push([0x15, 3, 3, 0, 2, 2, 40]) }),
    connecting(
      "certificate of a stranger, once", "rings over the next connection", .rings(3, attempts: 1...3, requestsMax: 2)
    ) { $0.transport = .strangersTLS },
    HostileBehaviour(
      "certificate of a stranger, for ever", "silent; expired, and nothing of the call is sent",
      .ends("expired", 7, attempts: 0...40, requestsMax: 0), scope: .always
    ) {
      $0.onArm = { $0.reset() }
      $0.transport = .strangersTLS
    }
    .with {
      $0.ringSeconds = 5
    },
    HostileBehaviour(
      "closes after the TLS handshake, for ever", "silent; expired; connects about once a second",
      .ends("expired", 7, attempts: 0...40, requestsMax: 0), scope: .always
    ) {
      $0.onArm = { $0.reset() }
      $0.onOpen = { $0.close() }
    }
    .with { $0.ringSeconds = 5 },
    connecting(
      "no ALPN answer (HTTP/1.1)", "rings over the next connection; Expo by HTTP/1.1",
      .rings(3, attempts: 1...3, requestsMax: 2)
    ) { $0.transport = .tlsWithoutALPN },
    connecting(
      "no SETTINGS, nothing at all", "rings over the next connection", .rings(9, attempts: 1...3, requestsMax: 2)
    ) {
      $0.onOpen = { $0.isMute = true }
    },
    connecting("no SETTINGS, but requests are answered", "rings", .rings(9, attempts: 1...2, requestsMax: 2)) {
      $0.onOpen = { _ in }
    },
    connecting(
      "HTTP/1.1 where h2 was agreed", "rings over the next connection", .rings(4, attempts: 1...3, requestsMax: 3)
    ) {
      $0.onOpen = { $0.send(Array("HTTP/1.1 503 Service Unavailable\r\n\r\n".utf8)) }
    },
    connecting(
      "first frame is no SETTINGS", "rings over the next connection", .rings(4, attempts: 1...3, requestsMax: 3)
    ) {
      $0.onOpen = { $0.send(RawFrame.frame(RawFrame.ping, [UInt8](repeating: 0, count: 8))) }
    },
    connecting(
      "SETTINGS one byte a second", "rings over the next connection", .rings(12, attempts: 1...4, requestsMax: 2)
    ) {
      $0.onOpen = { $0.drip(RawFrame.settings()) }
    },
    connecting(
      "MAX_CONCURRENT_STREAMS 0 from the start", "rings over the next connection",
      .rings(9, attempts: 1...4, requestsMax: 2)
    ) { $0.onOpen = { $0.send(RawFrame.settings([(3, 0)])) } },
    connecting("SETTINGS is never acknowledged", "rings at once", .rings(3, attempts: 1...2)) {
      $0.onSettings = { _ in }
    },
    HostileBehaviour(
      "closes each connection after one answer", "rings at once", .rings(2), scope: .always
    ) {
      $0.onRequest = {
        $0.answer($1)
        $0.close()
      }
    },
  ]
}
