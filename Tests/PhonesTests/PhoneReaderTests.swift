// The readers of the simulated phones: hand-written pushes, valid and invalid, and what each app's source code does with them.

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

  private static let uuid = "7d4e3a52-53cb-4a4e-9f0c-5d8a2f9d1c11"

  @Test(arguments: PhoneSystem.allCases, PhoneVariant.allCases)
  func `every VoIP push rings or crashes the app, except Telnyx's own end of a call`(
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

  @Test(arguments: PhoneVariant.allCases) func `a cancel with the type of the call rings again`(variant: PhoneVariant) {
    let cancel = #"{"type": "intercom_call", "action": "call_cancelled", "callId": "c", "from": "d"}"#
    let body = #"{"callId": "c", "body": "{\"type\":\"intercom_call\",\"callId\":\"c\",\"from\":\"d\"}"}"#
    let rings: [PhoneReaction] = [.rings(PhoneRing(callID: "c", caller: "Porteiro"))]
    for state in [PhoneState.background, .killed] {
      #expect(
        reactions(.porteiro, .android, state, variant, .expo, #"{"data": \#(cancel), "priority": "high"}"#) == rings)
      #expect(reactions(.porteiro, .android, state, variant, .fcm, fcm(body)) == rings)
    }
  }

  @Test func `the app's schema ignores a call with a null, a number, or a flat type without from`() {
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

  /// In an open app, expo-notifications uses `body` as the data of the content.
  @Test(arguments: [(PhoneState.open, "c"), (.background, "forged"), (.killed, "forged")])
  func `Porteiro's background task looks for a call in dataString before body`(state: PhoneState, found: String) {
    func text(_ id: String) -> String {
      #"{\"type\":\"intercom_call\",\"callId\":\"\#(id)\",\"from\":\"d\",\"fromName\":\"Ana\"}"#
    }
    let data = #"{"dataString": "\#(text("forged"))", "body": "\#(text("c"))"}"#
    #expect(
      reactions(.porteiro, .android, state, .fcm, fcm(data)) == [.rings(PhoneRing(callID: found, caller: "Ana"))])
  }

  @Test func `a push that Expo turns into a notification does not ring, and is blank without a text`() {
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

  @Test
  func `Porteiro's open app crashes on a call's alert whose id is no UUID, unless it has another type`() {
    func expo(_ type: String, _ id: String) -> String {
      #"{"title": "Ana", "body": "x", "data": {"type": "\#(type)", "callId": "\#(id)", "from": "d", "fromName": "Ana"}}"#
    }
    let shows = PhoneReaction.shows(title: "Ana", body: "x", tap: "app")
    #expect(reactions(.porteiro, .ios, .open, .expo, expo("intercom_call", "call-4")) == [.crashes])
    #expect(reactions(.porteiro, .ios, .killed, .expo, expo("intercom_call", "call-4")) == [shows])
    #expect(reactions(.porteiro, .ios, .open, .expo, expo("intercom_call_alert", "call-4")) == [shows])
    #expect(
      reactions(.porteiro, .ios, .open, .expo, expo("intercom_call", Self.uuid)) == [
        .rings(PhoneRing(callID: Self.uuid, caller: "Ana"))
      ])
  }

  @Test func `Porteiro's category gives the alert of a call buttons, if Expo sent it`() {
    func alert(_ members: String, type: String = "intercom_call") -> String {
      let data = #"{"type": "\#(type)", "callId": "\#(Self.uuid)", "from": "d", "fromName": "Ana"}"#
      return #"{"title": "Ana", "body": "x", \#(members)"data": \#(data)}"#
    }
    func tap(_ leadsTo: String) -> [PhoneReaction] { [.shows(title: "Ana", body: "x", tap: leadsTo)] }
    let call = "the call if iOS woke the app, as do its buttons Answer and Decline"
    #expect(reactions(.porteiro, .ios, .killed, .expo, alert(#""categoryId": "call", "#)) == tap(call))
    #expect(reactions(.porteiro, .ios, .killed, .expo, alert("")) == tap("app"))
    #expect(
      reactions(.porteiro, .ios, .killed, .expo, alert(#""categoryId": "call", "#, type: "intercom_call_alert"))
        == tap("app"))
  }

  @Test(arguments: PhoneState.allCases)
  func `on an iPhone Porteiro can answer only a call whose id is a UUID in lowercase`(state: PhoneState) {
    for (id, canBeAnswered) in [(Self.uuid, true), (Self.uuid.uppercased(), false), ("call-4", false)] {
      #expect(
        reactions(.porteiro, .ios, state, .voip, #"{"callId": "\#(id)", "callerName": "Ana", "from": "d"}"#) == [
          // CallKit is given no name.
          .rings(PhoneRing(callID: id, caller: "d", canBeAnswered: canBeAnswered))
        ])
    }
    let alert =
      #"{"title": "Ana", "body": "x", "data": {"type": "intercom_call", "callId": "\#(Self.uuid.uppercased())", "from": "d"}}"#
    #expect(
      reactions(.porteiro, .ios, .open, .expo, alert) == [
        .rings(PhoneRing(callID: Self.uuid.uppercased(), caller: "Doorman", canBeAnswered: false))
      ])
  }

  @Test(arguments: PhoneVariant.allCases)
  func `on an iPhone Porteiro in the background rings over Expo if iOS wakes it, a killed app does not`(
    variant: PhoneVariant
  ) {
    let alert = #""title": "Ana", "body": "x", "#
    func expo(_ id: String, _ shown: String, type: String = "intercom_call") -> String {
      let data = #"{"type": "\#(type)", "callId": "\#(id)", "from": "d", "fromName": "Ana"}"#
      return #"{\#(shown)"_contentAvailable": true, "data": \#(data)}"#
    }
    func does(_ state: PhoneState, _ json: String) -> [PhoneReaction] {
      reactions(.porteiro, .ios, state, variant, .expo, json)
    }
    let shows = PhoneReaction.shows(title: "Ana", body: "x", tap: "app")
    let rings = PhoneReaction.rings(PhoneRing(callID: Self.uuid, caller: "Ana", isOnlyIfWoken: true))
    #expect(does(.background, expo(Self.uuid, alert)) == [shows, rings])
    #expect(does(.background, expo(Self.uuid, "")) == [rings])
    #expect(does(.killed, expo(Self.uuid, alert)) == [shows])
    #expect(does(.killed, expo(Self.uuid, "")) == [.ignores])
    #expect(does(.background, expo("call-4", "")) == [.crashes])
    #expect(does(.background, expo(Self.uuid, "", type: "intercom_call_end")) == [.wakes])
    // An alert that does not wake the app.
    let silent = expo(Self.uuid, alert).replacing(#""_contentAvailable": true, "#, with: "")
    #expect(does(.background, silent) == [shows])
  }

  @Test func `Porteiro's Android app plays its ring tone for a notification in most of its channels`() {
    func channel(
      _ message: String, over channel: PhonePush.Channel, on platform: PhonePlatform = .android
    ) -> PhoneChannel? {
      Phone(.porteiro, platform, .killed).channel(of: push(channel, message))
    }
    func expo(_ id: String) -> String { #"{"title": "Ana", "body": "x", "channelId": "\#(id)", "data": {}}"# }
    for id in ["default", "visitor", "delivery", "emergency", "call"] {
      let expected = PhoneChannel(id: id, playsRingTone: id != "call")
      #expect(channel(expo(id), over: .expo) == expected)
      #expect(channel(fcm(#"{"title": "Ana", "message": "x", "channelId": "\#(id)"}"#), over: .fcm) == expected)
    }
    #expect(channel(expo("missed"), over: .expo) == .fallback)
    #expect(channel(fcm(#"{"title": "Ana", "message": "x"}"#), over: .fcm) == .fallback)
    #expect(channel(fcm(#"{"channelId": "call"}"#), over: .fcm) == nil)
    #expect(channel(expo("call"), over: .expo, on: .ios) == nil)
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
    #expect(reactions(.twilio, .ios, .killed, .voip, #"{"twi_from": null}"#) == [.crashes])
    let null = whole.dropLast() + #", "twi_params": null}"#
    #expect(
      reactions(.twilio, .ios, .killed, .voip, String(null))
        == [.rings(PhoneRing(callID: "CA", caller: "ana", canBeAnswered: false))])
  }

  // MARK: Enclosure

  @Test func `Enclosure crashes without a room, and without the caller's id records the call under the callee`() {
    #expect(reactions(.enclosure, .ios, .killed, .voip, #"{"name": "Layla", "roomId": ""}"#) == [.crashes])
    let call = #""name": "Layla", "roomId": "r", "receiverId": "omar", "bodyKey": "Incoming video call""#
    #expect(
      reactions(.enclosure, .ios, .killed, .voip, "{\(call)}")
        == [.rings(PhoneRing(callID: "r", caller: "Layla", isVideo: true, filedUnder: "omar"))])
    #expect(
      reactions(.enclosure, .ios, .killed, .voip, #"{\#(call), "uid": "layla"}"#)
        == [.rings(PhoneRing(callID: "r", caller: "Layla", isVideo: true, filedUnder: "layla"))])
  }

  @Test func `a tap on Enclosure's alert with content-available does nothing, and data alone is not shown`() {
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

  @Test func `Enclosure's open app takes a chat for a call if its text is that of a call, and shows nothing`() {
    for (text, isShown) in [("Hello", true), ("Incoming voice call", false), ("Incoming video call", false)] {
      let aps = #"{"alert": {"title": "Layla", "body": "\#(text)"}, "category": "CHAT_MESSAGE"}"#
      let data = #"{"bodyKey": "chatting", "friendUidKey": "7", "name": "Layla"}"#
      let chat = fcm(data, more: #", "apns": {"payload": {"aps": \#(aps)}}"#)
      let made: PhoneReaction = isShown ? .shows(title: "Layla", body: text, tap: "chat 7") : .ignores
      #expect(reactions(.enclosure, .ios, .open, .fcm, chat) == [made])
    }
  }

  @Test func `Enclosure's Android app ends at a chat or a call that lacks a member, and knows its own missed calls`() {
    func reacts(_ data: String) -> [PhoneReaction] { reactions(.enclosure, .android, .killed, .fcm, fcm(data)) }
    let chat = #""bodyKey": "chatting", "msgKey": "New message", "user_nameKey": "Layla", "friendUidKey": "7""#
    #expect(reacts("{\(chat)}") == [.crashes])
    #expect(
      reacts(#"{\#(chat), "uidPower": "7", "selectionCount": "1"}"#)
        == [.shows(title: "Layla", body: "New message", tap: "chat 7")])
    let call =
      #""bodyKey": "Incoming voice call", "name": "Layla", "receiverId": "8", "roomId": "r", "uid": "7", "username": "7""#
    #expect(reacts("{\(call)}") == [.crashes])
    #expect(
      reacts(#"{\#(call), "device_type": "1"}"#)
        == [.rings(PhoneRing(callID: "r", caller: "Layla", filedUnder: "7"))])
    #expect(
      reacts(#"{"bodyKey": "voiceMissCall", "name": "Layla"}"#)
        == [.shows(title: "Layla", body: "Missed Call", tap: "app")])
    #expect(reacts(#"{"bodyKey": "Missed voice call", "name": "Layla"}"#) == [.ignores])
  }

  // MARK: Telnyx

  @Test func `Telnyx crashes on an id that is no UUID or without metadata, and records each "Missed call!"`() {
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

  @Test func `Telnyx shows a late call as missed, and ignores a call whose metadata has other values than texts`() {
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

  @Test func `an Android phone of Telnyx finds a call's id in dialogParams only if that is an object`() {
    for (params, isObject) in [
      (#"{"custom_headers":[{"name":"X-RTC-CALLID","value":"c"}]}"#, true), (#""{}""#, false),
      (#"{"custom_headers":"[]"}"#, false),
    ] {
      let text = #"{"caller_name":"Ana","dialogParams":\#(params)}"#.replacing("\"", with: "\\\"")
      let data = fcm(#"{"metadata": "\#(text)"}"#)
      #expect(
        reactions(.telnyx, .android, .open, .fcm, data) == [
          isObject ? .rings(PhoneRing(callID: "c", caller: "Ana")) : .ignores
        ])
    }
  }

  @Test func `Telnyx's SDK throws if one of its own keys has another type than it expects`() {
    for (member, isRight) in [
      (#""isAnswer":"false""#, false), (#""isDecline":1"#, false), (#""voice_sdk_id":5"#, false),
      (#""isAnswer":false"#, true), (#""isDecline":null"#, true),
    ] {
      let metadata = #"{"call_id":"\#(Self.uuid)","caller_name":"Ana",\#(member)}"#
      let text = metadata.replacing("\"", with: "\\\"")
      #expect(
        reactions(.telnyx, .android, .killed, .fcm, fcm(#"{"metadata": "\#(text)"}"#))
          == [isRight ? .rings(PhoneRing(callID: Self.uuid, caller: "Ana")) : .ignores])
      #expect(
        reactions(.telnyx, .ios, .killed, .voip, #"{"metadata": \#(metadata)}"#)
          == [.rings(PhoneRing(callID: Self.uuid, caller: "Ana", canBeAnswered: isRight))])
    }
  }

  @Test func `an open Telnyx app on an iPhone shows no alert; on Android a chat rings as an empty call, or is ignored`()
  {
    let alert = #"{"aps": {"alert": {"title": "Ana", "body": "Missed call"}}}"#
    for variant in PhoneVariant.allCases {
      #expect(reactions(.telnyx, .ios, .open, variant, .apns, alert) == [.ignores])
      #expect(
        reactions(.telnyx, .ios, .killed, variant, .apns, alert) == [
          .shows(title: "Ana", body: "Missed call", tap: "app")
        ])
    }
    let chat = fcm(#"{"type": "message", "chatId": "7"}"#)
    #expect(
      reactions(.telnyx, .android, .killed, .seed, .fcm, chat) == [
        .rings(PhoneRing(callID: nil, caller: "", canBeAnswered: false))
      ])
    #expect(reactions(.telnyx, .android, .killed, .fcm, chat) == [.ignores])
  }

  // MARK: CommEazy

  @Test func `CommEazy takes the text false for true, and a tap without gcm.message_id opens no chat`() {
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

  @Test
  func `the planned CommEazy app crashes on a call id that is no UUID, and makes one up if there is none`() {
    #expect(
      reactions(.commeazy, .ios, .killed, .seed, .voip, #"{"callId": "call-4", "callerName": "Jan"}"#) == [.crashes])
    #expect(
      reactions(.commeazy, .ios, .killed, .seed, .voip, #"{"callerName": "Jan"}"#) == [
        .rings(PhoneRing(callID: nil, caller: "Jan"))
      ])
    let own = #"{"callId": "\#(Self.uuid)", "callerName": "Jan"}"#
    #expect(
      reactions(.commeazy, .ios, .open, .seed, .voip, own) == [.rings(PhoneRing(callID: Self.uuid, caller: "Jan"))])
    #expect(
      reactions(.commeazy, .ios, .killed, .today, .voip, #"{"callId": "call-4"}"#) == [
        .rings(PhoneRing(callID: nil, caller: "CommEazy", canBeAnswered: false))
      ])
  }

  @Test func `the planned CommEazy app, open on an iPhone, shows a message twice if it gets it at all`() {
    let alert =
      #""aps": {"alert": {"title": "Jan", "body": "x"}}, "type": "message", "chatId": "7", "senderName": "Jan""#
    let banner = PhoneReaction.shows(title: "Jan", body: "x", tap: "chat 7")
    let routed = PhoneReaction.shows(title: "Jan", body: "newMessage", tap: "chat 7")
    #expect(
      reactions(.commeazy, .ios, .open, .seed, .apns, #"{\#(alert), "gcm.message_id": "1"}"#) == [banner, routed])
    // Today's app does not handle taps.
    #expect(
      reactions(.commeazy, .ios, .open, .today, .apns, #"{\#(alert), "gcm.message_id": "1"}"#)
        == [.shows(title: "Jan", body: "x", tap: "app")])
    #expect(
      reactions(.commeazy, .ios, .open, .seed, .apns, "{\(alert)}") == [.shows(title: "Jan", body: "x", tap: "app")])
  }

  @Test func `a tap on a notification that Android shows by itself reaches CommEazy's app`() {
    let message =
      fcm(
        #"{"type": "group_invite", "chatId": "9"}"#
      ).dropLast()
      + #", "android": {"priority": "HIGH", "notification": {"title": "Familie", "body": "b"}}}"#
    #expect(
      reactions(.commeazy, .android, .killed, .seed, .fcm, String(message)).first
        == .shows(title: "Familie", body: "b", tap: "chat 9"))
  }

  // MARK: Pushes that arrive twice

  private func twice(
    _ system: PhoneSystem, _ platform: PhonePlatform, _ state: PhoneState, _ first: PhonePush,
    _ second: PhonePush? = nil,
    variant: PhoneVariant = .today
  ) -> [PhoneReaction] {
    var memory = PhoneMemory()
    let phone = Phone(system, platform, state, variant: variant)
    return [first, second ?? first].flatMap { phone.receives($0, remembering: &memory).reactions }
  }

  @Test func `a call that arrives twice rings once if CallKit gets its id, and twice if the app makes one up`() {
    let call = #"{"callId": "\#(Self.uuid)", "callerName": "Ana", "from": "d", "roomId": "r", "name": "Ana"}"#
    func rings(_ reactions: [PhoneReaction]) -> Int { reactions.count { if case .rings = $0 { true } else { false } } }
    #expect(rings(twice(.porteiro, .ios, .killed, push(.voip, call))) == 1)
    #expect(rings(twice(.porteiro, .ios, .killed, push(.voip, #"{"callId": "call-4", "from": "d"}"#))) == 2)
    #expect(rings(twice(.commeazy, .ios, .killed, push(.voip, call), variant: .seed)) == 1)
    #expect(rings(twice(.commeazy, .ios, .killed, push(.voip, call))) == 2)
    #expect(rings(twice(.enclosure, .ios, .killed, push(.voip, call))) == 2)
    let data = fcm(#"{"body": "{\"type\":\"intercom_call\",\"callId\":\"c\",\"from\":\"d\"}"}"#)
    #expect(rings(twice(.porteiro, .android, .killed, push(.fcm, data))) == 1)
  }

  @Test(arguments: [PhonePush.Channel.apns, .fcm, .expo])
  func `on an iPhone an alert replaces one with the same collapse id, and is shown beside any other`(
    channel: PhonePush.Channel
  ) {
    func alert(_ body: String, _ id: String) -> PhonePush {
      let aps = #"{"aps": {"alert": {"title": "Ana", "body": "\#(body)"}}}"#
      return switch channel {
      case .fcm:
        push(
          .fcm, fcm("{}", more: #", "apns": {"headers": {"apns-collapse-id": "\#(id)"}, "payload": \#(aps)}"#))
      case .expo: push(.expo, #"{"title": "Ana", "body": "\#(body)", "collapseId": "\#(id)"}"#)
      default: PhonePush(channel, message: aps.utf8, collapseID: id)!
      }
    }
    let call = PhoneReaction.shows(title: "Ana", body: "Incoming call", tap: "app")
    #expect(
      twice(.porteiro, .ios, .killed, alert("Incoming call", "c"), alert("Call ended", "c"))
        == [call, .replaces(title: "Ana", body: "Call ended", tap: "app")])
    #expect(
      twice(.porteiro, .ios, .killed, alert("Incoming call", "c"), alert("Incoming call", "d")) == [call, call])
  }

  // MARK: Systems

  @Test(arguments: PhoneSystem.allCases) func `a push of normal priority starts no app that is not open`(
    system: PhoneSystem
  ) {
    for state in [PhoneState.background, .killed] {
      #expect(reactions(system, .android, state, .fcm, fcm(#"{"type": "call"}"#, priority: "NORMAL")) == [.ignores])
    }
  }
}
