// Names that make a push too large are cut. Nothing else is.

import DialectsTestSupport
import Foundation
import Providers
import PushModel
import Queue
import Testing

@testable import Dialects

@Suite struct ShortNamesTests {
  private static let names = ["fromName", "callerName", "apartmentNumber", "buildingName", "groupName"]
  private static let family = "👨‍👩‍👧‍👦"

  private static func fixture(_ name: String, _ platform: DevicePlatform = .unknown) -> DeliveryFixture {
    var fixture = DeliveryFixture()
    fixture.payload["fromName"] = name
    fixture.platform = platform
    return fixture
  }

  private static func times(_ count: Int, _ text: String) -> String { String(repeating: text, count: count) }

  private static let cuts: [(name: String, short: String)] = [
    (times(3000, "x"), times(63, "x") + "…"),
    (times(1000, "ab "), times(20, "ab ") + "ab…"),
    (times(3000, "\"\\"), times(31, "\"\\") + "\"…"),
    (times(3000, "門"), times(63, "門") + "…"),
    // Characters of several code points stay whole.
    (times(1500, "e\u{301}"), times(31, "e\u{301}") + "…"),
    (times(1500, "🇧🇷"), times(31, "🇧🇷") + "…"),
    (times(430, family), times(9, family) + "…"),
    (times(60, "x") + times(430, family), times(60, "x") + "…"),
  ]

  @Test(arguments: cuts) func `a name that makes a push too large is cut at a character`(name: String, short: String)
    throws
  {
    for member in Self.names {
      var fixture = Self.fixture("Ana")
      fixture.payload[member] = name
      let request = try fixture.plan("intercom", .fcm)
      #expect(request.body.count + request.fcm.count <= 4096)
      let flat = try parse(Data(request.body))
      #expect(flat[member] as? String == short)
      #expect(try parse(flat["body"])[member] as? String == short)
      #expect(String(decoding: request.fcm.apns, as: UTF8.self).contains("Incoming call"), "the alert stays")
    }
  }

  private static let rooms: [(provider: ProviderKind, platform: DevicePlatform, isWhole: Bool)] = [
    (.apns, .ios, true), (.expo, .android, true), (.expo, .ios, false), (.fcm, .android, false), (.fcm, .ios, false),
    (.webpush, .web, false),
  ]

  @Test(arguments: rooms) func `a name stays whole over a channel that has room for it`(
    provider: ProviderKind, platform: DevicePlatform, isWhole: Bool
  ) throws {
    let name = Self.times(3000, "x")
    let body = try Self.fixture(name, platform).body("intercom", provider)
    let data = provider == .expo ? try #require(body["data"] as? [String: Any]) : body
    #expect(data["fromName"] as? String == (isWhole ? name : Self.times(63, "x") + "…"))
  }

  @Test func `a name of 64 code points is not cut, one of 65 is`() throws {
    var fixture = Self.fixture(Self.times(3000, "x"))
    (fixture.payload["buildingName"], fixture.payload["groupName"]) = (Self.times(64, "é"), Self.times(65, "é"))
    let body = try fixture.body("intercom", .fcm)
    #expect(body["buildingName"] as? String == Self.times(64, "é"))
    #expect(body["groupName"] as? String == Self.times(63, "é") + "…")
  }

  @Test func `a cancel and a missed call are cut, too, also in the alert of an iPhone`() throws {
    var fixture = Self.fixture(Self.times(5000, "x"), .ios)
    let short = Self.times(63, "x") + "…"
    for kind in [PushKind.invite, .cancel, .missedCall] {
      fixture.kind = kind
      #expect(String(decoding: try fixture.plan("intercom", .fcm).fcm.apns, as: UTF8.self).contains(#""\#(short)""#))
      #expect(try fixture.body("intercom", .expo)["title"] as? String == short)
      fixture.platform = .web
      #expect(try fixture.body("intercom", .webpush)["title"] as? String == short)
      fixture.platform = .ios
    }
    let body = try fixture.body("intercom", .apns)
    #expect(body["fromName"] as? String == short)
  }

  @Test(arguments: ShippedDialects.names)
  func `long names make no push too large, whatever its dialect, kind, channel and platform`(dialect: String) throws {
    var fixture = DeliveryFixture()
    fixture.payload["chatId"] = "room"
    for name in Self.names { fixture.payload[name] = Self.times(430, Self.family) }
    var plans = 0
    for (kind, callKind) in [
      (PushKind.invite, "incoming_call"), (.cancel, "video_call"), (.missedCall, "incoming_call"),
      (.notification, "message"), (.notification, "group_message"), (.notification, "group_invite"),
      (.notification, "missed_call"),
    ] {
      (fixture.kind, fixture.callKind) = (kind, callKind)
      for provider in ProviderKind.allCases {
        for platform in DevicePlatform.allCases {
          fixture.platform = platform
          do {
            _ = try fixture.plan(dialect, provider)
            plans += 1
          } catch PlanningFailure.noTemplate {}
        }
      }
    }
    #expect(plans >= 30)
  }

  @Test(arguments: ["from", "channelName", "doorCode", "metadata"])
  func `nothing else is cut`(member: String) throws {
    var fixture = Self.fixture(Self.times(3000, "x"))
    let long = Self.times(4000, "x")
    fixture.payload[member] = member == "metadata" ? ["fromName": long] : long
    let failure = #expect(throws: PlanningFailure.self) { try fixture.plan("intercom", .fcm) }
    #expect(failure?.reason == "PayloadTooLarge")
  }

  @Test(arguments: ["e" + times(3000, "\u{301}"), times(3000, " ")])
  func `a name of which nothing is left counts as missing`(name: String) throws {
    var fixture = Self.fixture(name)
    fixture.payload["buildingName"] = Self.times(3000, "x")
    #expect(try fixture.body("intercom", .fcm)["fromName"] as? String == "Porteiro")
  }
}
