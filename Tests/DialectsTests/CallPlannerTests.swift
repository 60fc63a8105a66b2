// What the planner puts around a body, and what it refuses to send.

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

  @Test func `the time of sending comes from the database's clock, whatever ours says`() throws {
    let delivery = DeliveryFixture().delivery
    let body = try planner().plan(delivery, now: DeliveryFixture.now + .milliseconds(12_345), tag: 0).get().body
    let json = try JSONScanner(body)
    #expect(json.member("timestamp").flatMap(json.text) == "1750000012345")
    #expect(json.member("expiresAt").flatMap(json.text) == "1750000060000")
  }

  @Test func `nothing is planned at or after the deadline`() throws {
    let delivery = DeliveryFixture().delivery
    #expect(throws: PlanningFailure.expired) { try planner().plan(delivery, now: delivery.deadline, tag: 0).get() }
    _ = try planner().plan(delivery, now: delivery.deadline - Nanoseconds(1), tag: 0).get()
  }

  @Test func `a dialect without a template for the provider is a failure of its own`() throws {
    #expect(throws: PlanningFailure.noTemplate) { try DeliveryFixture().plan("telnyx", .expo) }
    for kind in [PushKind.cancel, .missedCall] {
      var fixture = DeliveryFixture()
      fixture.kind = kind
      #expect(throws: PlanningFailure.noTemplate) { try fixture.plan("telnyx", .expo) }
    }
  }

  @Test(arguments: ShippedDialects.names) func `no dialect but telnyx can cancel over APNs, whatever the device`(
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

  /// Google keeps four collapse keys a device, and a missed call must never take the place of a cancel that has not arrived.
  @Test(arguments: ShippedDialects.names, DevicePlatform.allCases)
  func `what replaces what: on Android the call alone, and nothing shown`(dialect: String, platform: DevicePlatform)
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
      // Expo's collapse id is Android's collapse key; templates without a system serve both. On an iPhone what comes again
      // takes the place of what was shown, and a missed call that of the call.
      let isIPhone = platform == .ios
      #expect(try fixture.plan(dialect, .expo).collapseID == (isCall || isIPhone ? callID : nil))
    }
  }

  @Test func `a phone told of a hang-up as missed hears of no missed call again, where its app would file two`() throws
  {
    var fixture = DeliveryFixture()
    fixture.kind = .missedCall
    // A hang-up alone says nothing: the phone whose invite had not left gets no cancel.
    let numbers = [(Int32(20_000), false), (39_999, false), (40_000, true), (40_007, true)]
    for (reason, (number, isTold)) in ["ended", "missed", nil].flatMap({ reason in numbers.map { (reason, $0) } }) {
      fixture.endReason = reason
      fixture.pushNumber = number
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
    // One that the backend announces itself had no cancel before it, whatever its number.
    (fixture.kind, fixture.callKind, fixture.endReason, fixture.platform) = (
      .notification, "missed_call", "notification", .android
    )
    #expect(try fixture.plan("telnyx", .fcm).kind == .missedCall)
  }

  @Test func `a cancel whose phone is told of a missed call, too, says the same, for a provider may swap them`() throws
  {
    var fixture = DeliveryFixture()
    (fixture.kind, fixture.platform, fixture.endReason) = (.cancel, .ios, "ended")
    for (number, text) in [(Int32(10_000), "Call ended"), (29_999, "Call ended"), (30_000, "Missed call")] {
      fixture.pushNumber = number
      let message = try fixture.plan("intercom", .expo)
      #expect(String(decoding: message.body, as: UTF8.self).contains(#""body":"\#(text)""#))
    }
  }

  @Test(arguments: MissingText.allCases) func `a payload without a caller cannot be rendered`(from: MissingText) throws
  {
    var fixture = DeliveryFixture()
    fixture.payload["from"] = from.value
    #expect(throws: PlanningFailure.missingField("from")) { try fixture.plan("intercom", .apns) }
  }

  @Test(arguments: [(ProviderKind.apns, 5120), (.fcm, 4096), (.expo, 4096)])
  func `the limit is exact to the byte`(provider: ProviderKind, limit: Int) throws {
    var fixture = DeliveryFixture()
    fixture.payload = ["callId": "c1", "from": "f"]
    // FCM carries an unknown key twice: flat, and in body.
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
  func `a call that rang can be cancelled and missed, whatever else its payload carries`(dialect: String) throws {
    var fixture = DeliveryFixture()
    // As much as a VoIP push can take: more than an alert can.
    fixture.payload["metadata"] = ["clientVersion": "1"]
    fixture.payload["pad"] = String(repeating: "x", count: dialect == "intercom" ? 4500 : 100_000)
    #expect(try fixture.plan(dialect, .apns).body.count <= 5120)
    for (kind, provider) in [(PushKind.missedCall, ProviderKind.apns), (.missedCall, .fcm), (.cancel, .fcm)] {
      fixture.kind = kind
      #expect(try fixture.plan(dialect, provider).body.count < 1024)
    }
  }

  @Test func `an alert's limit is 4096 bytes, not a VoIP push's 5120`() throws {
    var fixture = DeliveryFixture()
    fixture.kind = .missedCall
    fixture.payload["buildingName"] = ""
    let empty = try fixture.plan("intercom", .apns).body.count + #","buildingName":"""#.utf8.count
    fixture.payload["buildingName"] = String(repeating: "x", count: 4096 - empty)
    #expect(try fixture.plan("intercom", .apns).body.count == 4096)
    fixture.payload["buildingName"] = String(repeating: "x", count: 4097 - empty)
    #expect(throws: PlanningFailure.payloadTooLarge(bytes: 4097, limit: 4096)) { try fixture.plan("intercom", .apns) }
  }

  @Test func `an id names outbox row and push, and is a UUID of version 8`() throws {
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

  @Test func `the lease does not change the id: every attempt has the same`() {
    #expect(
      DeliveryID(DeliveryLease(outboxID: 7, pushNumber: 1, lease: 1))
        == DeliveryID(DeliveryLease(outboxID: 7, pushNumber: 1, lease: 9)))
  }

  @Test func `the collapse id is the call id where a header can carry it, and always fits`() throws {
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
