// Tests of every reason that Apple documents, and of undocumented answers.

import Runtime
import Testing

@testable import Providers

private typealias Connection = HTTP2ConnectionPool.ExchangeEffect.Connection

private func read(
  _ status: Int, _ body: String, _ fields: [(String, String)] = []
) -> (disposition: AnswerDisposition, connection: Connection) {
  var message = HTTP2Message()
  message.headers.add(":status", String(status))
  for (name, value) in fields { message.headers.add(name: Array(name.utf8), value: Array(value.utf8)) }
  message.body = Array(body.utf8)
  let (disposition, connection) = APNsReasonTable.read(message)
  return (disposition, connection)
}

@Suite("APNs reasons: the table", .timeLimit(.minutes(10))) struct APNsReasonTableTests {
  @Test(arguments: APNsReasonRow.documented.indices)
  func `every documented reason has its outcome, of at most its scope`(index: Int) {
    let row = APNsReasonRow.documented[index]
    let found = read(Int(row.status), #"{"reason":"\#(row.reason)"}"#)
    #expect(found.disposition == row.disposition)
    #expect(found.connection == row.connection)
    if case .settle(let outcome, let scope) = found.disposition { #expect(min(outcome.reach, scope) <= row.scope) }
  }

  @Test func `the table contains exactly the documented rows`() {
    #expect(
      APNsReasonTable.rows.map { "\($0.status) \($0.reason) \($0.meaning.scope)" }
        == APNsReasonRow.documented.map { "\($0.status) \($0.reason) \($0.scope)" })
  }

  @Test func `a success contains the message id`() {
    let found = read(200, "", [("apns-id", "8a04-e1")])
    #expect(found.disposition == .settle(.accepted(messageID: "8a04-e1")))
    #expect(found.connection == .proven)
    #expect(read(200, "").disposition == .settle(.accepted(messageID: nil)))
  }

  @Test func `a dead token has the time of its death`() {
    let found = read(410, #"{"reason":"Unregistered","timestamp":1700000000123}"#)
    #expect(found.disposition == .settle(.tokenInvalid(reason: "Unregistered", since: 1_700_000_000_123)))
  }

  @Test(arguments: [(Int64.max, 7_258_118_400_000), (-1, 0), (.min, 0)] as [(Int64, Int64)])
  func `an impossible time of death is moved into the possible range`(timestamp: Int64, since: Int64) {
    let found = read(410, #"{"reason":"Unregistered","timestamp":\#(timestamp)}"#)
    #expect(found.disposition == .settle(.tokenInvalid(reason: "Unregistered", since: since)))
  }

  @Test func `Retry-After is passed on`() {
    let found = read(503, #"{"reason":"ServiceUnavailable"}"#, [("retry-after", "7")])
    #expect(found.disposition == .settle(.unavailable(reason: "ServiceUnavailable", after: .seconds(7))))
    let throttled = read(429, #"{"reason":"TooManyRequests"}"#, [("retry-after", "Wed, 21 Oct")])
    #expect(throttled.disposition == .settle(.throttled(reason: "TooManyRequests", after: nil, isLaneWide: false)))
  }

  @Test(arguments: ["", "<html><body>502 Bad Gateway</body></html>", #"{"reason":"Unregis"#, "[]", #"{"reason":7}"#])
  func `a body without a reason is judged by its status`(body: String) {
    func text(_ status: Int) -> String { "status \(status) without a readable reason" }
    for status in [401, 403] {
      #expect(read(status, body).disposition == .settle(.unauthorized(reason: text(status))))
    }
    for status in [400, 404, 405, 408, 410, 413, 500, 502, 503, 504] {
      #expect(read(status, body).disposition == .settle(.unavailable(reason: text(status), after: nil)))
    }
    #expect(
      read(429, body).disposition == .settle(.throttled(reason: text(429), after: nil, isLaneWide: false)))
  }

  @Test func `an unknown reason keeps its name, and its status decides`() {
    #expect(read(400, #"{"reason":"BrandNew"}"#).disposition == .settle(.rejected(reason: "BrandNew")))
    #expect(read(403, #"{"reason":"BrandNew"}"#).disposition == .settle(.unauthorized(reason: "BrandNew")))
    #expect(
      read(410, #"{"reason":"BrandNew"}"#).disposition == .settle(.tokenInvalid(reason: "BrandNew", since: nil)))
    #expect(
      read(500, #"{"reason":"BrandNew"}"#).disposition == .settle(.unavailable(reason: "BrandNew", after: nil)))
  }

  @Test func `a 5xx answer with a reason about tokens deletes no token`() {
    for reason in ["Unregistered", "BadDeviceToken", "ExpiredToken"] {
      #expect(
        read(503, #"{"reason":"\#(reason)"}"#).disposition == .settle(.unavailable(reason: reason, after: nil)))
    }
  }
}
