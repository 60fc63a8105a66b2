// Tests of each error of FCM, caused by an invalid request and by a token.

import Foundation
import Runtime
import Testing

@testable import Simulators

@Suite("FCM simulator")
struct FCMSimulatorTests {
  private func error(_ answer: SimulatedAnswer) -> [String: Any] {
    object(answer.body)["error"] as? [String: Any] ?? [:]
  }

  private func detail(_ answer: SimulatedAnswer, _ type: String) -> [String: Any]? {
    (error(answer)["details"] as? [[String: Any]])?.first { ($0["@type"] as? String)?.hasSuffix(type) == true }
  }

  private func violation(_ answer: SimulatedAnswer) -> [String: String] {
    (detail(answer, "google.rpc.BadRequest")?["fieldViolations"] as? [[String: String]])?.first ?? [:]
  }

  @Test("a valid message is accepted and gets a name")
  func accepts() throws {
    var bench = FCMBench()
    let answer = bench.send()
    #expect(answer.status == 200)
    let name = try #require(object(answer.body)["name"] as? String)
    #expect(name.hasPrefix("projects/simulated-project/messages/0:"))
    let push = try #require(bench.journal.accepted.first)
    #expect(push.id == name)
    #expect(push.token == FCMBench.token)
    #expect(push.kind == "HIGH")
    #expect(push.detail("ttl") == "30s")
    #expect(object(push.payload) as? [String: String] == ["type": "intercom_call"])
    #expect(bench.send().body != answer.body)
  }

  @Test(
    "a time to live is a duration of up to four weeks",
    arguments: [
      ("0s", 200), ("30s", 200), ("2.5s", 200), ("2419200s", 200), ("2419201s", 400), ("30", 400), ("-1s", 400),
      ("s", 400), ("1.s", 400), ("30 s", 400), ("", 400),
    ])
  func timeToLive(_ text: String, _ status: Int) {
    var bench = FCMBench()
    #expect(bench.send(FCMBench.message(android: #"{"priority":"HIGH","ttl":"\#(text)"}"#)).status == status)
  }

