// The missed call of every shipped dialect, read in the same way as its app reads it, and as its user sees it.

import DialectsTestSupport
import Foundation
import Providers
import PushModel
import Queue
import Testing

@testable import Dialects

@Suite struct DialectMissedCallTests {
  private let missed: DeliveryFixture = {
    var fixture = DeliveryFixture()
    fixture.kind = .missedCall
    fixture.pushNumber = 8
    fixture.payload["text"] = "SECRET"
    fixture.payload["message"] = "SECRET"
    fixture.payload["metadata"] = ["body": "SECRET"]
    return fixture
  }()

  private static let routes: [(dialect: String, provider: ProviderKind)] =
    ShippedDialects.names.flatMap { [($0, ProviderKind.apns), ($0, .fcm)] } + [("intercom", .expo), ("twilio", .expo)]

  /// The title and text that the user sees, and the data that the app gets.
  private struct Seen {
    var title: String?
    var body: String?
    var category: String?
    var sound: String?
    var data: [String: Any]

    init(_ fixture: DeliveryFixture, _ dialect: String, _ provider: ProviderKind) throws {
      let body = try fixture.body(dialect, provider)
      switch provider {
      case .apns:
        let aps = body["aps"] as! [String: Any]
        let alert = aps["alert"] as! [String: Any]
        (title, self.body) = (alert["title"] as? String, alert["body"] as? String)
        (category, sound) = (aps["category"] as? String, aps["sound"] as? String)
        data = body
      case .fcm:
        (title, self.body) = (body["title"] as? String, body["body"] as? String)
        (category, sound) = (body["category"] as? String, "default")
        data = body
      case .expo:
        (title, self.body) = (body["title"] as? String, body["body"] as? String)
        (category, sound) = (body["categoryId"] as? String, body["sound"] as? String)
        data = body["data"] as! [String: Any]
      case .webpush:
        (title, self.body) = (body["title"] as? String, body["body"] as? String)
        data = body
      }
    }
  }

  @Test(arguments: routes)
  func `a missed call shows who called and lets the user call back`(dialect: String, provider: ProviderKind) throws {
    for platform in DevicePlatform.allCases {
      var fixture = missed
      fixture.platform = platform
      let seen = try Seen(fixture, dialect, provider)
      #expect(seen.title == "Portaria \"Sul\" é")
      #expect(seen.body == "Missed call")
      #expect(seen.category == "missed_call")
      #expect(seen.sound == "default")
      #expect(seen.data["type"] as? String == "missed_call")
      #expect(seen.data["action"] == nil)
    }
  }

