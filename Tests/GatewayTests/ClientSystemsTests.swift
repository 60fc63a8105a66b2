// The six client systems: calls go through the whole gateway, and the received pushes are compared key by key. What the
// phones do with them is in PhoneSituationsTests.

import Foundation
import Phones
import Simulators
import TestSupport
import Testing

@testable import Lab

@Suite("Client systems", .timeLimit(.minutes(10)))
struct ClientSystemsTests {
  private static let callID = "7D4E3A52-53CB-4A4E-9F0C-5D8A2F9D1C11"

  // MARK: - 1. Porteiro

  @Test(
    "Porteiro: PushKit, FCM and both kinds of Expo phones get the call; a resident with notifications off gets nothing")
  func porteiro() async throws {
    try await GatewayHarness.with { gateway in
      try await gateway.ring(
        GatewayHarness.baseCallData(Self.callID),
        """
        [{"userId": "iphone", "voipPushToken": "\(PhoneToken.voip)", "pushToken": "\(PhoneToken.expo("spare"))", "platform": "ios"},
         {"userId": "android", "fcmToken": "\(PhoneToken.fcm("android"))", "platform": "android"},
         {"userId": "expo-android", "pushToken": "\(PhoneToken.expo("android"))", "platform": "android"},
         {"userId": "expo-ios", "pushToken": "\(PhoneToken.expo("ios"))", "platform": "ios"},
         {"userId": "quiet", "voipPushToken": "\(PhoneToken.alert)", "notificationEnabled": false},
         {"userId": "quiet-too", "pushToken": "\(PhoneToken.expo("quiet"))", "notificationEnabled": false}]
        """)
      try await gateway.settled()
      #expect(
        try await gateway.history() == [
          "apns invite delivered iphone", "expo invite delivered expo-android", "expo invite delivered expo-ios",
          "fcm invite delivered android",
        ])
      let voip = try #require(await gateway.simulators.apnsProduction.accepted.first).object()
      let call = try #require(PorteiroApp.voipPush(voip))
      #expect(PorteiroApp.callKitUUID(call) == UUID(uuidString: Self.callID))
      #expect(
        call
          == PorteiroApp.Call(
            callID: Self.callID, from: "8d0b1a52-5c1f-4d7c-9b7a-0f9f6d2f4c11", fromName: "Portaria",
            apartmentNumber: "42", buildingName: "Torre Norte", channelName: "call-\(Self.callID)", schemaVersion: 1,
            sentAt: call.sentAt, isVoIP: true))
      #expect((voip["metadata"] as? [String: Any])?["clientVersion"] is NSNull)
      #expect(abs(call.sentAt - Int64(Date().timeIntervalSince1970 * 1000)) < 600_000)

      // FCM's data reaches the background task unchanged. `from` is a reserved key, so the value is in `body`.
      let fcm = try #require(await gateway.simulators.fcm.accepted.first).object()
      #expect(fcm.values.allSatisfy { $0 is String })
      try expectSameCall(PorteiroApp.backgroundTask(["data": fcm]), as: call)

      // Depending on its version, Expo passes `data` to an Android task as JSON text or as an object.
      let expo = await gateway.simulators.expo.accepted
      let android = try #require(expo.to(PhoneToken.expo("android")).first)
      let data = try #require(android["data"] as? [String: Any])
      let text = String(decoding: try JSONSerialization.data(withJSONObject: data), as: UTF8.self)
      try expectSameCall(PorteiroApp.backgroundTask(["data": ["body": text]]), as: call)
      try expectSameCall(PorteiroApp.backgroundTask(["data": ["data": data]]), as: call)
      #expect(["title", "body", "sound", "subtitle"].allSatisfy { android[$0] == nil })
      #expect(android["priority"] as? String == "high")
      #expect(android["_contentAvailable"] as? Bool == true)
      #expect(android["channelId"] == nil)

