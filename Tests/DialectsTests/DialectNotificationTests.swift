// Messages, group messages, invitations and missed calls that a backend enqueues, read in the same way as the apps read them.

import DialectsTestSupport
import Foundation
import Providers
import PushModel
import Queue
import Testing

@testable import Dialects

@Suite struct DialectNotificationTests {
  private static let chatKinds = [
    ("message", "New message"), ("group_message", "New group message"), ("group_invite", "Group invitation"),
  ]
  private static let routes: [(dialect: String, provider: ProviderKind)] =
    ShippedDialects.names.flatMap { [($0, ProviderKind.apns), ($0, .fcm)] } + [("intercom", .expo), ("twilio", .expo)]

  /// - Parameter dialect: For telnyx the platform is an iPhone, because only iPhones get its chats.
  private func fixture(_ kind: String, for dialect: String = "") -> DeliveryFixture {
    var fixture = DeliveryFixture()
    if dialect == "telnyx" { fixture.platform = .ios }
    fixture.kind = .notification
    fixture.callKind = kind
    fixture.payload = [
      "callId": "m-1", "from": "bob@example.org", "fromName": "Bob", "chatId": "room-7", "text": "SECRET",
      "body": "SECRET", "metadata": ["preview": "SECRET"],
    ]
    return fixture
  }

  // MARK: CommEazy

  @Test(arguments: chatKinds)
  func `commeazy's router gets its four keys over FCM, all strings, and no text`(kind: String, text: String) throws {
    let data = try fixture(kind).body("commeazy", .fcm)
    var expected = [
      "type": kind, "chatId": "room-7", "senderJid": "bob@example.org", "senderName": "Bob", "callId": "m-1",
      "timestamp": "1750000000000", "expiresAt": "1750000060000", "seq": "3",
    ]
    if kind != "message" { expected["groupId"] = "room-7" }
    #expect(data as? [String: String] == expected)
  }

  @Test(arguments: ["group_message", "group_invite"], [ProviderKind.apns, .fcm])
  func `commeazy gets the id and the name of the group`(kind: String, provider: ProviderKind) throws {
    var fixture = fixture(kind)
    fixture.payload["groupId"] = "g-1"
    fixture.payload["groupName"] = "Familie"
    var data = try fixture.body("commeazy", provider)
    #expect(data["groupId"] as? String == "g-1" && data["chatId"] as? String == "room-7")
    #expect(data["groupName"] as? String == "Familie")
    fixture.payload["chatId"] = nil
    data = try fixture.body("commeazy", provider)
    #expect(data["groupId"] as? String == "g-1" && data["chatId"] as? String == "g-1")
    let aps = provider == .apns ? data["aps"] as! [String: Any] : try aps(fixture.plan("commeazy", .fcm))
    let alert = aps["alert"] as! [String: Any]
    #expect(alert["subtitle"] as? String == (kind == "group_invite" ? "Familie" : nil))
  }

  @Test(arguments: [
    ("twilio", "message"), ("twilio", "group_invite"), ("twilio", "missed_call"), ("commeazy", "group_invite"),
  ])
  func `a notification that Android shows by itself has the message's id as its tag`(dialect: String, kind: String)
    throws
  {
    let android =
      try JSONSerialization.jsonObject(with: Data(fixture(kind).plan(dialect, .fcm).fcm.android)) as? [String: Any]
    #expect((android?["notification"] as? [String: Any])?["tag"] as? String == "m-1")
  }

  private func aps(_ request: PushRequest) throws -> [String: Any] {
    try (parse(Data(request.fcm.apns))["payload"] as! [String: Any])["aps"] as! [String: Any]
  }

  @Test func `the unread count is the badge, if it is a number`() throws {
    let counts: [(Any, Int?)] = [(3, 3), ("4", 4), (0, 0), (-1, nil), ("x", nil), (NSNull(), nil), ([1], nil)]
    for dialect in ShippedDialects.names {
      for (count, badge) in counts {
        var fixture = fixture("message", for: dialect)
        fixture.payload["badge"] = count
        let shown = try fixture.body(dialect, .apns)["aps"] as! [String: Any]
        #expect(shown["badge"] as? Int == badge, "\(dialect) \(count)")
        #expect(shown.keys.contains("badge") == (badge != nil))
        #expect(try aps(fixture.plan(dialect, .fcm))["badge"] as? Int == badge)
      }
    }
  }

  @Test func `a sender without a name has the one of the app's configuration, in every dialect`() throws {
    let names: [Any?] = [nil, NSNull(), "", "  ", "Bob"]
    for (dialect, provider) in Self.routes {
      for name in names {
        var fixture = fixture("message", for: dialect)
        fixture.payload["fromName"] = name
        fixture.unknownName = "Onbekend \"?\""
        let request = try fixture.plan(dialect, provider)
        let text = String(decoding: request.body + request.fcm.apns, as: UTF8.self)
        let isKnown = name as? String == "Bob"
        #expect(text.contains(#""Onbekend \"?\"""#) == !isKnown, "\(dialect) \(provider) \(text)")
        #expect(text.contains(#""Bob""#) == isKnown, "\(dialect) \(provider) \(text)")
      }
    }
  }