  @Test(arguments: routes)
  func `a missed call contains timestamp and expiresAt, and its seq is higher than the invite's`(
    dialect: String, provider: ProviderKind
  ) throws {
    let data = try Seen(missed, dialect, provider).data
    #expect(data["callId"] as? String == missed.callID)
    #expect(data["timestamp"] as? String == "1750000000000")
    #expect(data["expiresAt"] as? String == "1750000060000")
    #expect(data["seq"] as? String == "8")
    if provider == .fcm { #expect(data.values.allSatisfy { $0 is String }) }
  }

  @Test(arguments: routes, MissingText.allCases)
  func `without a name the title is the caller's id, in intercom it is Porteiro`(
    route: (dialect: String, provider: ProviderKind), name: MissingText
  ) throws {
    var fixture = missed
    fixture.payload["fromName"] = name.value
    let seen = try Seen(fixture, route.dialect, route.provider)
    #expect(seen.title == (route.dialect == "intercom" ? "Porteiro" : "doorman-1"))
  }

  @Test(arguments: routes)
  func `a missed call contains nothing of the payload but the caller`(dialect: String, provider: ProviderKind) throws {
    let body = try missed.plan(dialect, provider).body
    #expect(!String(decoding: body, as: UTF8.self).contains("SECRET"))
  }

  @Test(arguments: routes)
  func `the text of a missed video call says that it was a video call`(dialect: String, provider: ProviderKind) throws {
    var kind = missed
    kind.callKind = "video_call"
    #expect(try Seen(kind, dialect, provider).body == "Missed video call")
    var flag = missed
    flag.payload["metadata"] = ["isVideo": true]
    #expect(try Seen(flag, dialect, provider).body == "Missed video call")
  }

  @Test(arguments: routes, Language.allCases)
  func `the text of a missed call is in the device's language`(
    route: (dialect: String, provider: ProviderKind), language: Language
  ) throws {
    var fixture = missed
    fixture.locale = language.rawValue
    fixture.appLocale = "nl"
    let seen = try Seen(fixture, route.dialect, route.provider)
    #expect(seen.body == VisibleText.missedCall.text(in: language))
  }

  // MARK: What each app gets

  @Test(arguments: ProviderKind.allCases) func `intercom gets every key that it needs to call back`(
    provider: ProviderKind
  )
    throws
  {
    let data = try Seen(missed, "intercom", provider).data
    #expect(data[provider == .fcm ? "fromId" : "from"] as? String == "doorman-1")
    #expect(provider != .fcm || data["from"] == nil)
    #expect(data["fromName"] as? String == "Portaria \"Sul\" é")
    #expect(data["apartmentNumber"] as? String == "101")
    #expect(data["buildingName"] as? String == "Edifício Aurora")
    #expect(data["channelName"] as? String == "call-101")
  }

  @Test func `over FCM intercom's text is in the keys that expo-notifications shows`() throws {
    let data = try missed.body("intercom", .fcm)
    #expect(data["message"] as? String == "Missed call")
    #expect(data["title"] as? String == "Portaria \"Sul\" é")
  }

  @Test func `over Expo intercom's missed call is an alert on every platform, in a channel that does not ring`() throws
  {
    let message = try missed.body("intercom", .expo)
    #expect(Set(message.keys) == ["title", "body", "sound", "channelId", "categoryId", "data"])
    #expect(message["channelId"] as? String == "default")
  }

  @Test func `the alerts of one caller have the same thread-id`() throws {
    let aps = try missed.body("intercom", .apns)["aps"] as! [String: Any]
    #expect(aps["thread-id"] as? String == "doorman-1")
  }

  @Test(arguments: [ProviderKind.apns, .fcm, .expo]) func `twilio gets the call, but no type that makes its SDK ring`(
    provider: ProviderKind
  ) throws {
    let data = try Seen(missed, "twilio", provider).data
    #expect(data["twi_call_sid"] as? String == missed.callID)
    #expect(data["twi_from"] as? String == "doorman-1")
    #expect(data["twi_to"] as? String == "user-1")
    #expect(data["twi_message_type"] == nil)
  }

  @Test(arguments: [ProviderKind.apns, .fcm]) func `enclosure gets the room, and no incoming call`(
    provider: ProviderKind
  )
    throws
  {
    let data = try Seen(missed, "enclosure", provider).data
    #expect(data["name"] as? String == "Portaria \"Sul\" é")
    #expect(data["photo"] as? String == "")
    #expect(data["roomId"] as? String == "call-101")
    #expect(data["receiverId"] as? String == "user-1")
    #expect(data["phone"] as? String == "")
    #expect(data["uid"] as? String == "doorman-1")
    #expect(data["bodyKey"] as? String == (provider == .apns ? "Missed voice call" : "voiceMissCall"))
  }

  @Test func `Android shows a missed call in the configuration's channel, not in one that the payload names`()
    throws
  {
    var fixture = DeliveryFixture()
    fixture.kind = .missedCall
    fixture.payload["androidChannel"] = "visitor"
    for channel in [nil, "missed"] {
      fixture.missedCallChannel = channel
      #expect(try fixture.body("intercom", .expo)["channelId"] as? String == channel ?? "default")
      #expect(try fixture.body("twilio", .expo)["channelId"] as? String == channel ?? "default")
      #expect(try fixture.body("intercom", .fcm)["channelId"] as? String == channel)
      let android = try parse(Data(fixture.plan("twilio", .fcm).fcm.android))
      #expect((android["notification"] as? [String: Any])?["channel_id"] as? String == channel)
    }
  }

  @Test func `telnyx gets the call in metadata, and over FCM the message that its apps know`() throws {
    let alert = try missed.body("telnyx", .apns)
    let data = try missed.body("telnyx", .fcm)
    #expect((data["message"] as? String)?.lowercased() == "missed call!")
    for metadata in [alert["metadata"] as! [String: Any], try parse(data["metadata"])] {
      #expect(metadata["call_id"] as? String == missed.callID)
      #expect(metadata["caller_name"] as? String == "Portaria \"Sul\" é")
      #expect(metadata["caller_number"] as? String == "doorman-1")
    }
  }

  @Test(arguments: [ProviderKind.apns, .fcm]) func `commeazy gets exactly the keys of its router, and no text`(
    provider: ProviderKind
  ) throws {
    let body = try missed.body("commeazy", provider)
    let own: Set = ["type", "callId", "callerJid", "callerName", "timestamp", "expiresAt", "seq"]
    let others: Set = provider == .apns ? ["aps", "isVideo", "gcm.message_id"] : ["title", "body", "category"]
    #expect(Set(body.keys) == own.union(others))
    #expect(body["callerJid"] as? String == "doorman-1")
    #expect(body["callerName"] as? String == "Portaria \"Sul\" é")
    #expect(provider == .apns ? body["isVideo"] as? Bool == false : body["isVideo"] == nil)
    var video = missed
    video.callKind = "video_call"
    let isVideo = try video.body("commeazy", provider)["isVideo"]
    #expect(provider == .apns ? isVideo as? Bool == true : isVideo as? String == "true")
  }
}
