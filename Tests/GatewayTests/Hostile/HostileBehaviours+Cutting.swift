// Answers that are cut off or delayed.

import HTTP2TestSupport
import Runtime

extension HostileBehaviour {
  private static let again = "rings; the fate of the first try is unknown, so it is sent once more"
  private static let head = RawFrame.headers(1, [(":status", "200")], ends: false)

  /// The head of an answer of 200 and the first half of its body.
  private static func half(_ connection: ScriptedConnection, _ stream: UInt32) -> [UInt8] {
    let body = ScriptedConnection.yes(connection.provider)
    return RawFrame.headers(stream, [(":status", "200")], ends: false)
      + RawFrame.data(stream, Array(body.prefix(body.count / 2)), ends: false)
  }

  static let cutting = [
    HostileBehaviour("cut after the request, before any answer (FIN)", again, .rings(2, attempts: 2...2)) {
      $0.onRequest = { connection, _ in connection.abort() }
    },
    HostileBehaviour("RST after the request", again, .rings(2, attempts: 2...2)) {
      $0.onRequest = { connection, _ in connection.reset() }
    },
    HostileBehaviour("cut in the midst of HEADERS", again, .rings(2, attempts: 2...2)) {
      $0.onRequest = {
        $0.send(Array(RawFrame.headers($1, [(":status", "200")], ends: true).dropLast(4)))
        $0.abort()
      }
    },
    HostileBehaviour("cut in the midst of a body", again, .rings(2, attempts: 2...2)) {
      $0.onRequest = {
        $0.send(half($0, $1))
        $0.abort()
      }
    },
    HostileBehaviour("TLS farewell in the midst of a body", again, .rings(2, attempts: 2...2)) {
      $0.onRequest = {
        $0.send(half($0, $1))
        $0.close()
      }
    },
    HostileBehaviour("HEADERS without an end, and then nothing", again, .rings(13, attempts: 1...3)) {
      $0.onRequest = { $0.send(RawFrame.headers($1, [(":status", "200")], ends: false)) }
    },
    HostileBehaviour("half a body, and then nothing", again, .rings(13, attempts: 1...3)) {
      $0.onRequest = { $0.send(half($0, $1)) }
    },
    HostileBehaviour("the answer one byte a second", again, .rings(13, attempts: 1...3)) {
      $0.onRequest = {
        $0.drip(RawFrame.headers($1, [(":status", "200"), ("x", String(repeating: "y", count: 100))], ends: true))
      }
    },
    HostileBehaviour("a body of one byte a second", again, .rings(13, attempts: 1...3)) { script in
      script.onRequest = { connection, stream in
        connection.send(RawFrame.headers(stream, [(":status", "200")], ends: false))
        trickle(connection, stream)
      }
    },
  ]

  /// A frame of one byte each second.
  private static func trickle(_ connection: ScriptedConnection, _ stream: UInt32) {
    guard !connection.isClosed else { return }
    connection.send(RawFrame.data(stream, [0x20], ends: false))
    connection.loop.schedule(at: connection.loop.now + .seconds(1)) { trickle(connection, stream) }
  }
}
