// Every shipped dialect, read in the same way as its app reads it.

import DialectsTestSupport
import Foundation
import Providers
import PushModel
import Queue
import Runtime
import Testing

@testable import Dialects

@Suite struct DialectTests {
  private let fixture = DeliveryFixture()

  private func expectTimes(in data: [String: Any], _ comment: Comment? = nil) {
    #expect(data["callId"] as? String == fixture.callID, comment)
    #expect(data["timestamp"] as? String == "1750000000000", comment)
    #expect(data["expiresAt"] as? String == "1750000060000", comment)
    #expect(data["seq"] as? String == "3", comment)
  }

  private func expectCanonical(_ data: [String: Any]) {
    expectTimes(in: data)
    #expect(data["type"] as? String == "intercom_call")
    #expect(data["action"] as? String == "incoming_call")
    #expect(data["from"] as? String == "doorman-1")
    #expect(data["fromName"] as? String == "Portaria \"Sul\" é")
    #expect(data["apartmentNumber"] as? String == "101")
    #expect(data["buildingName"] as? String == "Edifício Aurora")
    #expect(data["channelName"] as? String == "call-101")
    let metadata = data["metadata"] as? [String: Any]
    #expect(metadata?["schemaVersion"] as? Int == 1)
    #expect(metadata?["clientVersion"] is NSNull)
    #expect(data["doorCode"] as? String == "A1")
    #expect(data["floor"] as? Int == 10)
  }

  // MARK: intercom

  @Test func `intercom rings an iPhone with the canonical object and isVoip`() throws {
    let body = try fixture.body("intercom", .apns)
    expectCanonical(body)
    #expect(body["isVoip"] as? Bool == true)
    #expect(body["aps"] == nil)
  }

  @Test func `on Android intercom is flat strings, with from as fromId, and the whole object in body`() throws {
    let data = try fixture.body("intercom", .fcm)
    expectTimes(in: data)
    #expect(data.values.allSatisfy { $0 is String })
    #expect(data["from"] == nil)
    #expect(data["fromId"] as? String == "doorman-1")
    #expect(data["apartmentNumber"] as? String == "101")
    #expect(data["doorCode"] as? String == "A1")
    #expect(data["floor"] as? String == "10")
    #expect(try parse(data["metadata"])["schemaVersion"] as? Int == 1)
    let body = try parse(data["body"])
    expectCanonical(body)
    #expect(body["isVoip"] == nil)
  }

  @Test(arguments: [DevicePlatform.unknown, .android])
  func `intercom over Expo is data only unless the phone is an iPhone`(platform: DevicePlatform)
    throws
  {
    var fixture = fixture
    fixture.platform = platform
    let message = try fixture.body("intercom", .expo)
    #expect(Set(message.keys) == ["_contentAvailable", "data"])
    #expect(message["_contentAvailable"] as? Bool == true)
    let data = message["data"] as! [String: Any]
    expectCanonical(data)
    #expect(data["isVoip"] == nil)
  }

  @Test func `intercom over Expo to an iPhone is an alert with a sound`() throws {
    var fixture = fixture
    fixture.platform = .ios
    let message = try fixture.body("intercom", .expo)
    #expect(message["title"] as? String == "Portaria \"Sul\" é")
    #expect(message["body"] as? String == "Incoming call")
    fixture.locale = "pt-BR"
    #expect(try fixture.body("intercom", .expo)["body"] as? String == "Chamada recebida")
    #expect(message["sound"] as? String == "default")
    expectCanonical(message["data"] as! [String: Any])
  }

