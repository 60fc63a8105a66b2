// Tests of every documented answer to a request for receipts, and of undocumented ones.

import Runtime
import Testing

@testable import Providers

@Suite(.timeLimit(.minutes(10))) struct ExpoReceiptsAnswerTests {
  private func answer(
    _ body: String, status: UInt16 = 200, tickets: [String] = ["A", "B"], retryAfter: String? = nil
  ) -> ExpoReceiptsAnswer {
    let response = CurlResponse(
      status: status, body: Array(body.utf8), retryAfter: retryAfter.map { Array($0.utf8) },
      sentAt: Instant(nanoseconds: 0))
    return ExpoReceiptsAnswer(response, tickets: tickets, wallMilliseconds: 0)
  }

  @Test func `receipts are matched by their ticket, and receipts for unknown tickets are ignored`() {
    let body = """
      {"data":{"B":{"status":"error","message":"m","details":{"error":"DeviceNotRegistered","fault":"developer"}},
        "\\u0041":{"status":"ok"},"C":{"status":"ok"}}}
      """
    #expect(
      answer(body)
        == .receipts([
          "A": .accepted(messageID: nil), "B": .tokenInvalid(reason: "DeviceNotRegistered", since: nil),
        ]))
  }

  @Test func `a ticket without a receipt is reported as missing`() {
    #expect(answer(#"{"data":{}}"#) == .receipts([:]))
    #expect(answer(#"{"data":{"A":{"status":"ok"}}}"#) == .receipts(["A": .accepted(messageID: nil)]))
  }

  @Test(arguments: ["null", "7", #""ok""#, "[]", "{}", #"{"status":"maybe"}"#, #"{"status":["ok"]}"#])
  func `an invalid receipt counts as missing`(receipt: String) {
    #expect(answer(#"{"data":{"A":\#(receipt)}}"#) == .receipts([:]))
  }

  @Test func `an error without a code or with an unknown one is recorded`() {
    for details in ["null", "{}", #"{"error":7}"#, #"{"error":"ExponentPushToken[x]"}"#] {
      #expect(
        answer(#"{"data":{"A":{"status":"error","details":\#(details)}}}"#)
          == .receipts(["A": .rejected(reason: "ReceiptErrorWithoutCode")]))
    }
    #expect(
      answer(#"{"data":{"A":{"status":"error","details":{"error":"SomethingNew"}}}}"#)
        == .receipts(["A": .rejected(reason: "SomethingNew")]))
  }

  @Test func `a refused request for receipts is judged by the same table as a refused send`() {
    let body = #"{"errors":[{"code":"TOO_MANY_REQUESTS","message":"m"}]}"#
    #expect(
      answer(body, status: 429, retryAfter: "9")
        == .failed(.throttled(reason: "TOO_MANY_REQUESTS", after: .seconds(9), isLaneWide: true)))
    #expect(
      answer(#"{"errors":[{"code":"PUSH_TOO_MANY_RECEIPTS"}]}"#, status: 400)
        == .failed(.rejected(reason: "PUSH_TOO_MANY_RECEIPTS")))
    #expect(answer("", status: 401) == .failed(.unauthorized(reason: "HTTP401")))
    #expect(answer("<html>", status: 502) == .failed(.unavailable(reason: "HTTP502", after: nil)))
  }

  @Test(arguments: ["", "<html></html>", "{}", "null", #"{"data":[]}"#, #"{"data":null}"#, #"{"data":{"A":{"status""#])
  func `a 200 without receipts fails, and may be requested again`(body: String) {
    #expect(answer(body) == .failed(.unavailable(reason: "MalformedAnswer", after: nil)))
  }
}