  @Test func `a recipient's own unread count comes before the payload's`() throws {
    let counts: [(own: String?, badge: Int)] = [
      (#"{"badge": "7"}"#, 7), (#"{"badge": "0"}"#, 0), (#"{"badge": "-1"}"#, 3), (#"{"badge": "x"}"#, 3),
      (#"{"badge": ""}"#, 3), (#"{"phone": "7"}"#, 3), (nil, 3),
    ]
    for (own, badge) in counts {
      var fixture = fixture("group_message")
      fixture.payload["badge"] = 3
      fixture.recipientData = own
      let shown = try fixture.body("commeazy", .apns)["aps"] as! [String: Any]
      #expect(shown["badge"] as? Int == badge, "\(own ?? "none")")
      #expect(try aps(fixture.plan("commeazy", .fcm))["badge"] as? Int == badge, "\(own ?? "none")")
      fixture.payload["badge"] = nil
      let alone = try fixture.body("commeazy", .apns)["aps"] as! [String: Any]
      #expect(alone["badge"] as? Int == (badge == 3 ? nil : badge), "\(own ?? "none")")
    }
  }

  @Test(arguments: chatKinds)
  func `over APNs commeazy's alert shows the sender and a text`(kind: String, text: String) throws {
    let body = try fixture(kind).body("commeazy", .apns)
    let aps = body["aps"] as! [String: Any]
    #expect(aps["alert"] as? [String: String] == ["title": "Bob", "body": text])
    #expect(aps["thread-id"] as? String == "room-7")
    #expect(aps["category"] as? String == (kind == "group_invite" ? nil : "message"))
    #expect(aps["sound"] as? String == "default")
    #expect((body["gcm.message_id"] as? String)?.isEmpty == false)
    #expect(body["type"] as? String == kind)
    #expect(body["chatId"] as? String == "room-7")
    #expect(body["senderJid"] as? String == "bob@example.org")
    #expect(body["senderName"] as? String == "Bob")
    let own: Set = [
      "aps", "gcm.message_id", "type", "chatId", "senderJid", "senderName", "callId", "timestamp", "expiresAt", "seq",
    ]
    #expect(Set(body.keys) == (kind == "message" ? own : own.union(["groupId"])))
  }

  @Test func `for commeazy a message without a chat id is a planning failure`() {
    var fixture = fixture("message")
    fixture.payload["chatId"] = nil
    for provider in [ProviderKind.apns, .fcm] {
      #expect(throws: PlanningFailure.missingField("chatId")) { try fixture.plan("commeazy", provider) }
    }
  }

  // MARK: Every dialect

  @Test(arguments: routes, chatKinds)
  func `a push about a message contains nothing but the sender and the chat`(
    route: (dialect: String, provider: ProviderKind), kind: (name: String, text: String)
  ) throws {
    let request = try fixture(kind.name, for: route.dialect).plan(route.dialect, route.provider)
    let text = String(decoding: request.body, as: UTF8.self)
    #expect(!text.contains("SECRET"))
    #expect(request.kind == .notification)
    #expect(request.collapseID == (route.provider == .apns ? Array("m-1".utf8)[...] : nil))
    let body = try parse(Data(request.body))
    let data = body["data"] as? [String: Any] ?? body
    #expect(data["type"] as? String == kind.name)
    #expect(data["chatId"] as? String == "room-7")
    #expect(data["timestamp"] as? String == "1750000000000")
    #expect(data["expiresAt"] as? String == "1750000060000")
    #expect(data["seq"] as? String == "3")
    if route.provider == .fcm { #expect(data["from"] == nil && data.values.allSatisfy { $0 is String }) }
  }

  @Test(arguments: routes.filter { $0.dialect != "commeazy" }, chatKinds)
  func `the other dialects show the sender, and a text in the user's language`(
    route: (dialect: String, provider: ProviderKind), kind: (name: String, text: String)
  ) throws {
    var fixture = fixture(kind.name, for: route.dialect)
    func seen() throws -> [String?] {
      let body = try fixture.body(route.dialect, route.provider)
      let shown = (body["aps"] as? [String: Any])?["alert"] as? [String: Any] ?? body
      let data = body["data"] as? [String: Any] ?? body
      return [shown["title"], shown["body"], data[route.provider == .fcm ? "fromId" : "from"], data["fromName"]]
        .map { $0 as? String }
    }
    #expect(try seen() == ["Bob", kind.text, "bob@example.org", "Bob"])
    fixture.payload["chatId"] = nil
    fixture.payload["fromName"] = nil
    fixture.locale = "tr"
    let turkish = ["message": "Yeni mesaj", "group_message": "Yeni grup mesajı", "group_invite": "Grup daveti"]
    #expect(try seen() == ["bob@example.org", turkish[kind.name], "bob@example.org", "bob@example.org"])
  }

  @Test(arguments: routes)
  func `the text of a message is shown if the app's configuration allows it, and never by commeazy`(
    route: (dialect: String, provider: ProviderKind)
  ) throws {
    for (kind, _) in Self.chatKinds {
      var fixture = fixture(kind, for: route.dialect)
      fixture.showsMessageText = true
      let request = try fixture.plan(route.dialect, route.provider)
      let body = try parse(Data(request.body))
      let isShown = route.dialect != "commeazy" && kind != "group_invite"
      let shown: Any? =
        switch route.provider {
        case .apns: ((body["aps"] as? [String: Any])?["alert"] as? [String: Any])?["body"]
        case .fcm: (try aps(request)["alert"] as? [String: Any])?["body"]
        default: body["body"]
        }
      #expect((shown as? String == "SECRET") == isShown, "\(route) \(kind)")
      // What Porteiro's background task would read.
      if route.provider == .fcm { #expect(body["body"] as? String != "SECRET") }
      if route.dialect == "enclosure" { #expect((body["msgKey"] as? String == "SECRET") == isShown) }
    }
  }

  @Test func `a long text of a message is cut between two characters, and a blank one counts as missing`() throws {
    var fixture = fixture("message")
    fixture.showsMessageText = true
    func shown(_ text: Any) throws -> String? {
      fixture.payload["text"] = text
      return try fixture.body("enclosure", .fcm)["msgKey"] as? String
    }
    let family = "\u{1F468}\u{200D}\u{1F469}\u{200D}\u{1F467}"  // 18 bytes
    #expect(try shown(String(repeating: family, count: 55)) == String(repeating: family, count: 55))
    #expect(try shown(String(repeating: family, count: 56)) == String(repeating: family, count: 55) + "\u{2026}")
    #expect(try shown(String(repeating: "\"", count: 501)) == String(repeating: "\"", count: 500) + "\u{2026}")
    #expect(try shown("a \"b\" \n") == "a \"b\" \n")
    for missing in [" \n", "", NSNull(), 7] as [Any] { #expect(try shown(missing) == "New message") }
  }

  @Test func `Android shows a notification in the channel that the payload names`() throws {
    for (kind, _) in Self.chatKinds {
      var fixture = fixture(kind)
      #expect(try fixture.body("intercom", .expo)["channelId"] as? String == "default")
      #expect(try fixture.body("intercom", .fcm)["channelId"] == nil)
      fixture.payload["androidChannel"] = "visitor"
      #expect(try fixture.body("intercom", .expo)["channelId"] as? String == "visitor")
      #expect(try fixture.body("twilio", .expo)["channelId"] as? String == "visitor")
      #expect(try fixture.body("intercom", .fcm)["channelId"] as? String == "visitor")
      let android = try parse(Data(fixture.plan("twilio", .fcm).fcm.android))
      #expect((android["notification"] as? [String: Any])?["channel_id"] as? String == "visitor")
    }
  }

  @Test func `intercom's text is in the keys that expo-notifications shows; telnyx has no template for Android`() throws
  {
    for (kind, text) in Self.chatKinds {
      #expect(try fixture(kind).body("intercom", .fcm)["message"] as? String == text)
      var telnyx = fixture(kind)
      for platform in [DevicePlatform.unknown, .android] {
        telnyx.platform = platform
        #expect(throws: PlanningFailure.noTemplate) { try telnyx.plan("telnyx", .fcm) }
      }
      telnyx.platform = .ios
      let body = try telnyx.body("telnyx", .fcm)
      #expect(body["metadata"] == nil && body["call_id"] == nil && body["message"] == nil)
    }
  }

  @Test(arguments: routes, [false, true])
  func `a missed call that the backend enqueues looks like the dialect's missed call`(
    route: (dialect: String, provider: ProviderKind), isVideo: Bool
  ) throws {
    var announced = DeliveryFixture()
    announced.kind = .notification
    announced.callKind = "missed_call"
    announced.payload["metadata"] = ["isVideo": isVideo]
    var missed = announced
    missed.kind = .missedCall
    missed.callKind = isVideo ? "video_call" : "incoming_call"
    let (left, right) = (
      try announced.plan(route.dialect, route.provider), try missed.plan(route.dialect, route.provider)
    )
    #expect(String(decoding: left.body, as: UTF8.self) == String(decoding: right.body, as: UTF8.self))
    #expect(String(decoding: left.body, as: UTF8.self).contains(isVideo ? "Missed video call" : "Missed call"))
    #expect(left.kind == .missedCall && left.collapseID == right.collapseID)
  }

  @Test(arguments: ["", "invite", "cancel", "incoming_call", "video_call", "poke", "message "])
  func `a notification is never taken for a call`(kind: String) {
    for provider in ProviderKind.allCases {
      #expect(throws: PlanningFailure.noTemplate) { try fixture(kind).plan("intercom", provider) }
    }
  }
}
