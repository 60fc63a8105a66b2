// Tests of each reason of APNs, caused by an invalid request and by a token.

import Foundation
import Runtime
import Testing

@testable import Simulators

@Suite("APNs simulator")
struct APNsSimulatorTests {
  @Test("a valid VoIP request is accepted and its apns-id echoed")
  func accepts() throws {
    var bench = APNsBench()
    let answer = bench.send()
    #expect(answer.status == 200)
    #expect(answer.body.isEmpty)
    #expect(String(decoding: answer.apnsID, as: UTF8.self) == "123e4567-e89b-12d3-a456-426614174000")
    let push = try #require(bench.journal.accepted.first)
    #expect(push.token == Fixture.token)
    #expect(push.kind == "voip")
    #expect(push.topic == "com.example.app.voip")
    #expect(push.detail("apns-expiration") == "0")
    #expect(push.violation == nil)
    #expect(object(push.payload)["callId"] as? String == "c1")
  }

  @Test("a valid alert request is accepted, and gets an apns-id if it has none")
  func acceptsAlert() {
    var bench = APNsBench(.sandbox)
    let answer = bench.send(["apns-topic": "com.example.app", "apns-push-type": "alert", "apns-id": nil])
    #expect(answer.status == 200)
    #expect(UUID(uuidString: String(decoding: answer.apnsID, as: UTF8.self)) != nil)
  }

  /// One request for each reason that a request can cause.
  static let mistakes: [(reason: APNsReason, name: String, changes: [String: String?])] = [
    (.methodNotAllowed, "GET", [":method": "GET"]),
    (.badPath, "another path", [":path": "/3/devices/abc"]),
    (.badPath, "a path below the token", [":path": "/3/device/abc/def"]),
    (.missingDeviceToken, "no token", [":path": "/3/device/"]),
    (.badDeviceToken, "no hexadecimal digit", [":path": "/3/device/\(String(repeating: "x", count: 64))"]),
    (.badDeviceToken, "too short", [":path": "/3/device/abcdef"]),
    (.badDeviceToken, "a sandbox token", [":path": APNsBench.path(APNsBench.token("5a4db0"))]),
    (.missingProviderToken, "no authorization", ["authorization": nil]),
    (.missingProviderToken, "another scheme", ["authorization": "basic abc"]),
    (.invalidProviderToken, "no token", ["authorization": "bearer abc"]),
    (.badMessageId, "apns-id is no UUID", ["apns-id": "42"]),
    (.invalidPushType, "no push type", ["apns-push-type": nil]),
    (.invalidPushType, "an unknown push type", ["apns-push-type": "ring"]),
    (.badExpirationDate, "no expiration", ["apns-expiration": nil]),
    (.badExpirationDate, "expiration is no number", ["apns-expiration": "soon"]),
    (.badPriority, "no priority", ["apns-priority": nil]),
    (.badPriority, "a priority not for VoIP", ["apns-priority": "5"]),
    (.badCollapseId, "65 bytes", ["apns-collapse-id": String(repeating: "c", count: 65)]),
    (.missingTopic, "no topic", ["apns-topic": nil]),
    (.badTopic, "a VoIP push without .voip", ["apns-topic": "com.example.app"]),
    (.badTopic, "an alert with .voip", ["apns-push-type": "alert"]),
    (.topicDisallowed, "somebody else's topic", ["apns-topic": "com.example.other.voip"]),
  ]

  @Test("an invalid request gets the reason of its fault", arguments: mistakes.indices)
  func refuses(_ index: Int) {
    let mistake = Self.mistakes[index]
    var bench = APNsBench()
    let answer = bench.send(mistake.changes)
    #expect(answer.status == mistake.reason.status, "\(mistake.name)")
    #expect(object(answer.body)["reason"] as? String == mistake.reason.rawValue, "\(mistake.name)")
    #expect(bench.journal.counters.refused == [mistake.reason.rawValue: 1])
    #expect(bench.journal.accepted.isEmpty)
  }

  @Test("a header field that occurs twice is DuplicateHeaders")
  func refusesDuplicates() {
    var bench = APNsBench()
    let answer = bench.send(extra: [("apns-priority", "10")])
    #expect(object(answer.body)["reason"] as? String == "DuplicateHeaders")
  }

