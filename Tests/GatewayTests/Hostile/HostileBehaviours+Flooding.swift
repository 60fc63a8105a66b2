// Peers that write as fast as the gateway reads.

import HTTP2TestSupport
import Runtime

extension HostileBehaviour {
  private static let phone = "rings over another connection; the flood is cut off"

  private static func flood(
    _ name: String, _ expected: Expectation = .rings(8, attempts: 1...3),
    first: @escaping @Sendable (UInt32) -> [UInt8] = { _ in [] }, _ bytes: @escaping @Sendable (UInt32) -> [UInt8]
  ) -> HostileBehaviour {
    HostileBehaviour(name, phone, expected) {
      $0.onRequest = {
        $0.send(first($1))
        $0.flood(bytes($1))
      }
    }
    .with {
      $0.isFlood = true
      $0.providers = [.apns, .expo]
    }
  }

  private static func many(_ frame: [UInt8], bytes: Int = 64 * 1024) -> [UInt8] {
    Array([[UInt8]](repeating: frame, count: max(bytes / frame.count, 1)).joined())
  }

  private static func openHead(_ stream: UInt32) -> [UInt8] {
    RawFrame.headers(stream, [(":status", "200")], ends: false)
  }

  static let flooding = [
    flood("PING flood") { _ in many(RawFrame.frame(RawFrame.ping, [UInt8](repeating: 1, count: 8))) },
    flood("PONG flood") { _ in many(RawFrame.frame(RawFrame.ping, flags: 1, [UInt8](repeating: 1, count: 8))) },
    flood("SETTINGS flood") { _ in many(RawFrame.settings()) },
    flood("SETTINGS flood that moves the window") { _ in
      many(RawFrame.settings([(4, 65_535)]) + RawFrame.settings([(4, 1)]))
    },
    flood("SETTINGS ACK flood") { _ in many(RawFrame.frame(RawFrame.settings, flags: 1)) },
    flood("empty DATA flood", first: openHead) { many(RawFrame.data($0, [], ends: false)) },
    flood("103 flood") { many(RawFrame.headers($0, [(":status", "103")], ends: false)) },
    flood("unknown-frame flood") { _ in many(RawFrame.frame(0xFA)) },
    flood(
      "CONTINUATION flood", first: { RawFrame.headers($0, [(":status", "200")], ends: true, endsHeaders: false) }
    ) { many(RawFrame.frame(RawFrame.continuation, stream: $0)) },
    flood("WINDOW_UPDATE flood") { _ in many(RawFrame.windowUpdate(0, by: 1)) },
    flood("PRIORITY flood") { many(RawFrame.frame(RawFrame.priority, stream: $0, [0, 0, 0, 0, 1])) },
    flood("RST_STREAM flood on a closed stream", .rings(8, attempts: 1...3)) {
      many(RawFrame.resetStream($0, code: 8))
    },
    flood("GOAWAY flood with 16 KB of debug data") { _ in
      RawFrame.goAway(last: 0x7FFF_FFFF, debug: [UInt8](repeating: 0x41, count: 16_000))
    },
    flood("a body that never ends", first: openHead) {
      many(RawFrame.data($0, [UInt8](repeating: 0x20, count: 16_000), ends: false))
    },
    flood("header lists of 4,000 tiny fields") {
      many(
        RawFrame.frame(
          RawFrame.headers, flags: 4, stream: $0, [0x08, 3, 0x31, 0x30, 0x33] + [UInt8](repeating: 0x90, count: 4000)))
    },
  ]
}
