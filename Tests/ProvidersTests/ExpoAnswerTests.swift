// Tests of every answer that Expo documents, and of undocumented ones.

import Runtime
import Testing

@testable import Providers

@Suite("Expo: answers", .timeLimit(.minutes(10))) struct ExpoAnswerTests {
  private func answer(_ body: String, status: UInt16 = 200, count: Int = 1, retryAfter: String? = nil) -> ExpoAnswer {
    let response = CurlResponse(
      status: status, body: Array(body.utf8), retryAfter: retryAfter.map { Array($0.utf8) },
      sentAt: Instant(nanoseconds: 0))
    return ExpoAnswer(response, count: count, wallMilliseconds: 0)
  }

  @Test func `tickets are matched to messages by their order`() {
    let body = """
      {"data":[{"status":"ok","id":"A"},
        {"status":"error","message":"\\"ExponentPushToken[x]\\" is not registered","details":{"error":"DeviceNotRegistered"}},
        {"id":"C","status":"ok"}]}
      """
    #expect(
      answer(body, count: 3)
        == .tickets([
          .accepted(messageID: "A"), .tokenInvalid(reason: "DeviceNotRegistered", since: nil),
          .accepted(messageID: "C"),
        ]))
  }

  @Test(
    arguments: ExpoReasonRow.ofPushes.map { ($0.code, $0.outcome) } + [
      ("SomethingNew", .unavailable(reason: "SomethingNew", after: nil)),
      ("no identifier: ExponentPushToken[x]", .rejected(reason: "TicketErrorWithoutCode")),
    ])
  func `every ticket error has its outcome`(code: String, outcome: PushOutcome) {
    #expect(answer(#"{"data":[{"status":"error","details":{"error":"\#(code)"}}]}"#) == .tickets([outcome]))
  }

  @Test func `the tables contain exactly the documented rows, each with its source`() {
    func lines(_ rows: [ExpoReasonTable.Row]) -> [String] { rows.map { "\($0.code) \($0.scope)" } }
    let pushes = ExpoReasonRow.ofPushes.map { "\($0.code) \($0.scope)" }
    #expect(lines(ExpoReasonTable.tickets) == pushes)
    #expect(lines(ExpoReasonTable.receipts) == pushes)
    #expect(lines(ExpoReasonTable.requests) == ExpoReasonRow.ofRequests.map { "\($0.code) \($0.scope)" })
    for row in ExpoReasonTable.tickets + ExpoReasonTable.receipts + ExpoReasonTable.requests {
      #expect(!row.source.isEmpty)
      #expect(row.meaning.outcome(reason: row.code).reach <= row.scope, "\(row.code)")
    }
  }

  @Test(
    arguments: ExpoReasonRow.ofRequests.map { ($0.status, $0.code, $0.outcome) } + [
      (400, "UNAUTHORIZED", .unauthorized(reason: "UNAUTHORIZED")),
      (400, "VALIDATION_ERROR", .rejected(reason: "VALIDATION_ERROR")),
      (500, "INTERNAL_SERVER_ERROR", .unavailable(reason: "INTERNAL_SERVER_ERROR", after: .seconds(7))),
      (500, "UNAUTHORIZED", .unavailable(reason: "UNAUTHORIZED", after: .seconds(7))),
      (503, "PUSH_TOO_MANY_RECEIPTS", .unavailable(reason: "PUSH_TOO_MANY_RECEIPTS", after: .seconds(7))),
    ])
  func `every error of a whole request with one message has its outcome`(
    status: UInt16, code: String, outcome: PushOutcome
  ) {
    let body = #"{"errors":[{"code":"\#(code)","message":"m","details":{"@a/x":["T1"]}}]}"#
    #expect(answer(body, status: status, retryAfter: "7") == .all(outcome))
  }

  @Test func `an answer about several projects asks for a split by project`() {
    let body = """
      {"errors":[{"code":"PUSH_TOO_MANY_EXPERIENCE_IDS","details":{"@a/x":["T1","T2"],"@a/y":["T3"]}}]}
      """
    let tokens = [["T1", "T2"], ["T3"]].map { $0.map { Array($0.utf8) } }
    #expect(answer(body, status: 400, count: 3) == .splitByProject(tokens))
    #expect(
      answer(#"{"errors":[{"code":"PUSH_TOO_MANY_EXPERIENCE_IDS"}]}"#, status: 400, count: 3) == .splitByProject([]))
  }

  @Test func `an answer about too many messages asks for smaller requests`() {
    let body = #"{"errors":[{"code":"PUSH_TOO_MANY_NOTIFICATIONS"}]}"#
    #expect(answer(body, status: 400, count: 2) == .sendFewer)
  }

  @Test(arguments: [
    (413, ""), (413, "<html></html>"), (400, ""), (400, #"{"errors":[{"code":"VALIDATION_ERROR"}]}"#),
    (200, #"{"errors":[{"code":"VALIDATION_ERROR"}]}"#),
  ])
  func `an answer that rejects a request of several messages says nothing about each`(status: UInt16, body: String) {
    let found = answer(body, status: status, count: 2)
    #expect(status == 200 ? found != .sendFewer : found == .halve)
    if case .all(.rejected) = answer(body, status: status, count: 1) { return }
    #expect(status == 200)
  }

  @Test(
    arguments: [
      (401, PushOutcome.unauthorized(reason: "HTTP401")), (403, .unauthorized(reason: "HTTP403")),
      (302, .unauthorized(reason: "HTTP302")), (404, .unauthorized(reason: "HTTP404")),
      (400, .rejected(reason: "HTTP400")), (413, .rejected(reason: "HTTP413")),
      (408, .unavailable(reason: "HTTP408", after: nil)),
      (429, .throttled(reason: "HTTP429", after: nil, isLaneWide: true)),
      (500, .unavailable(reason: "HTTP500", after: nil)), (502, .unavailable(reason: "HTTP502", after: nil)),
      (503, .unavailable(reason: "HTTP503", after: nil)), (504, .unavailable(reason: "HTTP504", after: nil)),
    ] as [(UInt16, PushOutcome)])
  func `a status without a usable body has its outcome`(status: UInt16, outcome: PushOutcome) {
    for body in ["", "<html><body>Bad Gateway</body></html>", #"{"errors":["#, "[]", "null", #"{"errors":[]}"#] {
      #expect(answer(body, status: status) == .all(outcome))
    }
  }

  @Test(arguments: [
    ("", "MalformedAnswer"), ("<html></html>", "MalformedAnswer"), ("{}", "MalformedAnswer"),
    (#"{"data":{"status":"ok"}}"#, "MalformedAnswer"), (#"{"data":[{"status":"ok","id":"A"}"#, "MalformedAnswer"),
    (#"{"data":[]}"#, "TicketCountMismatch"), (#"{"data":[{"status":"ok","id":"A"}]}"#, "TicketCountMismatch"),
    (#"{"data":[{"status":"ok"},{"status":"ok"},{"status":"ok"}]}"#, "TicketCountMismatch"),
  ])
  func `after a 200 with an invalid body the outcome is unknown`(body: String, reason: String) {
    #expect(answer(body, count: 2) == .all(.unknown(reason: reason)))
  }

  @Test(arguments: [#"{}"#, #"{"status":"maybe"}"#, "null", "7", #""ok""#, "[]"])
  func `the outcome of an invalid ticket is unknown`(ticket: String) {
    #expect(answer(#"{"data":[\#(ticket)]}"#) == .tickets([.unknown(reason: "MalformedTicket")]))
  }

  @Test func `an accepted message may have no id`() {
    #expect(answer(#"{"data":[{"status":"ok"}]}"#) == .tickets([.accepted(messageID: nil)]))
  }

  @Test(arguments: CurlFailure.Reason.allCases)
  func `without an answer, an unsent message may be sent again, and the outcome of the others is unknown`(
    reason: CurlFailure.Reason
  ) {
    let unsent = ExpoReasonTable.outcome(of: CurlFailure(reason))
    let sent = ExpoReasonTable.outcome(of: CurlFailure(reason, sentAt: Instant(nanoseconds: 1)))
    switch reason {
    case .deadlinePassed: #expect(unsent == .expired)
    case .addressNotAllowed, .malformedRequest, .rootsUnusable:
      #expect(unsent == .unauthorized(reason: reason.rawValue))
    case .closed, .withheld: #expect(unsent == .refused(reason: reason.rawValue))
    default: #expect(unsent == .unavailable(reason: reason.rawValue, after: nil))
    }
    if [.timedOut, .connectionLost, .responseTooLarge, .malformedResponse, .closed, .other].contains(reason) {
      #expect(sent == .unknown(reason: reason.rawValue))
      let receipts = ExpoReceiptsAnswer(CurlFailure(reason, sentAt: Instant(nanoseconds: 1)))
      #expect(receipts == .failed(.unavailable(reason: reason.rawValue, after: nil)))
    }
  }
}
