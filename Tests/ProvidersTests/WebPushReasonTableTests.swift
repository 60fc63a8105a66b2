// Tests of every answer of push services that is documented, and of undocumented ones.

import Runtime
import Testing

@testable import Providers

private func read(_ status: Int, _ body: String = "", _ fields: [(String, String)] = []) -> PushOutcome {
  var message = HTTP2Message()
  message.headers.add(":status", String(status))
  for (name, value) in fields { message.headers.add(name: Array(name.utf8), value: Array(value.utf8)) }
  message.body = Array(body.utf8)
  return WebPushReasonTable.read(message, wallMilliseconds: 784_111_777_000)
}

private func dead(_ reason: String) -> PushOutcome { .tokenInvalid(reason: reason, since: nil) }
private func rejected(_ reason: String) -> PushOutcome { .rejected(reason: reason) }
private func refused(_ reason: String) -> PushOutcome { .unauthorized(reason: reason) }
private func down(_ reason: String) -> PushOutcome { .unavailable(reason: reason, after: nil) }
private func slow(_ reason: String, origin: Bool = false) -> PushOutcome {
  .throttled(reason: reason, after: nil, isLaneWide: origin)
}

/// The tables of docs/protocols.md, written by hand, so that they are independent of the tables in the sources.
private let mozilla: [(Int, Int, PushOutcome, ReasonScope)] = [
  (400, 101, rejected("errno_101"), .token), (400, 108, rejected("errno_108"), .token),
  (400, 110, rejected("errno_110"), .token), (400, 111, rejected("errno_111"), .token),
  (400, 112, rejected("errno_112"), .token), (400, 113, rejected("errno_113"), .token),
  (400, 114, rejected("errno_114"), .token), (401, 109, refused("errno_109"), .lane),
  (404, 102, dead("errno_102"), .token), (410, 103, dead("errno_103"), .token), (410, 105, dead("errno_105"), .token),
  (410, 106, dead("errno_106"), .token), (413, 104, rejected("errno_104"), .token),
  (429, 201, slow("errno_201", origin: true), .lane), (500, 999, down("errno_999"), .lane),
  (502, 900, down("errno_900"), .lane), (502, 901, down("errno_901"), .lane),
  (502, 902, down("errno_902"), .lane), (502, 903, down("errno_903"), .lane),
  (503, 201, down("errno_201"), .lane), (503, 202, down("errno_202"), .lane),
]

private let apple: [(Int, String, PushOutcome, ReasonScope)] = [
  (400, "BadTtl", rejected("BadTtl"), .token), (400, "BadUrgency", rejected("BadUrgency"), .token),
  (400, "BadWebPushRequest", rejected("BadWebPushRequest"), .token),
  (400, "BadWebPushTopic", rejected("BadWebPushTopic"), .token),
  (400, "VapidPkHashMismatch", rejected("VapidPkHashMismatch"), .token),
  (400, "IdleTimeout", down("IdleTimeout"), .lane),
  (403, "VapidPkHashMismatch", rejected("VapidPkHashMismatch"), .token),
  (403, "BadAuthorizationHeader", refused("BadAuthorizationHeader"), .lane),
  (403, "BadJwtToken", refused("BadJwtToken"), .lane),
  (403, "BadVapidPublicKey", refused("BadVapidPublicKey"), .lane), (403, "Forbidden", refused("Forbidden"), .lane),
  (404, "BadPath", dead("BadPath"), .token), (405, "MethodNotAllowed", rejected("MethodNotAllowed"), .token),
  (410, "ExpiredToken", dead("ExpiredToken"), .token), (410, "Unregistered", dead("Unregistered"), .token),
  (413, "PayloadTooLarge", rejected("PayloadTooLarge"), .token),
  (429, "TooManyRequests", slow("TooManyRequests"), .token),
  (500, "InternalServerError", down("InternalServerError"), .lane),
  (503, "ServiceUnavailable", down("ServiceUnavailable"), .lane), (503, "Shutdown", down("Shutdown"), .lane),
]

private let wns: [(Int, String, PushOutcome, ReasonScope)] = [
  (406, "channelthrottled", slow("channelthrottled"), .token),
  (406, "appthrottled", slow("appthrottled", origin: true), .lane),
]

private let statuses: [(Int, PushOutcome, ReasonScope)] = [
  (400, rejected("HTTP400"), .token), (401, refused("HTTP401"), .lane), (403, refused("HTTP403"), .lane),
  (404, dead("HTTP404"), .token), (405, rejected("HTTP405"), .token), (406, slow("HTTP406"), .token),
  (408, down("HTTP408"), .lane), (410, dead("HTTP410"), .token), (413, rejected("HTTP413"), .token),
  (425, down("HTTP425"), .lane), (429, slow("HTTP429"), .token),
]

