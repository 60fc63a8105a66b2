// Requests that are refused, by HTTP/2 and by HTTP.

import HTTP2TestSupport
import Runtime

extension HostileBehaviour {
  private static let again = "rings; sent once more"
  private static let unknown = "rings; the fate of the first try is unknown, so it is sent once more"

  private static func reset(_ name: String, _ code: UInt32, _ expected: Expectation = .rings(2, attempts: 2...2))
    -> HostileBehaviour
  {
    HostileBehaviour("RST_STREAM \(name)", unknown, expected, scope: .requests(1)) {
      $0.onRequest = { $0.send(RawFrame.resetStream($1, code: code)) }
    }
  }

  private static func status(
    _ name: String, _ phone: String, _ expected: Expectation, times: Int = 1, _ status: Int,
    _ fields: [(String, String)] = [], body: String = ""
  ) -> HostileBehaviour {
    HostileBehaviour(name, phone, expected, scope: .requests(times)) {
      $0.onRequest = { $0.answer($1, status: status, fields, body: body) }
    }
  }

  static let refusing = [
    reset("REFUSED_STREAM", 7, .rings(2, attempts: 1...1, requestsMax: 2)).for(.expo, .rings(2, attempts: 2...2))
      .with { $0.phone = again },
    reset("NO_ERROR", 0), reset("PROTOCOL_ERROR", 1), reset("INTERNAL_ERROR", 2), reset("FLOW_CONTROL_ERROR", 3),
    reset("STREAM_CLOSED", 5), reset("CANCEL", 8), reset("ENHANCE_YOUR_CALM", 11),
    // libcurl obeys, and its next connection uses HTTP/1.1.
    reset("HTTP_1_1_REQUIRED", 13).for(.expo, .rings(2, attempts: 2...3)),
    reset("with an unknown code", 0xDEAD_BEEF),
    HostileBehaviour("GOAWAY on a request, last id 0", again, .rings(2, attempts: 1...1, requestsMax: 2)) {
      $0.onRequest = { connection, _ in connection.send(RawFrame.goAway(last: 0)) }
    }.for(.expo, .rings(2, attempts: 1...2)),
    HostileBehaviour("GOAWAY on a request that is answered all the same", "rings at once", .rings(2)) {
      $0.onRequest = {
        $0.send(RawFrame.goAway(last: $1))
        $0.answer($1)
      }
    },
    HostileBehaviour("GOAWAY on a request, which is not answered", unknown, .rings(6, attempts: 1...3)) {
      $0.onRequest = { $0.send(RawFrame.goAway(last: $1)) }
    },
    HostileBehaviour("GOAWAY with an error, last id 2³¹−1, and closed", unknown, .rings(2, attempts: 2...2)) {
      $0.onRequest = { connection, _ in
        connection.send(RawFrame.goAway(last: 0x7FFF_FFFF, code: 2))
        connection.close()
      }
    },
    status("503, three times", "rings; sent again", .rings(4, attempts: 4...4), times: 3, 503),
    status(
      "500 with HTML", again, .rings(2, attempts: 2...2), 500, [("content-type", "text/html")],
      body: "<title>Error 500</title>"),
    status(
      "502 with HTML", again, .rings(2, attempts: 2...2), 502, [("content-type", "text/html")],
      body: "<title>Error 502 (Server Error)!!1</title>"),
    status(
      "503 with Retry-After of a year", "silent: this replica waits, others may try; expired",
      .ends("expired", 7, attempts: 1...1), 503, [("retry-after", "31536000")]
    ).with { $0.ringSeconds = 5 },
    status("503 with negative Retry-After", again, .rings(3, attempts: 2...2), 503, [("retry-after", "-1")]),
    status("503 with garbage for Retry-After", again, .rings(3, attempts: 2...2), 503, [("retry-after", "soon\u{7F}")]),
    status(
      "307 to another address", "rings; nothing is sent to the other address", .rings(3, attempts: 2...2), 307,
      [("location", "https://127.0.0.1:9/")]),
    HostileBehaviour("answer dated in ten years", "rings at once", .rings(2)) {
      $0.onRequest = { $0.answer($1, fields: [("date", "Mon, 01 Jan 2035 00:00:00 GMT")]) }
    },
  ]
}
