// The web push templates of the intercom dialect, as the service worker of docs/integrations/web.md reads them.

import DialectsTestSupport
import Foundation
import Providers
import PushModel
import Testing

@testable import Dialects

@Suite struct WebPushDialectTests {
  private static func fixture(_ kind: PushKind = .invite, _ callKind: String = "incoming_call") -> DeliveryFixture {
    var fixture = DeliveryFixture()
    fixture.platform = .web
    fixture.kind = kind
    fixture.callKind = callKind
    return fixture
  }

  @Test func `a call has the texts of its notification, and the whole payload`() throws {
    let fixture = Self.fixture()
    let plan = try fixture.plan("intercom", .webpush)
    let body = try parse(Data(plan.body))
    #expect(body["type"] as? String == "intercom_call")
    #expect(body["title"] as? String == "Portaria \"Sul\" é" && body["body"] as? String == "Incoming call")
    #expect(body["tag"] as? String == fixture.callID && body["callId"] as? String == fixture.callID)
    #expect(body["doorCode"] as? String == "A1" && body["floor"] as? Int == 10)
    #expect((body["metadata"] as? [String: Any])?["schemaVersion"] as? Int == 1)
    #expect(plan.manner.priority == .high && plan.manner.timeToLiveMax == nil)
    #expect(plan.collapseID.map(Array.init) == Array(fixture.callID.utf8))
  }

  @Test func `the end of a call replaces it: at the push service by its topic, in the browser by its tag`() throws {
    let fixture = Self.fixture(.cancel)
    let plan = try fixture.plan("intercom", .webpush)
    let body = try parse(Data(plan.body))
    #expect(body["type"] as? String == "intercom_call_end")
    #expect(body["tag"] as? String == fixture.callID && body["body"] as? String == "Call ended")
    #expect(plan.collapseID.map(Array.init) == Array(fixture.callID.utf8))
  }

  @Test(arguments: [
    (PushKind.missedCall, "incoming_call"), (.notification, "message"), (.notification, "group_invite"),
  ])
  func `every other kind has a title, a text and a tag, and replaces no push that waits`(
    kind: PushKind, callKind: String
  ) throws {
    var fixture = Self.fixture(kind, callKind)
    fixture.payload["chatId"] = "chat-7"
    let plan = try fixture.plan("intercom", .webpush)
    let body = try parse(Data(plan.body))
    for name in ["title", "body", "tag", "callId", "seq", "timestamp", "expiresAt"] {
      #expect((body[name] as? String)?.isEmpty == false, "\(name)")
    }
    #expect(body["tag"] as? String == (kind == .missedCall ? fixture.callID : "chat-7"))
    #expect(plan.collapseID == nil)
  }

  @Test func `the content of one record is the limit`() throws {
    var fixture = Self.fixture()
    let rest = try fixture.plan("intercom", .webpush).body.count
    // `,"filler":""` has 12 bytes.
    fixture.payload["filler"] = String(repeating: "x", count: 3993 - rest - 12)
    #expect(try fixture.plan("intercom", .webpush).body.count == 3993)
    fixture.payload["filler"] = String(repeating: "x", count: 3993 - rest - 11)
    #expect(throws: PlanningFailure.payloadTooLarge(bytes: 3994, limit: 3993)) {
      try fixture.plan("intercom", .webpush)
    }
  }

  @Test func `an app's own templates choose urgency and time to live`() throws {
    var dialect = try #require(try ShippedDialects.named("twilio"))
    #expect(!dialect.speaks(.webpush))
    #expect(
      dialect.lay(
        over:
          #"{"webpush": {"invite": {"$push": {"priority": "low", "ttl": 5, "collapse": "none"}, "title": "${from}"}}}"#)
        == [])
    #expect(dialect.speaks(.webpush))
    let planner = CallPlanner(dialect: dialect, provider: .webpush)
    let plan = try planner.plan(Self.fixture().delivery, now: DeliveryFixture.now, tag: 1).get()
    #expect(plan.manner.priority == .low && plan.manner.timeToLiveMax == 5 && plan.collapseID == nil)
    let faults = dialect.lay(
      over: #"{"webpush": {"invite": {"$push": {"priority": "urgent", "apns": "none"}, "title": "x"}}}"#)
    #expect(
      faults.map(\.description) == [
        "webpush.invite.$push.priority: must be high, normal or low",
        "webpush.invite.$push.apns: unknown: apns; there are priority, ttl, collapse",
      ])
  }
}
