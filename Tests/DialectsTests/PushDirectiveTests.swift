// `$push`: templates that choose the fields of the whole message, and the choices that are refused at start-up.

import DialectsTestSupport
import Foundation
import Providers
import PushModel
import Queue
import Testing

@testable import Dialects

@Suite struct PushDirectiveTests {
  private func plan(
    _ json: String, _ provider: ProviderKind, kind: PushKind = .invite, callKind: String = "incoming_call",
    platform: DevicePlatform = .unknown, _ change: (inout DeliveryFixture) -> Void = { _ in }
  ) throws -> PushRequest {
    var fixture = DeliveryFixture()
    (fixture.kind, fixture.callKind, fixture.platform) = (kind, callKind, platform)
    change(&fixture)
    let planner = CallPlanner(dialect: try Dialect(name: "own", json: json), provider: provider)
    return try planner.plan(fixture.delivery, now: DeliveryFixture.now, tag: 1).get()
  }

  // MARK: What a template can choose

  @Test func `over APNs a template chooses type, priority, expiration and collapse id`() throws {
    let aps = #""aps": {"content-available": 1}"#
    let silent = try plan(
      #"{"apns": {"message": {\#(aps), "$push": {"type": "background", "expiration": 0, "collapse": "none"}}}}"#,
      .apns, kind: .notification, callKind: "message")
    #expect(silent.manner == PushManner(apnsType: .background, priority: .normal, isStored: false))
    #expect(silent.collapseID == nil)
    #expect(try parse(Data(silent.body)).keys.sorted() == ["aps"])
    let low = try plan(
      #"{"apns": {"message": {\#(aps), "$push": {"type": "background", "priority": 1, "expiration": "deadline"}}}}"#,
      .apns, kind: .notification, callKind: "message")
    #expect(low.manner == PushManner(apnsType: .background, priority: .low))
    #expect(low.collapseID != nil)
    let alert = try plan(
      #"{"apns": {"message": {"aps": {"alert": "x"}, "$push": {"priority": 5}}}}"#, .apns, kind: .notification,
      callKind: "message")
    #expect(alert.manner == PushManner(apnsType: .alert, priority: .normal))
    let call = try plan(#"{"apns": {"invite": {"a": "b", "$push": {"type": "voip", "priority": 10}}}}"#, .apns)
    #expect(call.manner == .standard(for: .invite))
  }

  @Test func `over FCM and Expo a template chooses priority, time to live and collapse key`() throws {
    let fcm = try plan(
      #"{"fcm": {"message": {"a": "b", "$push": {"priority": "normal", "ttl": 7, "collapse": "callId"}}}}"#, .fcm,
      kind: .notification, callKind: "message")
    #expect(fcm.manner.priority == .normal && fcm.manner.timeToLiveMax == 7)
    #expect(fcm.collapseID == Array(DeliveryFixture().callID.utf8)[...])
    let expo = try plan(
      #"{"expo": {"invite": {"data": {"a": "b"}, "$push": {"priority": "high", "ttl": "deadline", "collapse": "none"}}}}"#,
      .expo)
    #expect(expo.manner == .standard(for: .invite) && expo.collapseID == nil)
    #expect(try parse(Data(expo.body)).keys.sorted() == ["data"])
  }

  @Test func `over FCM the blocks beside the data may have placeholders, and are sent only to their platform`() throws {
    let json = #"""
      {"fcm": {"message": {"a": "b", "$push": {
        "notification": {"title": "${fromName|from}"},
        "android": {"notification": {"channel_id": "chat", "notification_count": "${badge?:json}"}},
        "apns": {"headers": {"apns-priority": "5"}, "payload": {"x": 1, "aps": {"alert": {"loc-key": "MSG"},
          "interruption-level": "time-sensitive", "badge": "${badge?:json}"}}, "fcm_options": {"image": "${metadata.photo?}"}}}}}}
      """#
    func request(_ platform: DevicePlatform) throws -> PushRequest {
      try plan(json, .fcm, kind: .notification, callKind: "message", platform: platform) {
        $0.payload["badge"] = 4
        $0.payload["metadata"] = ["photo": "https://x/y.png"]
      }
    }
    for platform in [DevicePlatform.unknown, .ios] {
      let block = try parse(Data(try request(platform).fcm.apns))
      #expect(
        block["headers"] as? [String: String] == [
          "apns-priority": "5", "apns-push-type": "alert", "apns-expiration": "1750000060",
          "apns-collapse-id": DeliveryFixture().callID,
        ])
      let payload = block["payload"] as! [String: Any]
      #expect(payload["x"] as? Int == 1)
      let aps = payload["aps"] as! [String: Any]
      #expect(aps["interruption-level"] as? String == "time-sensitive" && aps["badge"] as? Int == 4)
      #expect(block["fcm_options"] as? [String: String] == ["image": "https://x/y.png"])
    }
    let android = try request(.android)
    #expect(android.fcm.apns.isEmpty)
    #expect(try parse(Data(android.fcm.notification)) as? [String: String] == ["title": "Portaria \"Sul\" é"])
    #expect(
      try parse(Data(android.fcm.android))["notification"] as? NSDictionary == [
        "channel_id": "chat", "notification_count": 4,
      ])
    #expect(try parse(Data(android.body)) as? [String: String] == ["a": "b"])
  }

  // MARK: Defaults

  private static let shown: [(kind: PushKind, callKind: String, title: String, text: String)] = [
    (.invite, "incoming_call", "Portaria \"Sul\" é", "Incoming call"),
    (.invite, "video_call", "Portaria \"Sul\" é", "Incoming video call"),
    (.missedCall, "incoming_call", "Portaria \"Sul\" é", "Missed call"),
    (.notification, "message", "Portaria \"Sul\" é", "New message"),
    (.notification, "group_message", "Portaria \"Sul\" é", "New group message"),
    (.notification, "group_invite", "Portaria \"Sul\" é", "Group invitation"),
  ]

  @Test(arguments: ShippedDialects.names + ["own"], shown)
  func `over FCM an iPhone shows an alert by default, whatever data the templates have`(
    dialect: String, shown: (kind: PushKind, callKind: String, title: String, text: String)
  ) throws {
    let own = #"""
      {"fcm": {"invite": {"a": "b"}, "missed_call": {"a": "b"}, "message": {"a": "b"}, "group_message": {"a": "b"},
        "group_invite": {"a": "b"}}}
      """#
    var fixture = DeliveryFixture()
    (fixture.kind, fixture.callKind) = (shown.kind, shown.callKind)
    fixture.payload["chatId"] = "room"
    let compiled = dialect == "own" ? try Dialect(name: "own", json: own) : try ShippedDialects.named(dialect)!
    for platform in DevicePlatform.allCases {
      fixture.platform = platform
      // Telnyx's app on Android shows a chat as a call, or not at all.
      if dialect == "telnyx", platform != .ios, shown.kind == .notification { continue }
      let request = try CallPlanner(dialect: compiled, provider: .fcm)
        .plan(fixture.delivery, now: DeliveryFixture.now, tag: 1).get()
      #expect(request.fcm.notification.isEmpty)
      // Twilio's library shows only calls, and CommEazy's plan shows no invitation: Android shows the others itself.
      let showsItself =
        dialect == "twilio" && shown.kind != .invite || dialect == "commeazy" && shown.callKind == "group_invite"
      #expect(request.fcm.android.isEmpty != showsItself)
      guard platform != .android else {
        #expect(request.fcm.apns.isEmpty)
        continue
      }
      let block = try parse(Data(request.fcm.apns))
      let headers = block["headers"] as! [String: String]
      #expect(headers["apns-push-type"] == "alert" && headers["apns-priority"] == "10")
      #expect(headers["apns-expiration"] == "1750000060")
      let aps = (block["payload"] as! [String: Any])["aps"] as! [String: Any]
      let alert = aps["alert"] as! [String: Any]
      #expect(alert["title"] as? String == shown.title)
      let text =
        dialect == "enclosure" && shown.kind == .invite
        ? (shown.callKind == "video_call" ? "Incoming video call" : "Incoming voice call") : shown.text
      #expect(alert["body"] as? String == text)
      #expect(aps["sound"] as? String == "default")
      #expect(aps["content-available"] == nil)
    }
  }

  @Test(arguments: ["twilio", "telnyx"])
  func `on an iPhone a cancel is a background push with the priority that Apple requires, and no alert`(dialect: String)
    throws
  {
    var fixture = DeliveryFixture()
    (fixture.kind, fixture.platform) = (.cancel, .ios)
    let block = try parse(Data(try fixture.plan(dialect, .fcm).fcm.apns))
    let headers = block["headers"] as! [String: String]
    #expect(headers["apns-push-type"] == "background" && headers["apns-priority"] == "5")
    #expect(headers["apns-collapse-id"] == nil)
    #expect(block["payload"] as? NSDictionary == ["aps": ["content-available": 1]] as NSDictionary)
  }

  @Test(arguments: ["intercom", "enclosure", "commeazy"])
  func `a cancel and a missed call replace the call's alert, without a sound`(dialect: String)
    throws
  {
    var fixture = DeliveryFixture()
    var collapseIDs: Set<String> = []
    for kind in [PushKind.invite, .cancel, .missedCall] {
      (fixture.kind, fixture.platform, fixture.locale) = (kind, .ios, "pl")
      let block = try parse(Data(try fixture.plan(dialect, .fcm).fcm.apns))
      let headers = block["headers"] as! [String: String]
      #expect(headers["apns-push-type"] == "alert")
      collapseIDs.insert(try #require(headers["apns-collapse-id"]))
      guard kind == .cancel else { continue }
      let aps = (block["payload"] as! [String: Any])["aps"] as! [String: Any]
      #expect(aps["sound"] == nil && aps["content-available"] == nil && aps["category"] == nil)
      #expect(aps["interruption-level"] as? String == "passive")
      #expect((aps["alert"] as! [String: Any])["body"] as? String == "Połączenie zakończone")
    }
    #expect(collapseIDs.count == 1)
  }

  @Test func `over Expo, on an iPhone, the call, its cancel and its missed call replace one another`() throws {
    var fixture = DeliveryFixture()
    fixture.payload["chatId"] = "room"
    for (kind, callKind) in [(PushKind.invite, ""), (.cancel, ""), (.missedCall, ""), (.notification, "message")] {
      (fixture.kind, fixture.callKind, fixture.platform) = (kind, callKind, .ios)
      #expect(try fixture.plan("intercom", .expo).collapseID == Array(fixture.callID.utf8)[...])
    }
    fixture.platform = .android
    #expect(try fixture.plan("intercom", .expo).collapseID == nil)  // it must not replace a cancel
  }

  @Test func `a template can leave the apns block out`() throws {
    for none in ["null", #""none""#] {
      let request = try plan(#"{"fcm": {"invite": {"a": "b", "$push": {"apns": \#(none)}}}}"#, .fcm)
      #expect(request.fcm.apns.isEmpty)
    }
  }

  @Test
  func `if the apns block makes a call too large, a phone that may be an Android gets the call without the block`()
    throws
  {
    func request(_ platform: DevicePlatform) throws -> PushRequest {
      try plan(#"{"fcm": {"invite": {"a": "${payload.pad}"}}}"#, .fcm, platform: platform) {
        $0.payload["pad"] = String(repeating: "x", count: 4000)
      }
    }
    #expect(try request(.unknown).fcm.apns.isEmpty)
    #expect(try request(.android).fcm.apns.isEmpty)
    let failure = #expect(throws: PlanningFailure.self) { try request(.ios) }
    #expect(failure?.reason == "PayloadTooLarge")
  }

  @Test func `over FCM intercom's largest calls still reach an iPhone, with their alert`() throws {
    var fixture = DeliveryFixture()
    for (pad, fits) in [(1400, true), (1600, false)] {
      fixture.payload["pad"] = String(repeating: "x", count: pad)
      for platform in [DevicePlatform.unknown, .ios, .android] {
        fixture.platform = platform
        let request = try fixture.plan("intercom", .fcm)
        #expect(
          request.fcm.apns.isEmpty == (platform == .android || platform == .unknown && !fits), "\(pad) \(platform)")
      }
    }
  }

  // MARK: Directives of the body

  @Test func `a body can have choices, keys of the payload by prefix, and metadata`() throws {
    let json = #"""
      {"apns": {"invite": {"t": "a ${isVideo?'video':'voice'} call", "only": "${isVideo?'yes'}", "$payload": "x_*",
        "m": {"own": 1, "$metadata": "others"}, "texts": {"$metadata": "texts"}}}}
      """#
    for (kind, word) in [("incoming_call", "voice"), ("video_call", "video")] {
      let body = try parse(
        Data(
          try plan(json, .apns, callKind: kind) {
            $0.payload = [
              "callId": "c", "from": "f", "x_1": 1, "x_2": "b", "y": 2,
              "metadata": ["own": 9, "n": 5, "none": NSNull(), "l": [1]] as [String: Any],
            ]
          }.body))
      #expect(body["t"] as? String == "a \(word) call")
      #expect(body["only"] as? String == (kind == "video_call" ? "yes" : nil))
      #expect(body["x_1"] as? String == "1" && body["x_2"] as? String == "b")
      #expect(body["y"] == nil && body["callId"] == nil)
      #expect(body["m"] as? NSDictionary == ["own": 1, "n": 5, "none": NSNull(), "l": [1]] as NSDictionary)
      #expect(body["texts"] as? NSDictionary == ["own": "9", "n": "5", "l": "[1]"] as NSDictionary)
    }
    let none = try plan(json, .apns) { $0.payload = ["callId": "c", "from": "f", "metadata": "text"] }
    #expect(try parse(Data(none.body))["m"] as? NSDictionary == ["own": 1] as NSDictionary)
  }

  @Test func `a template can leave any key out of FCM data, also one of the payload`() throws {
    let body = try parse(
      Data(
        try plan(#"{"fcm": {"invite": {"a": "b", "type": null, "$payload": "others"}}}"#, .fcm) {
          $0.payload["type"] = "forged"
        }.body))
    #expect(body["type"] == nil && body["doorCode"] as? String == "A1")
  }

  // MARK: Faults

  private static let faults: [(source: String, path: String, says: String)] = [
    (#"{"apns": {"invite": {"a": "b", "$push": 1}}}"#, "apns.invite.$push", "must be an object"),
    (#"{"apns": {"invite": {"a": {"$push": {}}}}}"#, "apns.invite.a.$push", "unknown directive"),
    (
      #"{"apns": {"invite": {"a": "b", "$push": {"prioritty": 10}}}}"#, "apns.invite.$push.prioritty",
      "did you mean priority?"
    ),
    (#"{"apns": {"invite": {"a": "b", "$push": {"ttl": 5}}}}"#, "apns.invite.$push.ttl", "there are type, priority"),
    (#"{"apns": {"invite": {"a": "b", "$push": {"type": "alert"}}}}"#, "apns.invite.$push.type", "voip: otherwise"),
    (
      #"{"apns": {"invite": {"a": "b", "$push": {"priority": 5}}}}"#, "apns.invite.$push.priority", "10 for a VoIP push"
    ),
    (
      #"{"apns": {"message": {"aps": {"alert": "x"}, "$push": {"type": "voip"}}}}"#, "apns.message.$push.type",
      "alert or background"
    ),
    (
      #"{"apns": {"message": {"aps": {"alert": "x"}, "$push": {"priority": 7}}}}"#, "apns.message.$push.priority",
      "10, 5 or 1"
    ),
    (
      #"{"apns": {"message": {"aps": {"alert": "x"}, "$push": {"expiration": 60}}}}"#, "apns.message.$push.expiration",
      "0 (tried once"
    ),
    (
      #"{"apns": {"message": {"aps": {"alert": "x"}, "$push": {"collapse": "x"}}}}"#, "apns.message.$push.collapse",
      "callId or none"
    ),
    (
      #"{"apns": {"message": {"aps": {"alert": "x"}, "$push": {"priority": 5, "priority": 5}}}}"#,
      "apns.message.$push.priority", "occurs twice"
    ),
    (
      #"{"apns": {"message": {"aps": {"alert": "x"}, "$push": {"type": "background"}}}}"#, "apns.message",
      "content-available: 1"
    ),
    (
      #"{"apns": {"message": {"aps": {"content-available": 1, "sound": "x"}, "$push": {"type": "background"}}}}"#,
      "apns.message", "without alert, sound and badge"
    ),
    (
      #"{"apns": {"message": {"aps": {"content-available": 1}, "$push": {"type": "background", "priority": 10}}}}"#,
      "apns.message.$push.priority", "5 or 1 for the type background"
    ),
    (#"{"fcm": {"invite": {"a": "b", "$push": {"priority": 10}}}}"#, "fcm.invite.$push.priority", "high or normal"),
    (#"{"fcm": {"invite": {"a": "b", "$push": {"ttl": -1}}}}"#, "fcm.invite.$push.ttl", "0 to 2419200"),
    (#"{"fcm": {"invite": {"a": "b", "$push": {"ttl": 2419201}}}}"#, "fcm.invite.$push.ttl", "0 to 2419200"),
    (
      #"{"fcm": {"invite": {"a": "b", "$push": {"after_cancel": false}}}}"#, "fcm.invite.$push.after_cancel",
      "there are priority"
    ),
    (
      #"{"fcm": {"missed_call": {"a": "b", "$push": {"after_cancel": 1}}}}"#, "fcm.missed_call.$push.after_cancel",
      "true or false"
    ),
    (
      #"{"fcm": {"invite": {"a": "b", "$push": {"notification": {"title": "x"}}}}}"#, "fcm.invite.$push.notification",
      "headless: false"
    ),
    (
      #"{"fcm": {"cancel.android": {"a": "b", "$push": {"android": {"notification": {}}}}}}"#,
      "fcm.cancel.android.$push.android.notification", "instead of running the app's code"
    ),
    (
      #"{"fcm": {"invite": {"a": "b", "$push": {"android": {"ttl": "5s"}}}}}"#, "fcm.invite.$push.android.ttl",
      "there are notification"
    ),
    (#"{"fcm": {"invite": {"a": "b", "$push": {"apns": {}}}}}"#, "fcm.invite.$push.apns", "payload with aps"),
    (#"{"fcm": {"invite": {"a": "b", "$push": {"apns": "all"}}}}"#, "fcm.invite.$push.apns", "or none"),
    (
      #"{"fcm": {"invite": {"a": "b", "$push": {"apns": {"payload": {"aps": {"badge": 1}}}}}}}"#,
      "fcm.invite.$push.apns", "must have an alert"
    ),
    (
      #"{"fcm": {"invite": {"a": "b", "$push": {"apns": {"payload": {"aps": {"content-available": 1}}, "headers": {"apns-priority": "10"}}}}}}"#,
      "fcm.invite.$push.apns", "Apple refuses 10"
    ),
    (
      #"{"fcm": {"invite": {"a": "b", "$push": {"apns": {"payload": {"aps": {"alert": "x"}}, "headers": {"apns-push-type": "voip"}}}}}}"#,
      "fcm.invite.$push.apns", "apns-push-type must be alert"
    ),
    (
      #"{"fcm": {"invite": {"a": "b", "$push": {"apns": {"payload": {"aps": {"alert": "x"}}, "headers": {"apns-priority": 10}}}}}}"#,
      "fcm.invite.$push.apns", "put it in quotes"
    ),
    (
      #"{"fcm": {"invite": {"a": "b", "$push": {"apns": {"payload": {"aps": {"alert": "x"}}, "headers": {"apns-prio": "10"}}}}}}"#,
      "fcm.invite.$push.apns", "no such header: apns-prio"
    ),
    (
      #"{"fcm": {"invite": {"a": "b", "$push": {"apns": {"payload": {"aps": {"alert": "${nope}"}}}}}}}"#,
      "fcm.invite.$push.apns.payload.aps.alert", "unknown placeholder ${nope}"
    ),
    (
      #"{"expo": {"invite": {"channelId": "x", "data": {"a": "b"}}}}"#, "expo.invite.channelId",
      "a template for ios only"
    ),
    (#"{"expo": {"cancel": {"title": "x"}}}"#, "expo.cancel.title", "instead of running the app's code"),
    (#"{"expo": {"invite": {"priority": "high", "data": {"a": "b"}}}}"#, "expo.invite.priority", "$push says how"),
    (
      #"{"expo": {"invite": {"$metadata": "others", "data": {"a": "b"}}}}"#, "expo.invite.$metadata",
      "must stand inside data"
    ),
    (#"{"apns": {"invite": {"a": "b", "$payload": "*"}}}"#, "apns.invite.$payload", "PREFIX*"),
    (#"{"apns": {"invite": {"a": "b", "$metadata": "x_*"}}}"#, "apns.invite.$metadata", "others or texts"),
    (#"{"apns": {"invite": {"a": "x ${isVideo?'y'}"}}}"#, "apns.invite.a", "malformed placeholder"),
    (#"{"apns": {"invite": {"a": "${isVideo?'y':}"}}}"#, "apns.invite.a", "placeholder"),
    (#"{"apns": {"invite": {"a": "${callId:uuid}"}}}"#, "apns.invite.a", "unknown placeholder"),
  ]

  @Test(arguments: faults)
  func `a directive that could not be sent is refused, and the error names the key and the remedy`(
    source: String, path: String, says: String
  ) {
    let error = #expect(throws: TemplateError.self) { try Dialect(name: "own", json: source) }
    #expect(error?.path == path)
    #expect(error?.message.contains(says) == true, "\(error?.message ?? "")")
  }

  @Test func `a template that rings by a notification can set headless to false`() throws {
    _ = try Dialect(
      name: "own",
      json: #"""
        {"expo": {"invite": {"title": "x", "channelId": "calls", "$push": {"headless": false}}, "invite.ios": {"title": "x"}},
         "fcm": {"invite": {"a": "b", "$push": {"headless": false, "notification": {"title": "x"}}},
           "invite.ios": {"a": "b", "$push": {"notification": {"title": "x"}}},
           "missed_call": {"a": "b", "$push": {"android": {"notification": {"title": "x"}}}}}}
        """#)
  }
}