  @Test(arguments: MissingText.allCases)
  func `without a caller's name intercom says Porteiro, and leaves out missing members`(name: MissingText) throws {
    var fixture = fixture
    fixture.payload = ["callId": "c1", "from": "d1"]
    fixture.payload["fromName"] = name.value
    for provider in ProviderKind.allCases {
      let body = try fixture.body("intercom", provider)
      let data = body["data"] as? [String: Any] ?? body
      #expect(data["fromName"] as? String == "Porteiro")
      for absent in ["apartmentNumber", "buildingName", "channelName", "metadata"] { #expect(data[absent] == nil) }
    }
  }

  @Test(arguments: ProviderKind.allCases) func `a name of blanks counts as missing`(provider: ProviderKind) throws {
    var fixture = fixture
    fixture.payload["fromName"] = "  "
    let body = try fixture.body("intercom", provider)
    #expect((body["data"] as? [String: Any] ?? body)["fromName"] as? String == "Porteiro")
  }

  @Test func `keys of the payload that FCM reserves are only in body`() throws {
    var fixture = fixture
    for key in ["", "message_type", "google.x", "gcm.y", "googleish"] { fixture.payload[key] = "v" }
    let data = try fixture.body("intercom", .fcm)
    for key in ["", "from", "message_type", "google.x", "gcm.y", "googleish"] { #expect(data[key] == nil) }
    #expect(try parse(data["body"])["message_type"] as? String == "v")
  }

  @Test func `a payload cannot overwrite the gateway's own keys`() throws {
    var fixture = fixture
    for key in ["type", "action", "timestamp", "expiresAt", "seq", "isVoip", "body"] { fixture.payload[key] = "forged" }
    let apns = try fixture.body("intercom", .apns)
    expectTimes(in: apns)
    #expect(apns["type"] as? String == "intercom_call")
    #expect(apns["isVoip"] as? Bool == true)
    #expect(apns["body"] as? String == "forged")  // the gateway has no key of this name here
    let text = String(decoding: try fixture.plan("intercom", .apns).body, as: UTF8.self)
    #expect(text.components(separatedBy: "\"type\":").count == 2)
    let data = try fixture.body("intercom", .fcm)
    #expect(data["type"] == nil)  // with a type, the app would expect `from` as well
    expectCanonical(try parse(data["body"]))
  }

  @Test(arguments: DevicePlatform.allCases) func `no member of a payload becomes a key that the phone's system reads`(
    platform: DevicePlatform
  ) throws {
    var fixture = fixture
    fixture.platform = platform
    for key in ["aps", "gcm.message_id", "google.c.sender.id", "gcm.notification.e"] {
      fixture.payload[key] = ["alert": "forged"]
    }
    let voip = try fixture.body("intercom", .apns)
    let data = try fixture.body("intercom", .fcm)
    for key in ["aps", "gcm.message_id", "google.c.sender.id", "gcm.notification.e"] {
      #expect(voip[key] == nil && data[key] == nil)
    }
    #expect(!String(decoding: try fixture.plan("intercom", .fcm).fcm.apns, as: UTF8.self).contains("forged"))
  }

  @Test func `a member that intercom's schema requires as text is a text or left out`() throws {
    var fixture = fixture
    for (value, text) in [(NSNull(), nil), (7, "7"), ("Ana", "Ana"), ("", nil)] as [(Any, String?)] {
      for key in ["callerName", "channel", "apartmentNumber", "channelName"] { fixture.payload[key] = value }
      for body in [
        try fixture.body("intercom", .apns), try parse(try fixture.body("intercom", .fcm)["body"]),
        try fixture.body("intercom", .expo)["data"] as! [String: Any],
      ] {
        for key in ["callerName", "channel", "apartmentNumber", "channelName"] {
          #expect(body[key] as? String == text && body.keys.contains(key) == (text != nil), "\(key) \(value)")
        }
      }
    }
  }

  // MARK: The other dialects

  @Test func `twilio has call, caller and callee over every provider`() throws {
    for provider in [ProviderKind.apns, .fcm, .expo] {
      let body = try fixture.body("twilio", provider)
      let data = body["data"] as? [String: Any] ?? body
      expectTimes(in: data)
      #expect(data["twi_message_type"] as? String == "twilio.voice.call")
      #expect(data["twi_call_sid"] as? String == fixture.callID)
      #expect(data["twi_from"] as? String == "doorman-1")
      #expect(data["fromName"] as? String == "Portaria \"Sul\" é")
      #expect(data["twi_to"] as? String == "user-1")
    }
    var other = fixture
    other.payload = ["callId": "c1", "from": "+4930", "metadata": ["to": "client:bob"]]
    let body = try other.body("twilio", .fcm)
    #expect(body["twi_from"] as? String == "+4930")
    #expect(body["twi_to"] as? String == "client:bob")
  }

  @Test(arguments: [ProviderKind.apns, .fcm, .expo])
  func `the keys that Twilio gave the backend are passed on, and replace the gateway's`(
    provider: ProviderKind
  ) throws {
    let given = [
      "twi_account_sid": "AC1", "twi_bridge_token": "e30.bridge", "twi_call_sid": "CA9", "twi_from": "client:ana",
      "twi_message_id": "NO1", "twi_message_type": "twilio.voice.call", "twi_params": "a=1&b=%22",
      "twi_to": "client:bob",
    ]
    var fixture = fixture
    fixture.payload.merge(given) { $1 }
    for kind in [PushKind.invite, .cancel] where !(kind == .cancel && provider == .apns) {
      fixture.kind = kind
      let body = try fixture.body("twilio", provider)
      let data = body["data"] as? [String: Any] ?? body
      var expected = given
      if kind == .cancel { expected["twi_message_type"] = "twilio.voice.cancel" }
      #expect(data.filter { $0.key.hasPrefix("twi_") } as? [String: String] == expected)
      #expect(data["doorCode"] == nil)
    }
  }

  @Test(arguments: [ProviderKind.apns, .fcm, .expo])
  func `the keys that Twilio's library reads are texts, whatever type the backend sent`(
    provider: ProviderKind
  ) throws {
    var fixture = fixture
    fixture.payload.merge(["twi_message_id": 7, "twi_flag": true, "twi_params": ["a": 1]] as [String: Any]) { $1 }
    let body = try fixture.body("twilio", provider)
    let data = body["data"] as? [String: Any] ?? body
    #expect(data["twi_message_id"] as? String == "7")
    #expect(data["twi_flag"] as? String == "true")
    #expect(data["twi_params"] as? String == #"{"a": 1}"# || data["twi_params"] as? String == #"{"a":1}"#)
  }

  @Test(arguments: [ProviderKind.apns, .fcm, .expo]) func `a Twilio key that is null counts as missing`(
    provider: ProviderKind
  )
    throws
  {
    var fixture = fixture
    let none = ["twi_bridge_token", "twi_params", "twi_to", "twi_from", "twi_message_type"]
    for name in none { fixture.payload[name] = NSNull() }
    let body = try fixture.body("twilio", provider)
    let data = body["data"] as? [String: Any] ?? body
    #expect(
      data.filter { $0.key.hasPrefix("twi_") } as? [String: String] == [
        "twi_message_type": "twilio.voice.call", "twi_call_sid": fixture.callID, "twi_from": "doorman-1",
        "twi_to": "user-1",
      ])
  }

  @Test(arguments: [ProviderKind.apns, .fcm]) func `enclosure always has roomId and photo`(provider: ProviderKind)
    throws
  {
    let body = try fixture.body("enclosure", provider)
    expectTimes(in: body)
    #expect(body["name"] as? String == "Portaria \"Sul\" é")
    #expect(body["photo"] as? String == "")
    #expect(body["roomId"] as? String == "call-101")
    #expect(body["receiverId"] as? String == "user-1")
    #expect(body["phone"] as? String == "")  // the callee's number, which the backend did not send
    #expect(body["uid"] as? String == "doorman-1")
    #expect(body["bodyKey"] as? String == "Incoming voice call")
    #expect(body["aps"] == nil)
    var other = fixture
    other.payload = [
      "callId": "c1", "from": "f", "channelName": "", "metadata": ["photo": "https://x/y.png", "phone": "+1"],
    ]
    let second = try other.body("enclosure", provider)
    #expect(second["roomId"] as? String == "c1")
    #expect(second["photo"] as? String == "https://x/y.png")
    #expect(second["phone"] as? String == "")
    other.recipientData = #"{"phone": "+31 6 1234"}"#
    #expect(try other.body("enclosure", provider)["phone"] as? String == "+31 6 1234")
    other.callKind = "video_call"
    #expect(try other.body("enclosure", provider)["bodyKey"] as? String == "Incoming video call")
  }

  @Test func `enclosure shows a call over FCM as the alert that its app starts CallKit from`() throws {
    for (kind, word, category) in [("incoming_call", "voice", "VOICE_CALL"), ("video_call", "video", "VIDEO_CALL")] {
      var fixture = fixture
      (fixture.callKind, fixture.locale) = (kind, "nl")
      let block = try parse(Data(try fixture.plan("enclosure", .fcm).fcm.apns))
      let aps = (block["payload"] as! [String: Any])["aps"] as! [String: Any]
      #expect(aps["alert"] as? [String: String] == ["title": "Portaria \"Sul\" é", "body": "Incoming \(word) call"])
      #expect(aps["category"] as? String == category)
      #expect(Set(aps.keys) == ["alert", "category", "sound"])
    }
  }

  @Test(arguments: [ProviderKind.apns, .fcm]) func `enclosure's chat has the keys its app replies with`(
    provider: ProviderKind
  ) throws {
    var fixture = fixture
    (fixture.kind, fixture.callKind) = (.notification, "message")
    let data = try fixture.body("enclosure", provider)
    let expected = [
      "bodyKey": "chatting", "friendUidKey": "doorman-1", "name": "Portaria \"Sul\" é",
      "user_nameKey": "Portaria \"Sul\" é", "msgKey": "New message", "photo": "",
    ]
    for (key, value) in expected { #expect(data[key] as? String == value, "\(key)") }
    let block =
      provider == .apns
      ? data : try parse(Data(try fixture.plan("enclosure", .fcm).fcm.apns))["payload"] as! [String: Any]
    let aps = block["aps"] as! [String: Any]
    #expect(aps["mutable-content"] as? Int == 1)
    #expect(aps["category"] as? String == "CHAT_MESSAGE")
    #expect(aps["sound"] as? String == "default")
  }

  @Test func `telnyx has the call in metadata, which over FCM is a string`() throws {
    let voip = try fixture.body("telnyx", .apns)
    let data = try fixture.body("telnyx", .fcm)
    for body in [voip, data] {
      expectTimes(in: body)
      #expect(body["call_id"] as? String == fixture.callID)
    }
    for metadata in [voip["metadata"] as! [String: Any], try parse(data["metadata"])] {
      #expect(metadata["call_id"] as? String == fixture.callID)
      #expect(metadata["caller_name"] as? String == "Portaria \"Sul\" é")
      #expect(metadata["caller_number"] as? String == "doorman-1")
    }
    #expect(voip["isVideo"] as? Bool == false && data["isVideo"] == nil)
    // In the SDK, a push older than 60 s is a missed call.
    let sentAt = Int64(voip["timestamp"] as! String)!
    #expect(abs(sentAt - DeliveryFixture.nowMilliseconds) < 60_000)
  }

  @Test func `telnyx gets the backend's metadata beside the gateway's, with its types`() throws {
    var fixture = fixture
    fixture.callKind = "video_call"
    fixture.payload["metadata"] =
      [
        "voice_sdk_id": "v-1", "dialogParams": ["custom_headers": [["name": "X-Account", "value": "7"]]], "n": 1,
        "none": NSNull(), "caller_name": "forged", "call_id": "forged",
      ] as [String: Any]
    let voip = try fixture.body("telnyx", .apns)
    let data = try fixture.body("telnyx", .fcm)
    for metadata in [voip["metadata"], try parse(data["metadata"])] as [Any?] {
      #expect(
        metadata as? NSDictionary == [
          "call_id": fixture.callID, "caller_name": "Portaria \"Sul\" é", "caller_number": "doorman-1",
          "voice_sdk_id": "v-1", "dialogParams": ["custom_headers": [["name": "X-Account", "value": "7"]]], "n": 1,
          "none": NSNull(),
        ] as NSDictionary)
    }
    #expect(voip["isVideo"] as? Bool == true && data["isVideo"] as? String == "true")
  }

  /// The SDK's `PushMetaData.fromJson` accepts only texts, and for isAnswer and isDecline booleans, which the app sets itself.
  @Test func `telnyx's own keys are in metadata only with the types that its SDK accepts`() throws {
    var fixture = fixture
    fixture.payload["metadata"] =
      ["voice_sdk_id": 5, "isAnswer": "false", "isDecline": true, "x": NSNull()] as [String: Any]
    let voip = try fixture.body("telnyx", .apns)["metadata"] as! [String: Any]
    let data = try parse(fixture.body("telnyx", .fcm)["metadata"])
    for metadata in [voip, data] {
      #expect(metadata["voice_sdk_id"] as? String == "5")
      #expect(metadata["isAnswer"] == nil && metadata["isDecline"] == nil)
    }
    fixture.payload["metadata"] = ["voice_sdk_id": NSNull()]
    #expect(try parse(fixture.body("telnyx", .fcm)["metadata"])["voice_sdk_id"] == nil)
  }

  /// The UUID that is derived from the call id `c-1`.
  private static let madeOfC1 = "a6f7ef47-ee8d-884a-b905-6a3051ddc302"

  @Test(
    arguments: [
      ("c-1", nil, Self.madeOfC1),
      ("c-1", "0D6F0D16-66EF-4D29-8A8D-1C9B0F4C3A3E", "0D6F0D16-66EF-4D29-8A8D-1C9B0F4C3A3E"),
      ("c-1", "also-none", Self.madeOfC1),
      ("7d4e3a5253cb4a4e9f0c5d8a2f9d1c11", nil, "c2a270e0-fe96-826a-8eea-6da41ef9dd25"),
      ("7d4e3a52-53cb-4a4e-9f0c-5d8a2f9d1c1g", nil, "a8ea01c8-3970-8a62-b59b-b8c26f576f37"),
      ("7d4e3a52-53cb-4a4e-9f0c_5d8a2f9d1c11", nil, "8be60858-679d-8e4a-abd4-166f120fb011"),
      ("7d4e3a52-53cb-4a4e-9f0c-5d8a2f9d1c11", nil, "7d4e3a52-53cb-4a4e-9f0c-5d8a2f9d1c11"),
    ] as [(String, String?, String)])
  func `telnyx's iPhones always get a UUID, the same for the same call`(callID: String, own: String?, sent: String)
    throws
  {
    var fixture = fixture
    fixture.payload["callId"] = callID
    fixture.payload["metadata"] = own.map { ["call_id": $0] }
    let metadata = try fixture.body("telnyx", .apns)["metadata"] as! [String: Any]
    #expect(metadata["call_id"] as? String == sent)
    #expect(UUID(uuidString: sent) != nil)
    #expect(try parse(try fixture.body("telnyx", .fcm)["metadata"])["call_id"] as? String == callID)
  }

  @Test func `over VoIP commeazy gets the same UUID for the same call, elsewhere the call's own id`()
    throws
  {
    var fixture = fixture
    for (callID, uuid) in [
      ("call-8", "d6320833-5ab8-890c-a17c-c4e34d7ab2fe"), ("call-9", "17b33486-13ce-8472-838c-8523fad5fc26"),
      ("7D4E3A52-53cb-4a4e-9f0c-5d8a2f9d1c11", "7D4E3A52-53cb-4a4e-9f0c-5d8a2f9d1c11"),
    ] {
      fixture.payload["callId"] = callID
      fixture.kind = .invite
      let voip = try fixture.body("commeazy", .apns)["callId"] as? String
      #expect(voip == uuid && UUID(uuidString: uuid) != nil)
      #expect(try fixture.body("commeazy", .fcm)["callId"] as? String == callID)
      fixture.kind = .cancel
      #expect(try fixture.body("commeazy", .fcm)["callId"] as? String == callID)
      fixture.kind = .missedCall
      #expect(try fixture.body("commeazy", .apns)["callId"] as? String == callID)
    }
  }

  @Test
  func `on iPhones, intercom's alert of a call whose id is no UUID has its own type; elsewhere it is a call`()
    throws
  {
    var fixture = fixture
    for (callID, isUUID) in [("call-8", false), ("7d4e3a52-53cb-4a4e-9f0c-5d8a2f9d1c11", true)] {
      fixture.payload["callId"] = callID
      for platform in DevicePlatform.allCases {
        fixture.platform = platform
        let type = platform == .ios && !isUUID ? "intercom_call_alert" : "intercom_call"
        let over = [
          try parse(try fixture.body("intercom", .fcm)["body"]),
          try fixture.body("intercom", .expo)["data"] as! [String: Any],
        ]
        for data in over { #expect(data["type"] as? String == type && data["callId"] as? String == callID) }
        // Its buttons act only on a call.
        let category = try fixture.body("intercom", .expo)["categoryId"] as? String
        #expect(category == (platform == .ios && isUUID ? "call" : nil))
      }
      let voip = try fixture.body("intercom", .apns)
      #expect(voip["type"] as? String == "intercom_call" && voip["callId"] as? String == callID)
    }
  }

  @Test(arguments: [
    ("incoming_call", nil, false), ("video_call", nil, true), ("incoming_call", true, true),
    ("incoming_call", false, false),
  ])
  func `in commeazy a call is a video call by its kind or its metadata`(kind: String, flag: Bool?, isVideo: Bool) throws
  {
    var fixture = fixture
    fixture.callKind = kind
    if let flag { fixture.payload["metadata"] = ["isVideo": flag] }
    let voip = try fixture.body("commeazy", .apns)
    let data = try fixture.body("commeazy", .fcm)
    for body in [voip, data] {
      expectTimes(in: body)
      #expect(body["type"] as? String == (isVideo ? "video_call" : "call"))
      #expect(body["callerJid"] as? String == "doorman-1")
      #expect(body["callerName"] as? String == "Portaria \"Sul\" é")
    }
    #expect(voip["isVideo"] as? Bool == isVideo)
    #expect(data["isVideo"] as? String == (isVideo ? "true" : nil))  // JavaScript takes the text "false" for true
  }

  @Test func `every shipped dialect compiles, and has an invite for APNs and FCM`() throws {
    for name in ShippedDialects.names {
      let dialect = try #require(try ShippedDialects.named(name))
      #expect(dialect.speaks(.apns) && dialect.speaks(.fcm))
      #expect(dialect.speaks(.expo) == ["intercom", "twilio"].contains(name))
    }
    #expect(try ShippedDialects.named("klingon") == nil)
  }

  // MARK: Faults in templates

  private static let faults: [(source: String, path: String, reason: TemplateError.Reason)] = [
    (#"{"fcm":{"invite":{"a":1}}}"#, "fcm.invite.a", .notAString),
    (#"{"fcm":{"invite":{"a":{"b":"c"}}}}"#, "fcm.invite.a", .notAString),
    (#"{"fcm":{"invite":{"a":"${metadata:json}"}}}"#, "fcm.invite.a", .notAString),
    (#"{"fcm":{"invite":{"a":"${metadata?:json}"}}}"#, "fcm.invite.a", .notAString),
    (#"{"fcm":{"invite":{"from":"x"}}}"#, "fcm.invite.from", .reservedKey("from")),
    (#"{"fcm":{"invite":{"google.sent":"x"}}}"#, "fcm.invite.google.sent", .reservedKey("google.sent")),
    (#"{"apns":{"invite":{"a":"${fromNme}"}}}"#, "apns.invite.a", .unknownPlaceholder("fromNme")),
    (#"{"apns":{"invite":{"a":{"b":["x${nope}"]}}}}"#, "apns.invite.a.b", .unknownPlaceholder("nope")),
    (#"{"apns":{"invite":{"a":"${from"}}}"#, "apns.invite.a", .malformedPlaceholder("${from")),
    (#"{"apns":{"invite":{"a":"${}"}}}"#, "apns.invite.a", .unknownPlaceholder("")),
    (#"{"apns":{"invite":{"a":"x ${from?}"}}}"#, "apns.invite.a", .malformedPlaceholder("from")),
    (#"{"apns":{"invite":{"a":"${'x'|from}"}}}"#, "apns.invite.a", .malformedPlaceholder("'x'|from")),
    (#"{"apns":{"invite":{"a":1,"\u0061":2}}}"#, "apns.invite.a", .repeatedKey("a")),
    (#"{"apns":{"invite":{"$payload":"all"}}}"#, "apns.invite.$payload", .unknownDirective("$payload")),
    (#"{"apns":{"invite":{"$sting":{}}}}"#, "apns.invite.$sting", .unknownDirective("$sting")),
    (#"{"apns":{"ring":{}}}"#, "apns", .unknownKind("ring")),
    (#"{"apns":{"invite.palm":{}}}"#, "apns", .unknownKind("invite.palm")),
    (#"{"gcm":{}}"#, "", .unknownProvider("gcm")),
    (#"{"apns":{"invite":[]}}"#, "apns.invite", .notAnObject),
    (#"[]"#, "", .notAnObject),
  ]

  @Test(arguments: faults)
  func `a template that could never be sent is refused, and the error has its path`(
    source: String, path: String, reason: TemplateError.Reason
  ) {
    #expect(throws: TemplateError(path: path, reason: reason)) { try Dialect(name: "custom", json: source) }
  }

  @Test func `the error for an unknown placeholder suggests the nearest known one`() throws {
    do {
      _ = try Dialect(name: "custom", json: #"{"apns":{"invite":{"a":"${fromNme}"}}}"#)
      Issue.record("compiled")
    } catch {
      #expect(error.description.contains("did you mean fromName?"))
    }
  }

  @Test func `a custom dialect can use any part of the payload`() throws {
    let dialect = try Dialect(
      name: "custom",
      json: #"""
        {"apns":{"invite":{"aps":{"alert":{"title":"Call from ${fromName}, ${payload.doorCode}"},"badge":1},
          "m":["${metadata.schemaVersion}","${payload.floor:json}",null,{"$string":{"$payload":"others"}}],"x":"${payload.nope?}"}}}
        """#)
    let planner = CallPlanner(dialect: dialect, provider: .apns)
    let body = try parse(Data(try planner.plan(fixture.delivery, now: DeliveryFixture.now, tag: 1).get().body))
    let alert = (body["aps"] as! [String: Any])["alert"] as! [String: String]
    #expect(alert["title"] == "Call from Portaria \"Sul\" é, A1")
    let list = body["m"] as! [Any]
    #expect(list[0] as? String == "1")
    #expect(list[1] as? Int == 10)
    #expect(list[2] is NSNull)
    #expect(try parse(list[3])["from"] as? String == "doorman-1")
    #expect(body["x"] == nil)
  }

  @Test func `a custom template is for all platforms, except those that have a template of their own`() throws {
    var dialect = try #require(try ShippedDialects.named("intercom"))
    #expect(dialect.lay(over: #"{"fcm":{"invite":{"mine":"all"}}}"#) == [])
    func body(_ platform: DevicePlatform) throws -> [String: Any] {
      var fixture = DeliveryFixture()
      fixture.platform = platform
      let planner = CallPlanner(dialect: dialect, provider: .fcm)
      return try parse(Data(try planner.plan(fixture.delivery, now: DeliveryFixture.now, tag: 1).get().body))
    }
    for platform in DevicePlatform.allCases { #expect(try body(platform)["mine"] as? String == "all") }
    // In any order.
    #expect(dialect.lay(over: #"{"fcm":{"invite.ios":{"mine":"iPhone"},"invite":{"mine":"rest"}}}"#) == [])
    #expect(try body(.ios)["mine"] as? String == "iPhone")
    #expect(try body(.android)["mine"] as? String == "rest")
    // Templates that are not given stay.
    #expect(dialect.lay(over: #"{"fcm":{"invite.android":{"mine":"Android"}}}"#) == [])
    #expect(try body(.ios)["mine"] as? String == "iPhone")
    #expect(try body(.android)["mine"] as? String == "Android")
    #expect(try body(.unknown)["mine"] as? String == "rest")
  }
}
