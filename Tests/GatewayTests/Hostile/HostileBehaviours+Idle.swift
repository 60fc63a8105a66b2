// What may have happened to a connection while it was idle.

import HTTP2TestSupport
import Runtime

extension HostileBehaviour {
  private static let overAnother = "rings over another connection"

  static let idle = [
    HostileBehaviour(
      "forgotten: nothing comes back, nothing is closed", overAnother, .rings(2.5, attempts: 1...2, requestsMax: 1)
    ) { $0.onArm = { $0.isMute = true } },
    HostileBehaviour(
      "forgotten, and the next connection, too", overAnother, .rings(9, attempts: 1...4, requestsMax: 1),
      scope: .connections(2)
    ) {
      $0.onArm = { $0.isMute = true }
      $0.onOpen = { $0.isMute = true }
    },
    HostileBehaviour("answers PING, but no request", overAnother, .rings(5, attempts: 1...3, requestsMax: 3)) {
      $0.onRequest = { _, _ in }
    },
    HostileBehaviour(
      "answers PING, but no request, for ever", "silent; expired",
      // Each try and its hedge.
      .ends("expired", 14, attempts: 1...6, requestsMax: 12), scope: .always
    ) { $0.onRequest = { _, _ in } }
    .with { $0.ringSeconds = 8 },
    HostileBehaviour("closed while idle (close_notify, FIN)", overAnother, .rings(2, attempts: 1...2)) {
      $0.onArm = { $0.close() }
    },
    HostileBehaviour("closed while idle (FIN alone)", overAnother, .rings(2, attempts: 1...2)) {
      $0.onArm = { $0.abort() }
    },
    HostileBehaviour("RST while idle", overAnother, .rings(2, attempts: 1...2)) { $0.onArm = { $0.reset() } },
    HostileBehaviour("GOAWAY while idle, last id 2³¹−1", overAnother, .rings(2, attempts: 1...2)) {
      $0.onArm = { $0.send(RawFrame.goAway(last: 0x7FFF_FFFF)) }
    },
    HostileBehaviour("GOAWAY while idle, last id 0", overAnother, .rings(2, attempts: 1...2)) {
      $0.onArm = { $0.send(RawFrame.goAway(last: 0, code: 11, debug: Array(#"{"reason":"Shutdown"}"#.utf8))) }
    },
    HostileBehaviour("GOAWAY with 16 MB of debug data (announced)", overAnother, .rings(2, attempts: 1...2)) {
      $0.onArm = { $0.send(RawFrame.head(length: 0xFF_FFFF, RawFrame.goAway) + [UInt8](repeating: 0, count: 65_536)) }
    },
    HostileBehaviour("GOAWAY a thousand times", overAnother, .rings(2, attempts: 1...2)) {
      $0.onArm = { connection in
        for last in 0..<1000 { connection.send(RawFrame.goAway(last: 0x7FFF_FFFF - UInt32(last))) }
      }
    },
    HostileBehaviour("GOAWAY, last id grows", overAnother, .rings(2, attempts: 1...2)) {
      $0.onArm = { $0.send(RawFrame.goAway(last: 1) + RawFrame.goAway(last: 0x7FFF_FFFF)) }
    },
    HostileBehaviour(
      "INITIAL_WINDOW_SIZE 0 for ever", "rings over another connection; APNs, FCM",
      .rings(9, attempts: 1...4, requestsMax: 1)
    ) { $0.onArm = { $0.send(RawFrame.settings([(4, 0)])) } },
    HostileBehaviour(
      "MAX_CONCURRENT_STREAMS 0 for ever", overAnother, .rings(9, attempts: 1...4, requestsMax: 1)
    ) { $0.onArm = { $0.send(RawFrame.settings([(3, 0)])) } },
    HostileBehaviour("MAX_CONCURRENT_STREAMS 1", "rings at once", .rings(2)) {
      $0.onArm = { $0.send(RawFrame.settings([(3, 1)])) }
    },
    HostileBehaviour("everything is answered one second late", "rings a second later", .rings(3, requestsMax: 2)) {
      $0.onRequest = { connection, stream in
        connection.loop.schedule(at: connection.loop.now + .seconds(1)) { connection.answer(stream) }
      }
    },
  ]
}
