// Frames that RFC 9113 and RFC 7541 forbid. The connection ends, and the fate of requests in flight is unknown.

import HTTP2TestSupport
import Runtime

extension HostileBehaviour {
  private static let unknown = "rings; the fate of the first try is unknown, so it is sent once more"

  private static func frames(
    _ name: String, _ expected: Expectation = .rings(2, attempts: 1...2), phone: String = unknown,
    _ bytes: @escaping @Sendable (UInt32) -> [UInt8]
  ) -> HostileBehaviour {
    HostileBehaviour(name, phone, expected) { $0.onRequest = { $0.send(bytes($1)) } }
  }

  /// Something unusual that is allowed, followed by the answer.
  private static func harmless(_ name: String, _ bytes: @escaping @Sendable (UInt32) -> [UInt8]) -> HostileBehaviour {
    HostileBehaviour(name, "rings at once", .rings(2)) {
      $0.onRequest = {
        $0.send(bytes($1))
        $0.answer($1)
      }
    }
  }

  private static func block(_ stream: UInt32, _ hpack: [UInt8]) -> [UInt8] {
    RawFrame.frame(RawFrame.headers, flags: 5, stream: stream, hpack)
  }

  static let framing = [
    frames("HPACK: index out of the table") { block($0, [0x88, 0xFF, 0x80, 0x01]) },
    frames("HPACK: number without an end") { block($0, [0x88, 0xFF] + [UInt8](repeating: 0xFF, count: 20) + [0x7F]) },
    frames("HPACK: table larger than allowed") { block($0, [0x3F, 0xFF, 0xFF, 0x7F, 0x88]) },
    frames("HPACK: bad Huffman padding") { block($0, [0x88, 0x00, 0x81, 0x00, 0x81, 0x00]) },
    frames("HPACK: string longer than the block") { block($0, [0x88, 0x00, 0x7E, 0x61]) },
    frames("header list of 1 MB") { stream in
      let part = [UInt8](RawFrame.literal("x", String(repeating: "y", count: 16_000)).prefix(16_384))
      return RawFrame.frame(RawFrame.headers, stream: stream, [0x88])
        + (0..<64).flatMap { _ in RawFrame.frame(RawFrame.continuation, stream: stream, part) }
        + RawFrame.frame(RawFrame.continuation, flags: RawFrame.endsHeaders, stream: stream)
    },
    frames("a header list of 16,000 fields") { stream in
      block(stream, [0x88, 0x40, 1, 0x61, 1, 0x62] + [UInt8](repeating: 0xBE, count: 16_000))
    }.for(.expo, .rings(9, attempts: 1...2)),
    frames("frame larger than allowed") {
      RawFrame.frame(RawFrame.data, stream: $0, [UInt8](repeating: 0, count: 16_385))
    },
    frames("padding longer than the frame") {
      RawFrame.frame(RawFrame.data, flags: RawFrame.padded, stream: $0, [200, 1])
    },
    frames("HEADERS on stream 0") { _ in RawFrame.headers(0, [(":status", "200")], ends: true) },
    frames("DATA on an idle stream") { RawFrame.data($0 + 1000, [1], ends: true) },
    frames("HEADERS on an idle stream") { RawFrame.headers($0 + 1000, [(":status", "200")], ends: true) },
    frames("HEADERS on a stream of the server") { _ in RawFrame.headers(2, [(":status", "200")], ends: true) },
    frames("PUSH_PROMISE") {
      RawFrame.frame(RawFrame.pushPromise, flags: RawFrame.endsHeaders, stream: $0, [0, 0, 0, 2, 0x82])
    },
    frames("CONTINUATION without HEADERS") { RawFrame.frame(RawFrame.continuation, flags: 4, stream: $0, [0x88]) },
    frames("another frame within a header block") {
      RawFrame.headers($0, [(":status", "200")], ends: true, endsHeaders: false)
        + RawFrame.frame(RawFrame.ping, [UInt8](repeating: 0, count: 8))
    },
    frames("window overflow of the connection") { _ in
      RawFrame.windowUpdate(0, by: 0x7FFF_FFFF) + RawFrame.windowUpdate(0, by: 0x7FFF_FFFF)
    },
    frames("window overflow of the stream") {
      RawFrame.windowUpdate($0, by: 0x7FFF_FFFF) + RawFrame.windowUpdate($0, by: 0x7FFF_FFFF)
    },
    frames("WINDOW_UPDATE by 0") { RawFrame.windowUpdate($0, by: 0) },
    frames("WINDOW_UPDATE of the connection by 0") { _ in RawFrame.windowUpdate(0, by: 0) },
    frames("SETTINGS of five bytes") { _ in RawFrame.frame(RawFrame.settings, [0, 3, 0, 0, 0]) },
    frames("SETTINGS on a stream") { RawFrame.frame(RawFrame.settings, stream: $0) },
    frames("SETTINGS with a window of 2³¹") { _ in RawFrame.settings([(4, 0x8000_0000)]) },
    frames("SETTINGS with frames of 1 byte") { _ in RawFrame.settings([(5, 1)]) },
    frames("SETTINGS that allow pushing") { _ in RawFrame.settings([(2, 2)]) },
    frames("PING of seven bytes") { _ in RawFrame.frame(RawFrame.ping, [UInt8](repeating: 0, count: 7)) },
    frames("RST_STREAM of an idle stream") { RawFrame.resetStream($0 + 1000, code: 8) },
    frames("RST_STREAM of three bytes") { RawFrame.frame(RawFrame.resetStream, stream: $0, [0, 0, 0]) },
    frames("GOAWAY of four bytes") { _ in RawFrame.frame(RawFrame.goAway, [0, 0, 0, 0]) },
    harmless("frames of unknown types") { RawFrame.frame(0xFA, flags: 0xFF, stream: $0, [1, 2, 3]) },
    harmless("unknown settings") { _ in RawFrame.settings([(0xFFFF, 7), (0, 0)]) },
    harmless("the reserved bit of a stream id") { _ in
      RawFrame.frame(RawFrame.windowUpdate, stream: 0x8000_0000, RawFrame.bytes(1))
    },
    harmless("PRIORITY") { RawFrame.frame(RawFrame.priority, stream: $0, [0, 0, 0, 0, 1]) },
    harmless("PONG nobody asked for") { _ in RawFrame.frame(RawFrame.ping, flags: 1, [UInt8](repeating: 7, count: 8)) },
  ]
}