  @Test("a production token is BadDeviceToken at the sandbox and accepted at production")
  func tellsEnvironments() {
    var (production, sandbox) = (APNsBench(.production), APNsBench(.sandbox))
    let path = APNsBench.path(APNsBench.token("960d00"))
    #expect(object(sandbox.send([":path": path]).body)["reason"] as? String == "BadDeviceToken")
    #expect(production.send([":path": path]).status == 200)
  }

  @Test("an empty, broken or non-object payload is PayloadEmpty", arguments: ["", "{", "[1]", "\"a\"", "{} {}"])
  func refusesPayload(_ body: String) {
    var bench = APNsBench()
    #expect(object(bench.send(body: body).body)["reason"] as? String == "PayloadEmpty")
  }

  @Test("a VoIP payload may have 5120 bytes and an alert 4096, not one more")
  func limitsPayload() {
    func payload(_ size: Int) -> String { #"{"a":"\#(String(repeating: "x", count: size - 8))"}"# }
    let alert: [String: String?] = ["apns-topic": "com.example.app", "apns-push-type": "alert"]
    var bench = APNsBench()
    #expect(bench.send(body: payload(5120)).status == 200)
    #expect(bench.send(body: payload(5121)).status == 413)
    #expect(bench.send(alert, body: payload(4096)).status == 200)
    let answer = bench.send(alert, body: payload(4097))
    #expect(answer.status == 413)
    #expect(object(answer.body)["reason"] as? String == "PayloadTooLarge")
  }

  @Test(
    "a cancel or a missed call by VoIP is accepted, as at Apple, and recorded as a violation",
    arguments: [#"{"action":"call_cancelled"}"#, #"{"type":"missed_call"}"#])
  func recordsViolation(_ body: String) {
    var bench = APNsBench()
    #expect(bench.send(body: body).status == 200)
    #expect(bench.journal.counters.violations == ["voip_push_is_no_invite": 1])
    #expect(bench.send(["apns-topic": "com.example.app", "apns-push-type": "alert"], body: body).status == 200)
    #expect(bench.journal.counters.violations == ["voip_push_is_no_invite": 1])
  }

  @Test("a token's prefix causes each reason, with its status", arguments: APNsReason.allCases)
  func tokenFaults(_ reason: APNsReason) {
    var bench = APNsBench()
    let answer = bench.send([":path": APNsBench.path(APNsBench.token(reason.faultPrefix))])
    #expect(answer.status == reason.status)
    #expect(object(answer.body)["reason"] as? String == reason.rawValue)
    #expect((object(answer.body)["timestamp"] as? Int64 == Fixture.now * 1000) == (reason.status == 410))
    #expect(bench.journal.accepted.isEmpty)
  }

  @Test("the documented prefixes do not change")
  func prefixes() {
    #expect(APNsReason.unregistered.faultPrefix == "dead4100")
    #expect(APNsReason.badDeviceToken.faultPrefix == "dead4001")
    #expect(APNsReason.expiredProviderToken.faultPrefix == "dead4032")
    #expect(APNsReason.serviceUnavailable.faultPrefix == "dead5030")
    #expect(Set(APNsTokenFault.table.map(\.prefix)).count == APNsTokenFault.table.count)
  }

  @Test("a 410 can have a time long ago")
  func longDead() {
    var bench = APNsBench()
    let answer = bench.send([":path": APNsBench.path(APNsBench.token("dead410f"))])
    #expect(object(answer.body)["timestamp"] as? Int64 == 1_500_000_000_000)
  }

  @Test("the common faults act on the stream and not on the status")
  func commonFaults() {
    var bench = APNsBench()
    func answer(_ prefix: String) -> SimulatedAnswer { bench.send([":path": APNsBench.path(APNsBench.token(prefix))]) }
    #expect(answer("dead0001").delivery == .never)
    #expect(bench.journal.counters.accepted == 0)
    #expect(answer("dead0002").delivery == .never)
    #expect(bench.journal.counters.accepted == 1)
    #expect(answer("dead0003").delivery == .reset)
    #expect(answer("dead0004").delivery == .refuse)
    #expect(answer("dead0005").delivery == .close)
    #expect(answer("dead0006").status == 500)
    let page = answer("dead0007")
    #expect(page.status == 502)
    #expect(page.contentType == .html)
    #expect(answer("dead0008").delay == .seconds(1))
    let last = answer("dead0009")
    #expect(last.status == 200)
    #expect(last.goAwayReason == #"{"reason":"Shutdown"}"#)
    #expect(bench.journal.counters.accepted == 3)
  }
}