      let ios = try #require(expo.to(PhoneToken.expo("ios")).first)
      let shown = ["request": ["content": ["data": ios["data"]]]]
      try expectSameCall(PorteiroApp.backgroundTask(["notification": shown]), as: call)
      #expect(ios["title"] as? String == "Portaria")
      #expect(ios["body"] as? String == "Incoming call")
      #expect(ios["sound"] as? String == "default")
      #expect(await gateway.refusals() == [:])
    }
  }

  private func expectSameCall(_ data: [String: Any]?, as voip: PorteiroApp.Call) throws {
    var call = try #require(data.flatMap(PorteiroApp.call))
    #expect(!call.isVoIP)
    call.isVoIP = true
    call.sentAt = voip.sentAt
    #expect(call == voip)
  }

  @Test("Porteiro: a caller without a name is shown as Porteiro, a number becomes text, and a repeated call rings once")
  func porteiroDefaults() async throws {
    try await GatewayHarness.with { gateway in
      let call = #"{"callId": "\#(Self.callID)", "from": "doorman", "apartmentNumber": 101}"#
      let phone = #"[{"userId": "a", "voipPushToken": "\#(PhoneToken.voip)"}]"#
      try await gateway.ring(call, phone)
      try await gateway.ring(call, phone)
      try await gateway.settled()
      let pushes = await gateway.simulators.apnsProduction.accepted
      #expect(pushes.count == 1)
      let read = try #require(try pushes.first.flatMap { PorteiroApp.voipPush(try $0.object()) })
      #expect(read.fromName == "Porteiro")
      #expect(read.apartmentNumber == "101")
    }
  }

  // MARK: - 2. react-native-twilio-phone

  @Test("Twilio: the SDK on Android and CallKit on iOS are given the invite, and CancelledCallInvite when it ends")
  func twilio() async throws {
    try await GatewayHarness.speaking("twilio") { gateway in
      try await gateway.ring(
        #"{"callId": "CA42", "from": "+31201234567", "fromName": "Front door", "metadata": {"to": "client:anna"}}"#,
        """
        [{"userId": "anna", "voipPushToken": "\(PhoneToken.voip)"},
         {"userId": "bert", "fcmToken": "\(PhoneToken.fcm("bert"))", "platform": "android"}]
        """)
      try await gateway.settled()
      try await gateway.end("CA42", "declined")
      try await gateway.settled()
      let voip = try #require(await gateway.simulators.apnsProduction.accepted.first).object()
      #expect(voip["twi_from"] as? String == "+31201234567")
      #expect(voip["twi_to"] as? String == "client:anna")
      #expect(voip["twi_call_sid"] as? String == "CA42")
      #expect(await gateway.simulators.apnsProduction.accepted.count == 1)
      let events = try await gateway.simulators.fcm.accepted.map { TwilioApp.handleMessage(try $0.object()) }
      #expect(
        events == [
          .callInvite(sid: "CA42", from: "+31201234567", to: "client:anna"), .cancelledCallInvite(sid: "CA42"),
        ])
    }
  }

  // MARK: - 3. The life cycle of an incoming call

  @Test(
    "life cycle: a call that is answered elsewhere or hung up stops ringing, an unanswered one is missed, and seq increases"
  )
  func lifeCycle() async throws {
    try await GatewayHarness.with { gateway in
      let anna = PhoneToken.fcm("anna")
      let bert = PhoneToken.fcm("bert")
      let both = #"[{"userId": "anna", "fcmToken": "\#(anna)"}, {"userId": "bert", "fcmToken": "\#(bert)"}]"#
      for callID in ["answered", "declined", "hung-up"] {
        try await gateway.ring(GatewayHarness.baseCallData(callID), both)
      }
      try await gateway.ring(GatewayHarness.baseCallData("unanswered"), both)
      _ = try await gateway.simulators.fcm.waitForAccepted(8)
      try await gateway.settled()
      try await gateway.lapse("unanswered")
      try await gateway.answer("answered", by: "anna")
      try await gateway.end("declined", "declined")
      try await gateway.end("hung-up")
      // Cancels: one to bert, two, two. Missed calls: two for the call that was hung up, two for the call that nobody
      // answered.
      let pushes = try await gateway.simulators.fcm.waitForAccepted(8 + 5 + 4)
      try await gateway.settled()
      var phones = [anna: CallSessions(), bert: CallSessions()]
      for push in pushes { try phones[push.token]?.receive(push.object()) }
      #expect(
        phones[anna]?.states
          == ["answered": .ringing, "declined": .ended, "hung-up": .missed, "unanswered": .missed])
      #expect(
        phones[bert]?.states == ["answered": .ended, "declined": .ended, "hung-up": .missed, "unanswered": .missed])
      #expect(phones.values.allSatisfy { $0.isRising })
      let states = try await gateway.database.value(
        "select string_agg(call_id || ' ' || state, ',' order by call_id) from push.outbox")
      #expect(states == "answered answered,declined ended,hung-up ended,unanswered missed")
    }
  }

  // MARK: - 4. Enclosure

  @Test("Enclosure: a VoIP push has no aps and always a room, and no cancel is sent over VoIP")
  func enclosure() async throws {
    try await GatewayHarness.speaking("enclosure") { gateway in
      let phone =
        #"[{"userId": "omar", "voipPushToken": "\#(PhoneToken.voip)", "fcmToken": "\#(PhoneToken.fcm("omar"))"DATA}]"#
      for (callID, room) in [("e-1", #""room-7""#), ("e-2", #""""#), ("e-3", "null")] {
        try await gateway.ring(
          """
          {"callId": "\(callID)", "from": "+9665551234", "fromName": "Layla", "channelName": \(room),
           "metadata": {"photo": "https://example.com/layla.jpg", "phone": "+9665550000"}}
          """, phone.replacing("DATA", with: callID == "e-1" ? #", "data": {"phone": "+9665552222"}"# : ""))
      }
      try await gateway.settled()
      let pushes = try await gateway.simulators.apnsProduction.accepted.map { try $0.object() }
      #expect(pushes.count == 3)
      #expect(pushes.allSatisfy { $0["aps"] == nil })
      let calls = pushes.compactMap(EnclosureApp.voipPush).sorted { $0.roomID < $1.roomID }
      #expect(calls.map(\.roomID) == ["e-2", "e-3", "room-7"])
      // The phone number of the recipient, if there is one, and never that of the caller.
      #expect(calls.map(\.phone) == ["", "", "+9665552222"])
      #expect(
        calls.last
          == EnclosureApp.Call(
            name: "Layla", photo: "https://example.com/layla.jpg", roomID: "room-7", receiverID: "omar",
            phone: "+9665552222"))
      #expect(await gateway.refusals() == [:])
    }
  }

  // MARK: - 5. Telnyx

  @Test(
    "Telnyx: metadata is an object over VoIP and text over FCM, and an Android phone shows a late call as missed")
  func telnyx() async throws {
    try await GatewayHarness.speaking("telnyx") { gateway in
      try await gateway.ring(
        #"{"callId": "\#(Self.callID)", "from": "+13125550100", "fromName": "Front desk"}"#,
        """
        [{"userId": "iphone", "voipPushToken": "\(PhoneToken.voip)"},
         {"userId": "android", "fcmToken": "\(PhoneToken.fcm("android"))"}]
        """)
      let voip = try #require(try await gateway.simulators.apnsProduction.waitForAccepted(1).first)
      let fcm = try #require(try await gateway.simulators.fcm.waitForAccepted(1).first)
      try await gateway.settled()
      #expect(try voip.object()["call_id"] as? String == Self.callID)
      #expect(try voip.object()["metadata"] is [String: Any])
      #expect(try fcm.object().values.allSatisfy { $0 is String })
      let ring = PhoneReaction.rings(PhoneRing(callID: Self.callID, caller: "Front desk"))
      let missed = [
        PhoneReaction.stops(callID: Self.callID), .shows(title: "Front desk", body: "Missed call", tap: "call back"),
      ]
      let iPhone = Phone(.telnyx, .ios, .killed)
      let android = Phone(.telnyx, .android, .killed, variant: .seed)
      #expect(iPhone.receives(try #require(PhonePush(voip))).reactions == [ring])
      var late = try #require(PhonePush(fcm))
      for (seconds, expected) in [(0.0, [ring]), (55, [ring]), (61, missed)] {
        late.secondsLate = seconds
        #expect(android.receives(late).reactions == expected)
      }
      try await gateway.end(Self.callID, "declined")
      let cancel = try #require(try await gateway.simulators.fcm.waitForAccepted(2).last)
      #expect(android.receives(try #require(PhonePush(cancel))).reactions == missed)
    }
  }

  @Test("Telnyx: an Android phone is shown a missed call once, by the cancel, or if it gets none by the missed call")
  func telnyxShowsEachMissedCallOnce() async throws {
    try await GatewayHarness.speaking("telnyx") { gateway in
      let entry = #"[{"userId": "eva", "fcmToken": "\#(PhoneToken.fcm("eva"))", "platform": "android"}]"#
      func ring(_ callID: String) async throws {
        try await gateway.ring(#"{"callId": "\#(callID)", "from": "+13125550100", "fromName": "Front desk"}"#, entry)
      }
      let history =
        "select string_agg(concat_ws(' ', kind, outcome, reason), ', ' order by outbox_id, n) from push.delivery_history"
      let missed: [PhoneReaction] = [
        .stops(callID: Self.callID), .shows(title: "Front desk", body: "Missed call", tap: "call back"),
      ]
      let android = Phone(.telnyx, .android, .killed, variant: .seed)

      // The lane sends nothing until the caller has hung up.
      _ = try await gateway.database.value("select changed from push.pause_lane('porteiro', 'fcm', 'test')")
      try await ring(Self.callID)
      try await gateway.end(Self.callID)
      _ = try await gateway.database.value("select changed from push.resume_lane('porteiro', 'fcm')")
      try await gateway.settled()
      #expect(try await gateway.database.value(history) == "invite void CallEnded, missed_call delivered")
      let pushes = await gateway.simulators.fcm.accepted
      #expect(pushes.count == 1)
      #expect(android.receives(try #require(pushes.first.flatMap { PhonePush($0) })).reactions == missed)

      try await ring("rung")
      try await gateway.settled()
      try await gateway.end("rung")
      try await gateway.settled()
      #expect(
        try await gateway.database.value(history + " where call_id = 'rung'")
          == "invite delivered, cancel delivered, missed_call void SaidByCancel")
      #expect(await gateway.simulators.fcm.accepted.count == 3)

      // The lane is paused for longer than the cancel is valid.
      try await ring("out of reach")
      try await gateway.settled()
      _ = try await gateway.database.value("select changed from push.pause_lane('porteiro', 'fcm', 'test')")
      try await gateway.end("out of reach")
      try await gateway.followed()
      try await gateway.database.execute("update push.delivery set deadline_at = clock_timestamp() where kind = 1")
      try await gateway.database.wait(for: "select not exists (select from push.delivery where kind = 1)")
      try await gateway.followed()
      _ = try await gateway.database.value("select changed from push.resume_lane('porteiro', 'fcm')")
      try await gateway.settled()
      #expect(
        try await gateway.database.value(history + " where call_id = 'out of reach'")
          == "invite delivered, cancel expired DeadlinePassed, missed_call delivered")
      #expect(await gateway.simulators.fcm.accepted.count == 5)
    }
  }

  // MARK: - 6. CommEazy

  @Test("CommEazy: the router distinguishes calls and video calls over VoIP and FCM, and ends calls that have ended")
  func commeazy() async throws {
    try await GatewayHarness.speaking("commeazy") { gateway in
      let phones = """
        [{"userId": "oma", "voipPushToken": "\(PhoneToken.voip)"},
         {"userId": "opa", "fcmToken": "\(PhoneToken.fcm("opa"))", "platform": "android"}]
        """
      // Over VoIP, an id that is not a UUID is converted to one.
      let ids = (1...3).map { "7d4e3a52-53cb-4a4e-9f0c-5d8a2f9d1c1\($0)" }
      let caller = #""from": "jan@example.com", "fromName": "Jan""#
      try await gateway.ring(#"{"callId": "\#(ids[0])", \#(caller)}"#, phones)
      try await gateway.ring(#"{"callId": "\#(ids[1])", \#(caller)}"#, phones, kind: "video_call")
      try await gateway.ring(#"{"callId": "\#(ids[2])", \#(caller), "metadata": {"isVideo": true}}"#, phones)
      try await gateway.settled()
      let expected = [(ids[0], false), (ids[1], true), (ids[2], true)].map {
        CommEazyApp.Routed.call(id: $0, jid: "jan@example.com", name: "Jan", isVideo: $1)
      }
      for server in [gateway.simulators.apnsProduction, gateway.simulators.fcm] {
        let routed = try await server.accepted.map { try #require(CommEazyApp.route($0.object())) }
        #expect(routed.count == 3)
        #expect(expected.allSatisfy(routed.contains))
      }
      try await gateway.end(ids[1], "declined")
      let cancel = try #require(try await gateway.simulators.fcm.waitForAccepted(4).last)
      #expect(try CommEazyApp.route(cancel.object()) == .cancelled(id: ids[1]))
      #expect(await gateway.simulators.apnsProduction.accepted.count == 3)
    }
  }

  @Test("CommEazy: a missed call shows the caller and what was missed in the phone's language, with a call-back")
  func commeazyMissed() async throws {
    try await GatewayHarness.speaking("commeazy") { gateway in
      let phones = """
        [{"userId": "oma", "apnsToken": "\(PhoneToken.alert)", "voipPushToken": "\(PhoneToken.voip)", "locale": "nl-NL"},
         {"userId": "opa", "fcmToken": "\(PhoneToken.fcm("opa"))", "locale": "pl"},
         {"userId": "kai", "fcmToken": "\(PhoneToken.fcm("kai"))", "locale": "xx"}]
        """
      let caller = #""from": "jan@example.com", "fromName": "Jan""#
      try await gateway.ring(#"{"callId": "m-1", \#(caller)}"#, phones)
      try await gateway.ring(#"{"callId": "m-2", \#(caller)}"#, phones, kind: "video_call")
      _ = try await gateway.simulators.apnsProduction.waitForAccepted(2)
      _ = try await gateway.simulators.fcm.waitForAccepted(4)
      try await gateway.settled()
      for callID in ["m-1", "m-2"] { try await gateway.lapse(callID) }
      let alerts = try await gateway.simulators.apnsProduction.waitForAccepted(4).filter { $0.kind == "alert" }
      let messages = try await gateway.simulators.fcm.waitForAccepted(8)
      try await gateway.settled()
      func missed(_ callID: String, _ text: String) -> CommEazyApp.Routed {
        .missedCall(id: callID, title: "Jan", body: text, category: "missed_call")
      }
      let shown = try alerts.map { CommEazyApp.route(try $0.object()) }
      #expect(shown.contains(missed("m-1", "Gemiste oproep")))
      #expect(shown.contains(missed("m-2", "Gemist videogesprek")))
      #expect(alerts.allSatisfy { $0.token == PhoneToken.alert && $0.topic == "com.example.app" })
      for (user, call, video) in [
        ("opa", "Nieodebrane połączenie", "Nieodebrane połączenie wideo"), ("kai", "Missed call", "Missed video call"),
      ] {
        let routed = try messages.to(PhoneToken.fcm(user)).map(CommEazyApp.route)
        #expect(routed.contains(missed("m-1", call)))
        #expect(routed.contains(missed("m-2", video)))
      }
    }
  }
}