  @Test(
    "reserved data keys are refused by name",
    arguments: ["", "from", "message_type", "google.x", "googleX", "gcm", "gcm.n"])
  func reservedKeys(_ key: String) {
    var bench = FCMBench()
    let answer = bench.send(FCMBench.message(data: #"{"\#(key)":"a"}"#))
    #expect(answer.status == 400)
    #expect(violation(answer) == ["field": "message.data", "description": "Invalid data payload key: \(key)"])
    #expect(detail(answer, "FcmError")?["errorCode"] as? String == "INVALID_ARGUMENT")
  }

  @Test("keys that only look reserved are accepted", arguments: ["fromId", "body", "xgoogle"])
  func freeKeys(_ key: String) {
    var bench = FCMBench()
    #expect(bench.send(FCMBench.message(data: #"{"\#(key)":"a"}"#)).status == 200)
  }

  @Test("data that is no string is refused with its path", arguments: ["1", "true", "null", "{}", "[]"])
  func stringsOnly(_ value: String) {
    var bench = FCMBench()
    let answer = bench.send(FCMBench.message(data: #"{"a":"b","c":\#(value)}"#))
    #expect(answer.status == 400)
    #expect(violation(answer)["field"] == "message.data[1].value")
    #expect(detail(answer, "FcmError") == nil)
  }

  static let mistakes: [(name: String, body: String, field: String)] = [
    ("unknown name at the top", #"{"to":"x"}"#, ""),
    ("unknown name in the message", FCMBench.message(more: #","priority":"high""#), "message"),
    (
      "unknown name in android", FCMBench.message(android: #"{"priority":"HIGH","ttl":"1s","time_to_live":1}"#),
      "message.android"
    ),
    ("no priority", FCMBench.message(android: #"{"ttl":"30s"}"#), "message.android.priority"),
    ("unknown priority", FCMBench.message(android: #"{"priority":"10","ttl":"30s"}"#), "message.android.priority"),
    ("no time to live", FCMBench.message(android: #"{"priority":"HIGH"}"#), "message.android.ttl"),
    (
      "direct_boot_ok is a string",
      FCMBench.message(android: #"{"priority":"HIGH","ttl":"1s","direct_boot_ok":"true"}"#),
      "message.android.direct_boot_ok"
    ),
    ("a notification", FCMBench.message(more: #","notification":{"title":"x"}"#), "message.notification"),
    ("two targets", FCMBench.message(more: #","topic":"x""#), "message"),
    ("no target", #"{"message":{"data":{},"android":{"priority":"HIGH","ttl":"1s"}}}"#, "message"),
    ("an impossible token", FCMBench.message(token: "not a token"), "message.token"),
    ("no message", "{}", "message"),
  ]

  @Test("an invalid message gets the field and its error", arguments: mistakes.indices)
  func refuses(_ index: Int) {
    let mistake = Self.mistakes[index]
    var bench = FCMBench()
    let answer = bench.send(mistake.body)
    #expect(answer.status == 400, "\(mistake.name)")
    #expect(error(answer)["status"] as? String == "INVALID_ARGUMENT")
    #expect(violation(answer)["field"] ?? "" == mistake.field, "\(mistake.name)")
    #expect(violation(answer)["description"]?.isEmpty == false)
    #expect(bench.journal.accepted.isEmpty)
  }

  @Test("a notification is refused only if data alone is required")
  func notification() {
    var bench = FCMBench(requiresDataOnly: false)
    #expect(bench.send(FCMBench.message(more: #","notification":{"title":"x"}"#)).status == 200)
  }

  @Test("data may have 4096 bytes, and one more is refused without details")
  func limitsData() {
    func data(_ size: Int) -> String { #"{"k":"\#(String(repeating: "x", count: size - 1))"}"# }
    var bench = FCMBench()
    #expect(bench.send(FCMBench.message(data: data(4096))).status == 200)
    let answer = bench.send(FCMBench.message(data: data(4097)))
    #expect(answer.status == 400)
    #expect(error(answer)["details"] == nil)
  }

  @Test("an access token that is unknown, missing or expired is UNAUTHENTICATED without FcmError")
  func authorises() {
    var bench = FCMBench()
    for authorization in ["Bearer ya29.unknown", "", "Basic abc", bench.accessToken] {
      let answer = bench.send(authorization: authorization)
      #expect(answer.status == 401)
      #expect(error(answer)["status"] as? String == "UNAUTHENTICATED")
      #expect(detail(answer, "FcmError") == nil)
    }
    bench.now += 3_598
    #expect(bench.send().status == 200)
    bench.now += 1
    #expect(bench.send().status == 401)
  }

  @Test("another project is a 404 without FcmError, another path a page of HTML")
  func paths() {
    var bench = FCMBench()
    let project = bench.send(path: "/v1/projects/other/messages:send")
    #expect(project.status == 404)
    #expect(error(project)["status"] as? String == "NOT_FOUND")
    #expect(detail(project, "FcmError") == nil)
    #expect(bench.send(path: "/fcm/send").contentType == .html)
  }

  @Test("the method must be POST and the content JSON")
  func envelope() {
    var bench = FCMBench()
    #expect(bench.send(method: "GET").status == 405)
    #expect(bench.send(contentType: "text/plain").status == 400)
    #expect(bench.send("{").status == 400)
  }

  @Test(
    "a token's prefix causes each error",
    arguments: [
      ("INVALID_ARGUMENT", 400, "INVALID_ARGUMENT"), ("THIRD_PARTY_AUTH_ERROR", 401, "THIRD_PARTY_AUTH_ERROR"),
      ("UNAUTHENTICATED", 401, ""), ("SENDER_ID_MISMATCH", 403, "SENDER_ID_MISMATCH"), ("NOT_FOUND", 404, ""),
      ("UNREGISTERED", 404, "UNREGISTERED"), ("QUOTA_EXCEEDED", 429, "QUOTA_EXCEEDED"), ("INTERNAL", 500, "INTERNAL"),
      ("UNAVAILABLE", 503, "UNAVAILABLE"), ("TOO_BIG", 400, ""), ("INVALID_TOKEN", 400, "INVALID_ARGUMENT"),
      ("QUOTA_EXCEEDED_DEVICE", 429, "QUOTA_EXCEEDED"),
    ])
  func tokenFaults(_ name: String, _ status: Int, _ errorCode: String) {
    var bench = FCMBench()
    let answer = bench.send(FCMBench.message(token: "fault-\(name)-xyz"))
    #expect(answer.status == status)
    #expect(detail(answer, "FcmError")?["errorCode"] as? String ?? "" == errorCode)
    #expect(answer.retryAfter == nil)
    #expect(bench.send(FCMBench.message(token: "fault-\(name)-7-xyz")).retryAfter == 7)
    #expect(bench.journal.accepted.isEmpty)
    if name == "INVALID_ARGUMENT" { #expect(violation(answer)["field"] == "message.token") }
    if name == "INVALID_TOKEN" { #expect(detail(answer, "BadRequest") == nil) }
    let quota = (detail(answer, "QuotaFailure")?["violations"] as? [[String: String]])?.first?["subject"]
    let subjects = ["QUOTA_EXCEEDED": "project:simulated", "QUOTA_EXCEEDED_DEVICE": "device:simulated"]
    #expect(quota == subjects[name])
  }

  @Test("a fault's number is the delay of a slow answer, in milliseconds")
  func slow() {
    var bench = FCMBench()
    let answer = bench.send(FCMBench.message(token: "fault-slow-250-xyz"))
    #expect(answer.status == 200)
    #expect(answer.delay == .milliseconds(250))
  }
}
