// The cancel of every shipped dialect, read in the same way as its app reads it.

import DialectsTestSupport
import Foundation
import Providers
import PushModel
import Queue
import Testing

@testable import Dialects

@Suite struct DialectCancelTests {
  private let cancel: DeliveryFixture = {
    var fixture = DeliveryFixture()
    fixture.kind = .cancel
    fixture.pushNumber = 7
    fixture.endReason = "answered_elsewhere"
    return fixture
  }()

  private static let routes: [(dialect: String, provider: ProviderKind)] = [
    ("intercom", .fcm), ("intercom", .expo), ("twilio", .fcm), ("twilio", .expo), ("enclosure", .fcm),
    ("telnyx", .fcm), ("commeazy", .fcm),
  ]

  @Test(arguments: routes)
  func `a cancel contains the call id and the reason, and its seq is higher than the invite's`(
    dialect: String, provider: ProviderKind
  ) throws {
    let data = try data(cancel, dialect, provider)
    #expect(data["action"] as? String == "call_cancelled")
    #expect(data["callId"] as? String == cancel.callID)
    #expect(data["reason"] as? String == "answered_elsewhere")
    #expect(data["timestamp"] as? String == "1750000000000")
    #expect(data["expiresAt"] as? String == "1750000060000")
    var invite = cancel
    invite.kind = .invite
    invite.pushNumber = 3
    let ringing = try self.data(invite, dialect, provider)
    #expect(Int(data["seq"] as! String)! > Int(ringing["seq"] as! String)!)
  }

  @Test(arguments: routes)
  func `a cancel contains only data except for iPhones, and over FCM all its values are strings`(
    dialect: String, provider: ProviderKind
  )
    throws
  {
    for platform in DevicePlatform.allCases {
      var fixture = cancel
      fixture.platform = platform
      let body = try fixture.body(dialect, provider)
      if provider == .expo, dialect == "intercom", platform == .ios {
        #expect(Set(body.keys) == ["title", "body", "interruptionLevel", "data"])
      } else if provider == .expo {
        #expect(Set(body.keys) == ["_contentAvailable", "data"])
        #expect(body["_contentAvailable"] as? Bool == true)
      } else {
        #expect(body.values.allSatisfy { $0 is String })
      }
    }
  }

  @Test(arguments: routes, [nil, ""])
  func `the reason of a cancel without one is ended`(route: (dialect: String, provider: ProviderKind), reason: String?)
    throws
  {
    var fixture = cancel
    fixture.endReason = reason
    #expect(try data(fixture, route.dialect, route.provider)["reason"] as? String == "ended")
  }

  @Test func `a reason is passed on as text, whatever characters it contains`() throws {
    var fixture = cancel
    fixture.endReason = "\",\"type\":\"intercom_call\u{1}\\é"
    let data = try fixture.body("intercom", .fcm)
    #expect(data["reason"] as? String == fixture.endReason)
    #expect(try parse(data["body"])["reason"] as? String == fixture.endReason)
  }

  @Test func `intercom gets the cancel as flat keys, in body, and under data`() throws {
    let flat = try cancel.body("intercom", .fcm)
    let canonical = try parse(flat["body"])
    let expo = try data(cancel, "intercom", .expo)
    for data in [flat, canonical, expo] {
      #expect(data["type"] as? String == "intercom_call_end")
      #expect(data["action"] as? String == "call_cancelled")
      #expect(data["callId"] as? String == cancel.callID)
      #expect(data["seq"] as? String == "7")
    }
    #expect(Set(canonical.keys) == Set(expo.keys))
  }

  @Test func `intercom's cancel needs no member of the payload`() throws {
    var fixture = cancel
    fixture.payload = [:]
    #expect(try fixture.body("intercom", .fcm)["action"] as? String == "call_cancelled")
  }

  @Test(arguments: [ProviderKind.fcm, .expo])
  func `twilio's SDK gets twilio.voice.cancel with the sid of the call`(provider: ProviderKind) throws {
    let data = try data(cancel, "twilio", provider)
    #expect(data["twi_message_type"] as? String == "twilio.voice.cancel")
    #expect(data["twi_call_sid"] as? String == cancel.callID)
    #expect(data["twi_from"] as? String == "doorman-1")
    #expect(data["twi_to"] as? String == "user-1")
  }

  @Test func `enclosure's cancel names the room that rings, and is not an incoming call`() throws {
    var invite = cancel
    invite.kind = .invite
    let data = try cancel.body("enclosure", .fcm)
    let ringing = try invite.body("enclosure", .fcm)
    #expect(data["roomId"] as? String == ringing["roomId"] as? String)
    #expect(data["receiverId"] as? String == "user-1")
    #expect(data["bodyKey"] as? String != ringing["bodyKey"] as? String)
  }

  @Test func `telnyx's cancel has the only message on which its apps stop ringing`() throws {
    let data = try cancel.body("telnyx", .fcm)
    #expect((data["message"] as? String)?.lowercased() == "missed call!")
    #expect(data["call_id"] as? String == cancel.callID)
    #expect(try parse(data["metadata"])["call_id"] as? String == cancel.callID)
  }

  @Test(arguments: [
    ("7D4E3A52-53CB-4A4E-9F0C-5D8A2F9D1C11", "7D4E3A52-53CB-4A4E-9F0C-5D8A2F9D1C11"),
    ("c-1", "a6f7ef47-ee8d-884a-b905-6a3051ddc302"),
  ])
  func `telnyx's cancel over VoIP has the call id that SDK 4 got in the invite`(callID: String, sent: String) throws {
    var fixture = cancel
    fixture.payload["callId"] = callID
    let body = try fixture.body("telnyx", .apns)
    #expect((body["aps"] as? [String: Any])?["alert"] as? String == "Missed call!")
    #expect((body["metadata"] as? [String: Any])?["call_id"] as? String == sent)
    fixture.kind = .invite
    let invite = try fixture.body("telnyx", .apns)
    #expect(invite["aps"] == nil)
    #expect((invite["metadata"] as? [String: Any])?["call_id"] as? String == sent)
  }

  @Test(arguments: ["incoming_call", "video_call"])
  func `commeazy's cancel has a type that its router does not take for a call`(kind: String) throws {
    var fixture = cancel
    fixture.callKind = kind
    let data = try fixture.body("commeazy", .fcm)
    #expect(data["type"] as? String == "call_cancelled")
    #expect(data["isVideo"] == nil && data["callerJid"] == nil)
  }

  private func data(_ fixture: DeliveryFixture, _ dialect: String, _ provider: ProviderKind) throws -> [String: Any] {
    let body = try fixture.body(dialect, provider)
    return provider == .expo ? body["data"] as! [String: Any] : body
  }
}