@Suite(.timeLimit(.minutes(10))) struct WebPushReasonTableTests {
  @Test func `every documented answer has its outcome`() {
    for (status, number, outcome, _) in mozilla {
      #expect(read(status, #"{"code":\#(status),"errno":\#(number),"error":"x","message":"y"}"#) == outcome)
    }
    for (status, reason, outcome, _) in apple { #expect(read(status, #"{"reason":"\#(reason)"}"#) == outcome) }
    for (status, reason, outcome, _) in wns { #expect(read(status, "", [("x-wns-status", reason)]) == outcome) }
    for (status, outcome, _) in statuses {
      #expect(read(status) == outcome)
      // FCM explains itself in words.
      #expect(read(status, "push subscription has unsubscribed or expired.\n") == outcome)
      #expect(read(status, "<HTML><TITLE>UnauthorizedRegistration</TITLE></HTML>") == outcome)
    }
  }

  @Test func `the tables contain exactly these rows, with these scopes and a source each`() {
    let expected =
      mozilla.map { "\($0.0) errno_\($0.1) \($0.3)" } + apple.map { "\($0.0) \($0.1) \($0.3)" }
      + wns.map { "\($0.0) \($0.1) \($0.3)" }
    #expect(Set(WebPushReasonTable.rows.map { "\($0.status) \($0.reason) \($0.scope)" }) == Set(expected))
    #expect(WebPushReasonTable.rows.count == expected.count)
    #expect(
      WebPushReasonTable.statuses.map { "\($0.status) \($0.reason) \($0.scope)" }
        == statuses.map { "\($0.0) HTTP\($0.0) \($0.2)" })
    #expect((WebPushReasonTable.rows + WebPushReasonTable.statuses).allSatisfy { !$0.source.isEmpty })
  }

  @Test(arguments: [200, 201, 202])
  func `an accepted push may have an id, and never has its location`(status: Int) {
    #expect(read(status) == .accepted(messageID: nil))
    #expect(read(status, "", [("location", "https://push.example.com/m/secret")]) == .accepted(messageID: nil))
    #expect(read(status, "", [("apns-id", "id-1")]) == .accepted(messageID: "id-1"))
  }

  @Test func `a reason counts only with its own status`() {
    #expect(read(503, #"{"errno":103}"#) == .unavailable(reason: "HTTP503", after: nil))
    #expect(read(500, #"{"reason":"Unregistered"}"#) == .unavailable(reason: "HTTP500", after: nil))
    #expect(read(400, #"{"reason":"Unregistered"}"#) == rejected("HTTP400"))
    #expect(read(201, #"{"errno":103}"#) == .accepted(messageID: nil))
  }

  @Test(arguments: [301, 302, 303, 307, 308])
  func `a redirect is refused, wherever it points to`(status: Int) {
    #expect(read(status, "", [("location", "https://10.0.0.1/")]) == rejected("HTTP\(status)"))
  }

  @Test(arguments: [100, 204, 418, 451, 500, 502, 503, 504, 599])
  func `an unlisted status never deletes a subscription`(status: Int) {
    let expected: PushOutcome = (400...499).contains(status) ? rejected("HTTP\(status)") : down("HTTP\(status)")
    #expect(read(status) == expected)
    #expect(read(status, #"{"reason":"no such word \u0000"}"#) == expected)
  }

  @Test func `an unknown reason does not become a reason of ours`() {
    #expect(read(400, #"{"reason":"https://push.example.com/secret"}"#) == rejected("HTTP400"))
    #expect(read(400, #"{"reason":"SomethingNew"}"#) == rejected("HTTP400"))
    #expect(read(406, "", [("x-wns-status", "dropped")]) == slow("HTTP406"))
  }

  @Test func `Retry-After is obeyed in seconds and as a date`() {
    #expect(
      read(429, "", [("retry-after", "7")]) == .throttled(reason: "HTTP429", after: .seconds(7), isLaneWide: false))
    #expect(
      read(503, "", [("retry-after", "Sun, 06 Nov 1994 08:49:57 GMT")])
        == .unavailable(reason: "HTTP503", after: .seconds(20)))
    #expect(
      read(406, "", [("x-wns-status", "appthrottled"), ("retry-after", "900")])
        == .throttled(reason: "appthrottled", after: .seconds(900), isLaneWide: true))
  }

  @Test func `the labels of metrics contain every reason`() {
    let labels = Set(ProviderReasons.webpush)
    for row in WebPushReasonTable.rows + WebPushReasonTable.statuses { #expect(labels.contains(row.reason)) }
    for refusal in WebPushRefusal.allCases { #expect(labels.contains(refusal.rawValue)) }
  }
}
