// The readers themselves: what each app's source says, in pushes written by hand, the wrong ones too.

import Phones
import Testing

@Suite struct PhoneReaderTests {
  private func push(_ channel: PhonePush.Channel, _ json: String, late: Double = 0) -> PhonePush {
    PhonePush(channel, message: json.utf8, secondsLate: late)!
  }

  private func reactions(
    _ system: PhoneSystem, _ platform: PhonePlatform, _ state: PhoneState, _ channel: PhonePush.Channel, _ json: String,
    late: Double = 0
  ) -> [PhoneReaction] {
    reactions(system, platform, state, .today, channel, json, late: late)
  }

  private func reactions(
    _ system: PhoneSystem, _ platform: PhonePlatform, _ state: PhoneState, _ variant: PhoneVariant,
    _ channel: PhonePush.Channel, _ json: String, late: Double = 0
  ) -> [PhoneReaction] {
    Phone(system, platform, state, variant: variant).receives(push(channel, json, late: late)).reactions
  }

  private func fcm(_ data: String, priority: String = "HIGH", more: String = "") -> String {
    #"{"token": "t", "data": \#(data), "android": {"priority": "\#(priority)"}\#(more)}"#
  }

  private static let uuid = "7D4E3A52-53CB-4A4E-9F0C-5D8A2F9D1C11"

  @Test(arguments: PhoneSystem.allCases, PhoneVariant.allCases)
  func `no VoIP push is ever without a call or a crash, but Telnyx's own end of a call`(
    system: PhoneSystem, variant: PhoneVariant
  ) {
    for json in ["{}", #"{"type": "missed_call"}"#, #"{"action": "call_cancelled", "callId": "x"}"#, #"{"aps": {}}"#] {
      for state in PhoneState.allCases {
        let made = reactions(system, .ios, state, variant, .voip, json)
        #expect(made.count == 1)
        if case .rings = made[0] { continue }
        #expect(made == [.crashes])
      }
    }
    #expect(reactions(system, .android, .open, variant, .voip, "{}") == [.ignores])
  }

  // MARK: Porteiro

