// Tests of every code of FCM, of other answers, and of the bytes of a request.

import PushModel
import Runtime
import Testing

@testable import Providers

@Suite("FCM: answers and requests", .timeLimit(.minutes(10))) struct FCMAnswerTests {
  private func read(
    _ status: UInt16, _ body: String, retryAfter: String? = nil, date: String? = nil
  ) -> AnswerDisposition {
    var response = HTTP2Message()
    response.headers.add(":status", String(status))
    if let retryAfter { response.headers.add("retry-after", retryAfter) }
    if let date { response.headers.add("date", date) }
    response.body = Array(body.utf8)
    return FCMReasonTable.read(response, wallMilliseconds: 784_111_777_000)
  }

  private static func error(
    _ status: String, fcm: String? = nil, field: String? = nil, message: String = "m",
    quota: [(subject: String, description: String)] = []
  ) -> String {
    var details: [String] = []
    if !quota.isEmpty {
      let violations = quota.map { #"{"subject":"\#($0.subject)","description":"\#($0.description)"}"# }
      details.append(
        #"{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[\#(violations.joined(separator: ","))]}"#
      )
    }
    if let fcm {
      details.append(#"{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"\#(fcm)"}"#)
    }
    if let field {
      details.append(
        #"{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"\#(field)","description":"d"}]}"#
      )
    }
    return
      #"{"error":{"code":0,"message":"\#(message)","status":"\#(status)","details":[\#(details.joined(separator: ","))]}}"#
  }

  @Test func `a success contains the message's name`() {
    #expect(
      read(200, #"{"name":"projects/p/messages/0:17%abc"}"#)
        == .settle(.accepted(messageID: "projects/p/messages/0:17%abc")))
  }

  @Test(arguments: FCMReasonRow.documented.indices)
  func `every documented code has its outcome, of at most its scope`(index: Int) {
    let row = FCMReasonRow.documented[index]
    let found = read(row.status, Self.error(row.code, fcm: row.isFCMError ? row.code : nil))
    if let disposition = row.disposition { #expect(found == disposition) }
    if case .settle(let outcome, _) = found { #expect(outcome.reach <= row.scope) }
  }

  @Test func `the table contains exactly the documented rows, each with its source`() {
    #expect(
      FCMReasonTable.rows.map { "\($0.status) \($0.code) \($0.isFCMError) \($0.scope)" }
        == FCMReasonRow.documented.map { "\($0.status) \($0.code) \($0.isFCMError) \($0.scope)" })
    #expect(FCMReasonTable.rows.allSatisfy { !$0.source.isEmpty })
  }

  @Test(
    arguments: [
      ("INVALID_ARGUMENT", "message.token", true), ("INVALID_ARGUMENT", "message.data", false),
      ("INVALID_ARGUMENT", nil, false), (nil, nil, false), (nil, "message.token", true),
    ] as [(String?, String?, Bool)])
  func `INVALID_ARGUMENT deletes the token only if the violation is about it`(
    fcm: String?, field: String?, isDead: Bool
  ) {
    #expect(
      read(400, Self.error("INVALID_ARGUMENT", fcm: fcm, field: field))
        == .settle(
          isDead ? .tokenInvalid(reason: "INVALID_ARGUMENT", since: nil) : .rejected(reason: "INVALID_ARGUMENT")))
  }

  @Test(arguments: [
    ("The registration token is not a valid FCM registration token", true),
    ("Request contains an invalid argument.", false), ("The registration token is missing", false),
    ("Message too long", false),
  ])
  func `INVALID_ARGUMENT deletes the token if a violation or the message names the token`(message: String, isDead: Bool)
  {
    let outcome: PushOutcome =
      isDead ? .tokenInvalid(reason: "INVALID_ARGUMENT", since: nil) : .rejected(reason: "INVALID_ARGUMENT")
    for fcm in ["INVALID_ARGUMENT", nil] {
      #expect(read(400, Self.error("INVALID_ARGUMENT", fcm: fcm, message: message)) == .settle(outcome))
    }
    // Under another status, or with another code, the same words cost no token.
    #expect(
      read(503, Self.error("UNAVAILABLE", fcm: "UNAVAILABLE", message: message))
        == .settle(.unavailable(reason: "UNAVAILABLE", after: nil)))
    #expect(
      read(500, Self.error("INVALID_ARGUMENT", message: message))
        == .settle(.unavailable(reason: "HTTP500", after: nil)))
  }

  @Test(
    arguments: [
      ("m", [], false),
      ("m", [("device:abc", "Device message rate exceeded")], false),
      ("m", [("projects/p/devices/abc", "")], false),
      ("m", [("", "The rate of messages to this device is too high")], false),
      ("m", [("", "")], false), ("m", [("abc", "something new")], false),
      ("Device message rate exceeded", [], false),
      ("m", [("project:p", "Message rate exceeded")], true),
      ("m", [("projects/p", "")], true), ("m", [("topic:news", "Topic message rate exceeded")], true),
      ("m", [("device:abc", ""), ("project:p", "")], true),
      ("Quota exceeded for quota metric 'Send requests' and limit 'Send requests per minute'.", [], true),
      ("Topic quota exceeded.", [], true),
      ("Quota exceeded for quota metric 'Send requests'", [("device:abc", "")], false),
    ] as [(String, [(String, String)], Bool)])
  func `QUOTA_EXCEEDED concerns the token, unless FCM names the rate of the project or of a topic`(
    message: String, violations: [(String, String)], isLaneWide: Bool
  ) {
    let body = Self.error("RESOURCE_EXHAUSTED", fcm: "QUOTA_EXCEEDED", message: message, quota: violations)
    #expect(
      read(429, body)
        == .settle(.throttled(reason: "QUOTA_EXCEEDED", after: isLaneWide ? .seconds(60) : nil, isLaneWide: isLaneWide))
    )
    #expect(
      read(429, body, retryAfter: "7")
        == .settle(.throttled(reason: "QUOTA_EXCEEDED", after: .seconds(7), isLaneWide: isLaneWide)))
  }

  @Test(
    arguments: [
      (Self.error("RESOURCE_EXHAUSTED"), "RESOURCE_EXHAUSTED"), ("", "HTTP429"), ("<html></html>", "HTTP429"),
      (Self.error("SOMETHING_NEW"), "HTTP429"),
    ])
  func `a 429 concerns the token, unless it names a time or the project`(body: String, reason: String) {
    #expect(read(429, body) == .settle(.throttled(reason: reason, after: nil, isLaneWide: false)))
    #expect(
      read(429, body, retryAfter: "7") == .settle(.throttled(reason: reason, after: .seconds(7), isLaneWide: true)))
    #expect(
      read(429, Self.error("RESOURCE_EXHAUSTED", message: "Quota exceeded for project p"))
        == .settle(.throttled(reason: "RESOURCE_EXHAUSTED", after: .seconds(60), isLaneWide: true)))
  }

  @Test func `Retry-After is obeyed in seconds and as a date`() {
    #expect(
      read(429, Self.error("RESOURCE_EXHAUSTED"), retryAfter: "7")
        == .settle(.throttled(reason: "RESOURCE_EXHAUSTED", after: .seconds(7), isLaneWide: true)))
    #expect(
      read(503, Self.error("UNAVAILABLE", fcm: "UNAVAILABLE"), retryAfter: "Sun, 06 Nov 1994 08:49:57 GMT")
        == .settle(.unavailable(reason: "UNAVAILABLE", after: .seconds(20))))
    #expect(
      read(502, "", retryAfter: "Sun, 06 Nov 1994 08:49:57 GMT", date: "Sun, 06 Nov 1994 08:49:47 GMT")
        == .settle(.unavailable(reason: "HTTP502", after: .seconds(10))))
  }

  @Test(
    arguments: [
      (400, AnswerDisposition.settle(.rejected(reason: "HTTP400"))), (401, .renewToken),
      (302, .settle(.unauthorized(reason: "HTTP302"))), (403, .settle(.unauthorized(reason: "HTTP403"))),
      (404, .settle(.unauthorized(reason: "HTTP404"))), (408, .settle(.unavailable(reason: "HTTP408", after: nil))),
      (413, .settle(.rejected(reason: "HTTP413"))),
      (429, .settle(.throttled(reason: "HTTP429", after: nil, isLaneWide: false))),
      (500, .settle(.unavailable(reason: "HTTP500", after: nil))),
      (502, .settle(.unavailable(reason: "HTTP502", after: nil))),
      (503, .settle(.unavailable(reason: "HTTP503", after: nil))),
      (504, .settle(.unavailable(reason: "HTTP504", after: nil))),
    ] as [(UInt16, AnswerDisposition)])
  func `A body that is none of FCM's kills no token`(status: UInt16, disposition: AnswerDisposition) {
    let bodies = [
      "", "<!DOCTYPE html><title>Error 502 (Server Error)!!1</title>", "null", "[]", #"{"error":"#, #"{"error":7}"#,
      #"{"error":{}}"#, #"{"error":{"details":{}}}"#, #"{"error":{"status":7,"details":[7,null,{"@type":1}]}}"#,
      // the right code under the wrong status, or of another error type
      status == 404 ? "" : Self.error("NOT_FOUND", fcm: "UNREGISTERED"),
      #"{"error":{"status":"X","details":[{"@type":"type.googleapis.com/other.Error","errorCode":"UNREGISTERED"}]}}"#,
    ]
    for body in bodies { #expect(read(status, body) == disposition, "\(body)") }
  }

  @Test func `a 200 without a message name does not count as success`() {
    for body in ["", "<html></html>", "{}", #"{"name":7}"#] {
      #expect(read(200, body) == .settle(.unknown(reason: "MalformedAnswer")))
    }
  }

  // MARK: - The request

  private func request(deadline: Int64, collapseID: String? = nil) -> PushRequest {
    PushRequest(
      tag: 1, deliveryID: DeliveryID(high: 0, low: 1), kind: .invite, environment: .production,
      token: Array(#"abc:APA91b-_"#.utf8), body: Array(#"{"callId":"c1","fromId":"u\"1"}"#.utf8),
      collapseID: collapseID.map { Array($0.utf8) }, deadline: Instant(nanoseconds: deadline),
      expiresAtMilliseconds: 0)
  }

  @Test func `the body has only data, high priority, and a time to live up to the deadline`() {
    let body = FCMRequestWriter.body(request(deadline: 30_999_999_999), now: Instant(nanoseconds: 1_000_000_000))
    #expect(
      String(decoding: body, as: UTF8.self) == """
        {"message":{"token":"abc:APA91b-_","data":{"callId":"c1","fromId":"u\\"1"},\
        "android":{"priority":"HIGH","ttl":"29s","direct_boot_ok":true}}}
        """)
  }

  @Test func `a collapse key is written if there is one`() {
    let body = FCMRequestWriter.body(
      request(deadline: 5_000_000_000, collapseID: "call-1"), now: Instant(nanoseconds: 0))
    #expect(
      String(decoding: body, as: UTF8.self).hasSuffix(
        #""android":{"priority":"HIGH","ttl":"5s","collapse_key":"call-1","direct_boot_ok":true}}}"#))
  }

  @Test(arguments: [(0, 1, "0s"), (999_999_999, 0, "0s"), (1_000_000_000, 0, "1s"), (Int64.max, 0, "2419200s")])
  func `the time to live is the time until the deadline`(deadline: Int64, now: Int64, expected: String) {
    let body = FCMRequestWriter.body(request(deadline: deadline), now: Instant(nanoseconds: now))
    #expect(String(decoding: body, as: UTF8.self).contains("\"ttl\":\"\(expected)\""))
  }

  @Test func `the head has the fields that the protocol requires`() {
    var head = HTTP2RequestHead()
    FCMRequestWriter(authority: "localhost:8443", projectID: "p-1").write(
      bearer: Array("Bearer T".utf8), into: &head)
    var fields: [String] = []
    head.decoded().forEach { name, value in
      fields.append("\(String(decoding: name, as: UTF8.self)): \(String(decoding: value, as: UTF8.self))")
    }
    #expect(
      fields == [
        ":method: POST", ":scheme: https", ":path: /v1/projects/p-1/messages:send", ":authority: localhost:8443",
        "content-type: application/json", "authorization: Bearer T",
      ])
  }
}
