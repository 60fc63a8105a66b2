// The fields that the planner adds to a body, and the deliveries that it refuses to plan.

import DialectsTestSupport
import Foundation
import Providers
import PushModel
import Queue
import Runtime
import Testing

@testable import Dialects

@Suite(.timeLimit(.minutes(10))) struct CallPlannerTests {
  private func planner(_ dialect: String = "intercom", _ provider: ProviderKind = .apns) throws -> CallPlanner {
    CallPlanner(dialect: try ShippedDialects.named(dialect)!, provider: provider)
  }

  @Test func `the request carries deadline, environment, kind and handle`() throws {
    var fixture = DeliveryFixture()
    fixture.environment = .sandbox
    let request = try fixture.plan("intercom", .apns)
    #expect(request.tag == 9)
    #expect(request.kind == .invite)
    #expect(request.environment == .sandbox)
    #expect(request.token == Array("token".utf8)[...])
    #expect(request.deadline == DeliveryFixture.now + .seconds(60))
    #expect(request.expiresAtMilliseconds == 1_750_000_060_000)
  }

  @Test func `the timestamp of a push comes from the database's clock, not from the gateway's`() throws {
    let delivery = DeliveryFixture().delivery
    let body = try planner().plan(delivery, now: DeliveryFixture.now + .milliseconds(12_345), tag: 0).get().body
    let json = try JSONScanner(body)
    #expect(json.member("timestamp").flatMap(json.text) == "1750000012345")
    #expect(json.member("expiresAt").flatMap(json.text) == "1750000060000")
  }

  @Test func `a delivery at or after its deadline is not planned`() throws {
    let delivery = DeliveryFixture().delivery
    #expect(throws: PlanningFailure.expired) { try planner().plan(delivery, now: delivery.deadline, tag: 0).get() }
    _ = try planner().plan(delivery, now: delivery.deadline - Nanoseconds(1), tag: 0).get()
  }

  @Test func `a dialect without a template for the provider has its own planning failure`() throws {
    #expect(throws: PlanningFailure.noTemplate) { try DeliveryFixture().plan("telnyx", .expo) }
    for kind in [PushKind.cancel, .missedCall] {
      var fixture = DeliveryFixture()
      fixture.kind = kind
      #expect(throws: PlanningFailure.noTemplate) { try fixture.plan("telnyx", .expo) }
    }
  }

  @Test(arguments: ShippedDialects.names) func `only telnyx can cancel a call over APNs, on every platform`(
    dialect: String
  ) throws {
    var fixture = DeliveryFixture()
    fixture.kind = .cancel
    for platform in DevicePlatform.allCases {
      fixture.platform = platform
      if dialect == "telnyx" {
        let request = try fixture.plan(dialect, .apns)
        #expect(request.kind == .cancel && request.manner.apnsType == .voip && !request.manner.isStored)
      } else {
        #expect(throws: PlanningFailure.noTemplate) { try fixture.plan(dialect, .apns) }
      }
    }
  }

  /// Google stores at most four collapse keys per device, and a missed call must never replace a cancel that has not arrived.
  @Test(arguments: ShippedDialects.names, DevicePlatform.allCases)
  func `on Android only a call and its cancel replace each other; a push that is shown has no collapse id`(
    dialect: String, platform: DevicePlatform
  )
    throws
  {
    var fixture = DeliveryFixture()
    fixture.platform = platform
    let callID = Array(fixture.callID.utf8)[...]
    for (kind, callKind) in [
      (PushKind.invite, ""), (.cancel, ""), (.missedCall, ""), (.notification, "message"),
      (.notification, "group_message"), (.notification, "group_invite"), (.notification, "missed_call"),
    ] {
      fixture.kind = kind
      fixture.callKind = callKind
      fixture.payload["chatId"] = "room"
      let isCall = kind == .invite || kind == .cancel
      if dialect == "telnyx", platform != .ios, kind == .notification, callKind != "missed_call" { continue }
      #expect(try fixture.plan(dialect, .fcm).collapseID == (isCall ? callID : nil))
      if kind != .cancel { #expect(try fixture.plan(dialect, .apns).collapseID == (isCall ? nil : callID)) }
      guard ["intercom", "twilio"].contains(dialect) else { continue }
      // On Android, Expo's collapse id is the collapse key; a template without a platform is used on both. On an iPhone a
      // repeated push replaces the one that is shown, and a missed call replaces the call.
      let isIPhone = platform == .ios
      #expect(try fixture.plan(dialect, .expo).collapseID == (isCall || isIPhone ? callID : nil))
    }
  }

  @Test func `no missed call follows a cancel that the app has already recorded as a missed call`() throws {
    var fixture = DeliveryFixture()
    fixture.kind = .missedCall
    // The end reason alone does not decide: a phone whose invite was not sent gets no cancel.
    for (reason, isTold) in ["ended", "missed", nil].flatMap({ reason in [false, true].map { (reason, $0) } }) {
      fixture.endReason = reason
      fixture.isPaired = isTold
      for platform in DevicePlatform.allCases {
        fixture.platform = platform
        for (dialect, provider) in [("telnyx", ProviderKind.fcm), ("telnyx", .apns), ("intercom", .fcm)] {
          let isSilent = isTold && dialect == "telnyx" && provider == .fcm && platform != .ios
          if isSilent {
            let failure = #expect(throws: PlanningFailure.saidByCancel) { try fixture.plan(dialect, provider) }
            #expect(failure?.isNeedless == true && failure?.reason == "SaidByCancel")
          } else {
            #expect(try fixture.plan(dialect, provider).kind == .missedCall)
          }
        }
      }
    }
    // A missed call that the backend enqueues as a notification follows no cancel.
    (fixture.kind, fixture.callKind, fixture.endReason, fixture.platform) = (
      .notification, "missed_call", "notification", .android
    )
    #expect(try fixture.plan("telnyx", .fcm).kind == .missedCall)
  }

  @Test func `a cancel followed by a missed call has the same text, because a provider may swap the two`() throws {
    var fixture = DeliveryFixture()
    (fixture.kind, fixture.platform, fixture.endReason) = (.cancel, .ios, "ended")
    for (isPaired, text) in [(false, "Call ended"), (true, "Missed call")] {
      fixture.isPaired = isPaired
      let message = try fixture.plan("intercom", .expo)
      #expect(String(decoding: message.body, as: UTF8.self).contains(#""body":"\#(text)""#))
    }
  }

  @Test(arguments: MissingText.allCases) func `a payload without a caller is a planning failure`(from: MissingText)
    throws
  {
    var fixture = DeliveryFixture()
    fixture.payload["from"] = from.value
    #expect(throws: PlanningFailure.missingField("from")) { try fixture.plan("intercom", .apns) }
  }

  @Test(arguments: [(ProviderKind.apns, 5120), (.fcm, 4096), (.expo, 4096)])
  func `the maximum size of a body is exact to the byte`(provider: ProviderKind, limit: Int) throws {
    var fixture = DeliveryFixture()
    fixture.payload = ["callId": "c1", "from": "f"]
    // An FCM message contains an unknown key twice: as a key of its own, and in body.
    fixture.payload["pad"] = ""
    let empty = try fixture.plan("intercom", provider).body.count
    let copies = provider == .fcm ? 2 : 1
    let room = limit - empty
    fixture.payload["pad"] = String(repeating: "x", count: room / copies)
    let fits = try fixture.plan("intercom", provider).body.count
    #expect(limit - fits < copies)
    fixture.payload["pad"] = String(repeating: "x", count: room / copies + 1)
    #expect(throws: PlanningFailure.payloadTooLarge(bytes: fits + copies, limit: limit)) {
      try fixture.plan("intercom", provider)
    }
  }

  @Test(arguments: ShippedDialects.names)
  func `if the invite fits, so do the cancel and the missed call, whatever else the payload contains`(dialect: String)
    throws
  {
    var fixture = DeliveryFixture()
    // The maximum of a VoIP push, which is more than the maximum of an alert.
    fixture.payload["metadata"] = ["clientVersion": "1"]
    fixture.payload["pad"] = String(repeating: "x", count: dialect == "intercom" ? 4500 : 100_000)
    #expect(try fixture.plan(dialect, .apns).body.count <= 5120)
    for (kind, provider) in [(PushKind.missedCall, ProviderKind.apns), (.missedCall, .fcm), (.cancel, .fcm)] {
      fixture.kind = kind
      #expect(try fixture.plan(dialect, provider).body.count < 1024)
    }
  }

  @Test func `an alert has at most 4096 bytes, fewer than a VoIP push with 5120`() throws {
    var fixture = DeliveryFixture()
    fixture.kind = .missedCall
    fixture.payload["channelName"] = ""
    let empty = try fixture.plan("intercom", .apns).body.count + #","channelName":"""#.utf8.count
    fixture.payload["channelName"] = String(repeating: "x", count: 4096 - empty)
    #expect(try fixture.plan("intercom", .apns).body.count == 4096)
    fixture.payload["channelName"] = String(repeating: "x", count: 4097 - empty)
    #expect(throws: PlanningFailure.payloadTooLarge(bytes: 4097, limit: 4096)) { try fixture.plan("intercom", .apns) }
  }

  @Test func `the id of a push is a UUID of version 8 that contains the outbox row and the push number`() throws {
    func text(_ outbox: Int64, _ number: Int32) -> String {
      let id = DeliveryID(DeliveryLease(outboxID: outbox, pushNumber: number, lease: 1))
      let hex =
        String(repeating: "0", count: 16 - String(id.high, radix: 16).count) + String(id.high, radix: 16)
        + String(id.low, radix: 16)
      return hex
    }
    #expect(text(0x1267, 2) == "00000000000182678000000000000002")
    #expect(text(.max, .max) == "ffffffffffff8fff870000007fffffff")
    var seen = Set<String>()
    for outbox in [Int64(0), 1, 4095, 4096, 1 << 59, 1 << 60, .max] {
      for number in [Int32(0), 1, 10_000, .max] {
        let id = text(outbox, number)
        #expect(Array(id)[12] == "8" && "89ab".contains(Array(id)[16]))
        seen.insert(id)
      }
    }
    #expect(seen.count == 28)
  }

  @Test func `every attempt of a push has the same id, whatever its lease`() {
    #expect(
      DeliveryID(DeliveryLease(outboxID: 7, pushNumber: 1, lease: 1))
        == DeliveryID(DeliveryLease(outboxID: 7, pushNumber: 1, lease: 9)))
  }

  @Test func `the collapse id is the call id if a header can contain it, and is never too long`() throws {
    var fixture = DeliveryFixture()
    #expect(try fixture.plan("intercom", .apns).collapseID == nil)
    #expect(try fixture.plan("intercom", .fcm).collapseID == Array(fixture.callID.utf8)[...])
    for id in [String(repeating: "a", count: 64), String(repeating: "a", count: 65), "ligação", "a\r\nb", "a b"] {
      fixture.payload["callId"] = id
      let collapse = try #require(try fixture.plan("intercom", .fcm).collapseID)
      #expect(collapse.count <= 64 && collapse.allSatisfy { 0x21...0x7E ~= $0 })
    }
    #expect(
      CallPlanner.collapseID(Array(String(repeating: "a", count: 65).utf8)[...])
        != CallPlanner.collapseID(Array(String(repeating: "a", count: 66).utf8)[...]))
    #expect(SHA256.hexDigest([]) == Array("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855".utf8))
  }
}