  @Test(arguments: PhoneVariant.allCases) func `a cancel of the call's own type rings again`(variant: PhoneVariant) {
    let cancel = #"{"type": "intercom_call", "action": "call_cancelled", "callId": "c", "from": "d"}"#
    let body = #"{"callId": "c", "body": "{\"type\":\"intercom_call\",\"callId\":\"c\",\"from\":\"d\"}"}"#
    let rings: [PhoneReaction] = [.rings(PhoneRing(callID: "c", caller: "Porteiro"))]
    for state in [PhoneState.background, .killed] {
      #expect(
        reactions(.porteiro, .android, state, variant, .expo, #"{"data": \#(cancel), "priority": "high"}"#) == rings)
      #expect(reactions(.porteiro, .android, state, variant, .fcm, fcm(body)) == rings)
    }
  }

  @Test func `today's schema loses a call to a null or a number, and to a flat type without from`() {
    for bad in [#""channel": null"#, #""callerName": 5"#, #""apartmentNumber": 101"#, #""fromName": null"#] {
      let data = #"{"type": "intercom_call", "callId": "c", "from": "d", \#(bad)}"#
      let message = #"{"data": \#(data), "priority": "high"}"#
      #expect(reactions(.porteiro, .android, .killed, .expo, message) == [.ignores])
    }
    #expect(
      reactions(.porteiro, .android, .killed, .fcm, fcm(#"{"type": "intercom_call", "callId": "c"}"#)) == [.ignores])
    #expect(reactions(.porteiro, .ios, .killed, .voip, #"{"callId": "c", "from": null}"#) == [.crashes])
  }

  @Test func `a title among FCM data is shown beside the call`() {
    let data = #"{"title": "Sale", "body": "{\"type\":\"intercom_call\",\"callId\":\"c\",\"from\":\"d\"}"}"#
    #expect(
      reactions(.porteiro, .android, .killed, .fcm, fcm(data))
        == [.rings(PhoneRing(callID: "c", caller: "Porteiro")), .shows(title: "Sale", body: "", tap: "app")])
  }

  @Test func `what Expo makes a notification of does not ring, and is blank without a text`() {
    let call = #""data": {"type": "intercom_call", "callId": "c", "from": "d"}, "priority": "high""#
    #expect(
      reactions(.porteiro, .android, .killed, .expo, #"{"channelId": "x", \#(call)}"#)
        == [.shows(title: "", body: "", tap: "app")])
    #expect(
      reactions(.porteiro, .android, .killed, .expo, "{\(call)}") == [
        .rings(PhoneRing(callID: "c", caller: "Porteiro"))
      ])
    #expect(
      reactions(
        .porteiro, .android, .killed, .expo, #"{"data": {"type": "intercom_call", "callId": "c", "from": "d"}}"#)
        == [.ignores])
  }

  // MARK: Twilio

  @Test func `without Twilio's bridge token Android ignores the call and an iPhone cannot answer`() {
    let call =
      #"{"twi_message_type": "twilio.voice.call", "twi_call_sid": "CA", "twi_from": "client:ana", "twi_to": "b"}"#
    let whole = call.dropLast() + #", "twi_bridge_token": "t"}"#
    #expect(reactions(.twilio, .android, .killed, .fcm, fcm(call)) == [.ignores])
    #expect(
      reactions(.twilio, .android, .killed, .fcm, fcm(String(whole))) == [
        .rings(PhoneRing(callID: "CA", caller: "ana"))
      ])
    #expect(
      reactions(.twilio, .ios, .killed, .voip, call)
        == [.rings(PhoneRing(callID: "CA", caller: "ana", canBeAnswered: false))])
    #expect(reactions(.twilio, .ios, .killed, .voip, #"{"twi_from": 5}"#) == [.crashes])
  }

  // MARK: Enclosure

  @Test func `Enclosure without a room crashes, without the caller's id files the call under the one who is called`() {
    #expect(reactions(.enclosure, .ios, .killed, .voip, #"{"name": "Layla", "roomId": ""}"#) == [.crashes])
    let call = #""name": "Layla", "roomId": "r", "receiverId": "omar", "bodyKey": "Incoming video call""#
    #expect(
      reactions(.enclosure, .ios, .killed, .voip, "{\(call)}")
        == [.rings(PhoneRing(callID: "r", caller: "Layla", isVideo: true, filedUnder: "omar"))])
    #expect(
      reactions(.enclosure, .ios, .killed, .voip, #"{\#(call), "uid": "layla"}"#)
        == [.rings(PhoneRing(callID: "r", caller: "Layla", isVideo: true, filedUnder: "layla"))])
  }

  @Test func `Enclosure's alert with content-available leads nowhere, and data alone is shown to nobody`() {
    func message(_ aps: String) -> String {
      fcm(#"{"bodyKey": "Incoming voice call", "roomId": "r"}"#, more: #", "apns": {"payload": {"aps": \#(aps)}}"#)
    }
    let alert = #"{"alert": {"title": "Layla", "body": "Incoming voice call"}"#
    #expect(
      reactions(.enclosure, .ios, .killed, .fcm, message("\(alert)}")) == [
        .shows(title: "Layla", body: "Incoming voice call", tap: "call")
      ])
    #expect(
      reactions(.enclosure, .ios, .killed, .fcm, message(#"\#(alert), "content-available": 1}"#))
        == [.shows(title: "Layla", body: "Incoming voice call", tap: "nothing")])
    #expect(reactions(.enclosure, .ios, .killed, .fcm, fcm(#"{"bodyKey": "chatting"}"#)) == [.ignores])
  }

  // MARK: Telnyx

  @Test func `Telnyx ends on an id that is no UUID and on no metadata, and files each "Missed call!"`() {
    #expect(reactions(.telnyx, .ios, .killed, .voip, #"{"metadata": {"call_id": "v3-7"}}"#) == [.crashes])
    #expect(reactions(.telnyx, .ios, .killed, .voip, #"{"metadata": "{}"}"#) == [.crashes])
    #expect(
      reactions(
        .telnyx, .ios, .killed, .voip,
        #"{"metadata": {"call_id": "\#(Self.uuid)", "caller_number": "+1"}, "isVideo": true}"#)
        == [.rings(PhoneRing(callID: Self.uuid, caller: "+1", isVideo: true))])
    let ended = #"{"aps": {"alert": "Missed call!"}, "metadata": {"call_id": "\#(Self.uuid)"}}"#
    #expect(reactions(.telnyx, .ios, .killed, .voip, ended) == [.stops(callID: Self.uuid)])
    #expect(
      reactions(.telnyx, .ios, .killed, .seed, .voip, ended) == [
        .rings(PhoneRing(callID: Self.uuid, caller: "Unknown"))
      ])
    let data = #"{"message": "MISSED CALL!", "metadata": "{\"call_id\":\"c\",\"caller_name\":\"Ana\"}"}"#
    #expect(
      reactions(.telnyx, .android, .killed, .fcm, fcm(data))
        == [.stops(callID: "c"), .shows(title: "Ana", body: "Missed call", tap: "call back")])
  }

  @Test func `Telnyx takes a late call for a missed one, and shows nothing of metadata that are no texts`() {
    let data = fcm(#"{"metadata": "{\"call_id\":\"c\",\"caller_name\":\"Ana\"}"}"#)
    let rings: [PhoneReaction] = [.rings(PhoneRing(callID: "c", caller: "Ana"))]
    let missed: [PhoneReaction] = [.stops(callID: "c"), .shows(title: "Ana", body: "Missed call", tap: "call back")]
    #expect(reactions(.telnyx, .android, .open, .fcm, data, late: 29) == rings)
    #expect(reactions(.telnyx, .android, .open, .fcm, data, late: 31) == missed)
    #expect(reactions(.telnyx, .android, .open, .seed, .fcm, data, late: 59) == rings)
    #expect(reactions(.telnyx, .android, .open, .seed, .fcm, data, late: 61) == missed)
    #expect(
      reactions(.telnyx, .android, .open, .fcm, fcm(#"{"metadata": "{\"call_id\":\"c\",\"caller_name\":5}"}"#)) == [
        .ignores
      ])
    #expect(reactions(.telnyx, .android, .open, .fcm, fcm(#"{"a": "b"}"#)) == [.ignores])
  }

  // MARK: CommEazy

  @Test func `CommEazy takes the text false for a yes, and a tap without gcm.message_id opens no chat`() {
    let missed = #"{"type": "missed_call", "callId": "c", "callerName": "Jan", "isVideo": "false"}"#
    #expect(
      reactions(.commeazy, .android, .killed, .seed, .fcm, fcm(missed))
        == [.shows(title: "Jan", body: "missedVideoCall", tap: "call history")])
    let alert = #""aps": {"alert": {"title": "Jan", "body": "x"}}, "type": "message", "chatId": "7""#
    #expect(
      reactions(.commeazy, .ios, .killed, .seed, .apns, "{\(alert)}") == [.shows(title: "Jan", body: "x", tap: "app")])
    #expect(
      reactions(.commeazy, .ios, .killed, .seed, .apns, #"{\#(alert), "gcm.message_id": "1"}"#)
        == [.shows(title: "Jan", body: "x", tap: "chat 7")])
    #expect(reactions(.commeazy, .android, .killed, .today, .fcm, fcm(missed)) == [.ignores])
  }

  // MARK: Systems

  @Test(arguments: PhoneSystem.allCases) func `normal priority starts no app that is not open`(system: PhoneSystem) {
    for state in [PhoneState.background, .killed] {
      #expect(reactions(system, .android, state, .fcm, fcm(#"{"type": "call"}"#, priority: "NORMAL")) == [.ignores])
    }
  }
}
