// Answers that violate HTTP/2 or HTTP, or cannot be read.

import HTTP2TestSupport
import Runtime

extension HostileBehaviour {
  private static let unknown = "rings; the fate of the first try is unknown, so it is sent once more"
  /// An oddity of an answer that does not change its meaning may be ignored.
  private static let malformed = Expectation.rings(2, attempts: 1...2)

  /// An answer with these fields in place of `:status: 200`, and with a normal body.
  private static func fields(_ name: String, _ fields: [(String, String)], _ expected: Expectation = malformed)
    -> HostileBehaviour
  {
    HostileBehaviour(name, unknown, expected, scope: .requests(1)) {
      $0.onRequest = { connection, stream in
        let body = ScriptedConnection.yes(connection.provider)
        connection.send(RawFrame.headers(stream, fields, ends: body.isEmpty))
        if !body.isEmpty { connection.send(RawFrame.data(stream, body, ends: true)) }
      }
    }
  }

  private static func bytes(
    _ name: String, _ expected: Expectation = malformed, phone: String = unknown,
    _ bytes: @escaping @Sendable (ScriptedConnection, UInt32) -> [UInt8]
  ) -> HostileBehaviour {
    HostileBehaviour(name, phone, expected, scope: .requests(1)) { $0.onRequest = { $0.send(bytes($0, $1)) } }
  }

  private static func whole(_ connection: ScriptedConnection, _ stream: UInt32, _ fields: [(String, String)] = [])
    -> [UInt8]
  {
    let body = ScriptedConnection.yes(connection.provider)
    return RawFrame.headers(stream, [(":status", "200")] + fields, ends: false)
      + RawFrame.data(stream, body, ends: true)
  }

  static let answering = [
    fields(":status missing", [("x", "y")]), fields(":status twice", [(":status", "200"), (":status", "200")]),
    fields(":status of letters", [(":status", "abc")]), fields(":status of two digits", [(":status", "20")]),
    fields(":status of four digits", [(":status", "2000")]), fields(":status with a sign", [(":status", "+20")]),
    fields(":status below 100", [(":status", "099")]), fields(":status 101", [(":status", "101")]),
    fields(":status after a field", [("x", "y"), (":status", "200")]),
    fields("a pseudo field nobody knows", [(":status", "200"), (":path", "/")]),
    fields("field name in capitals", [(":status", "200"), ("Apns-Id", "x")]),
    fields("field value with a line end", [(":status", "200"), ("x", "a\r\nb: c")]),
    fields("connection: close", [(":status", "200"), ("connection", "close")]),
    fields("content-length larger than the body", [(":status", "200"), ("content-length", "1000")]),
    fields("content-length smaller than the body", [(":status", "200"), ("content-length", "1")])
      .only(.fcm, .expo),
    fields("two content-lengths", [(":status", "200"), ("content-length", "32"), ("content-length", "33")])
      .only(.fcm, .expo),
    HostileBehaviour(
      "200 with a body nobody can read", "rings, or rings twice: the fate is unknown", .rings(2, attempts: 2...2),
      scope: .requests(1)
    ) { $0.onRequest = { $0.answer($1, status: 200, body: "\u{0}{{{") } }.for(.apns, .rings(2)),
    HostileBehaviour(
      "200 with an empty body", "rings, or rings twice: the fate is unknown", .rings(2, attempts: 2...2),
      scope: .requests(1)
    ) { $0.onRequest = { $0.answer($1, status: 200) } }.for(.apns, .rings(2)),
    bytes("answered twice", .rings(2), phone: "rings at once") { whole($0, $1) + whole($0, $1) },
    bytes("an end and then more DATA", .rings(2), phone: "rings at once") {
      whole($0, $1) + RawFrame.data($1, [0x20], ends: false)
    },
    bytes("a pseudo field in the trailers") {
      RawFrame.headers($1, [(":status", "200")], ends: false)
        + RawFrame.data($1, ScriptedConnection.yes($0.provider), ends: false)
        + RawFrame.headers($1, [(":status", "200")], ends: true)
    },
    bytes("trailers", .rings(2), phone: "rings at once") {
      RawFrame.headers($1, [(":status", "200")], ends: false)
        + RawFrame.data($1, ScriptedConnection.yes($0.provider), ends: false)
        + RawFrame.headers($1, [("x", "y")], ends: true)
    },
    bytes("trailers that do not end the stream") {
      RawFrame.headers($1, [(":status", "200")], ends: false)
        + RawFrame.data($1, ScriptedConnection.yes($0.provider), ends: false)
        + RawFrame.headers($1, [("x", "y")], ends: false)
    },
    bytes("DATA before HEADERS") { RawFrame.data($1, [0x20], ends: false) + whole($0, $1) },
    bytes("103 and 100 before the answer", .rings(2), phone: "rings at once") {
      RawFrame.headers($1, [(":status", "103")], ends: false) + RawFrame.headers($1, [(":status", "100")], ends: false)
        + whole($0, $1)
    },
    bytes("103 that ends the stream") { RawFrame.headers($1, [(":status", "103")], ends: true) },
  ]
}
