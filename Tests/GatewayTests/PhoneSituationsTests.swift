// Every situation of every system, through the whole gateway. The phones' reactions are computed from the apps' own
// sources (Phones).
//
// Situations/SYSTEM.txt lists what each phone does, one line for each situation and phone. `judge` defines what is
// right, and what cannot be right and why. If a dialect changes, its table changes, and the difference shows what
// phones will do.

import Dialects
import Foundation
import Phones
import Simulators
import TestSupport
import Testing

@testable import Lab

@Suite("Situations of the systems, on their phones", .timeLimit(.minutes(10)))
struct PhoneSituationsTests {
  /// A user with one phone. If its platform is not known, it may be either.
  struct User {
    let name: String
    /// The members of the recipient besides `userId`.
    let members: String
    let token: [String]
    let platforms: [PhonePlatform]

    /// The recipient, for this user or for one who may have several phones.
    func recipient(of userID: String? = nil) -> String { #"{"userId": "\#(userID ?? name)", \#(members)}"# }
  }

  struct Situation {
    let name: String
    let id: String
    let kind: String
    /// Members of the payload besides the common ones.
    let payload: String
    let end: End
    /// Further recipients, some of which are invalid.
    var unusable = ""

    enum End {
      case none, hungUp, answered, declined, deadline
      /// All phones are Eva's, and she answers with one of them.
      case answeredByOne
      /// The phones with FCM are Eva's. She declines with one; or is busy, and the phone is not named.
      case declinedByEva, evaIsBusy
    }

    /// The owner of a phone, if it is not the user's own.
    func owner(_ user: User) -> String? {
      switch end {
      case .answeredByOne: "eva"
      case .declinedByEva, .evaIsBusy: user.name.hasSuffix("-fcm") ? "eva" : nil
      default: nil
      }
    }

    var isCall: Bool { ["incoming_call", "video_call"].contains(kind) }
  }

  // MARK: - The recipients

  private static func users(_ system: PhoneSystem) -> [User] {
    func fcm(_ name: String, _ platform: String?, _ platforms: [PhonePlatform]) -> User {
      let token = PhoneToken.fcm(name)
      let known = platform.map { #", "platform": "\#($0)""# } ?? ""
      return User(
        name: name, members: #""fcmToken": "\#(token)"\#(known), "locale": "en""#, token: [token],
        platforms: platforms)
    }
    func expo(_ name: String, _ platform: String?, _ platforms: [PhonePlatform]) -> User {
      let token = PhoneToken.expo(name)
      let known = platform.map { #", "platform": "\#($0)""# } ?? ""
      return User(
        name: name, members: #""pushToken": "\#(token)"\#(known), "locale": "en""#, token: [token],
        platforms: platforms)
    }
    let iPhone = User(
      name: "iphone",
      members: #""voipPushToken": "\#(PhoneToken.voip)", "apnsToken": "\#(PhoneToken.alert)", "locale": "en""#,
      token: [PhoneToken.voip, PhoneToken.alert], platforms: [.ios])
    var users = [iPhone, fcm("iphone-fcm", "ios", [.ios])]
    if system != .enclosure {
      users += [fcm("android-fcm", "android", [.android]), fcm("some-fcm", nil, [.ios, .android])]
    }
    if [.porteiro, .twilio].contains(system) {
      users += [expo("iphone-expo", "ios", [.ios]), expo("android-expo", "android", [.android])]
    }
    if system == .porteiro { users.append(expo("some-expo", nil, [.ios, .android])) }
    return users
  }

  /// The phone that Eva answers or declines with.
  private static func evasPhone(_ system: PhoneSystem) -> String {
    system == .enclosure ? "iphone-fcm" : "android-fcm"
  }

  // MARK: - The situations

  private static let situations: [Situation] = [
    Situation(name: "call", id: uuid(1), kind: "incoming_call", payload: "", end: .none),
    Situation(name: "video call", id: uuid(2), kind: "video_call", payload: "", end: .none),
    Situation(name: "hung up", id: uuid(3), kind: "incoming_call", payload: "", end: .hungUp),
    Situation(name: "answered elsewhere", id: uuid(4), kind: "incoming_call", payload: "", end: .answered),
    Situation(name: "declined", id: uuid(5), kind: "incoming_call", payload: "", end: .declined),
    Situation(
      name: "answered by one of a user's phones", id: uuid(10), kind: "incoming_call", payload: "",
      end: .answeredByOne),
    Situation(name: "one user declines", id: uuid(11), kind: "incoming_call", payload: "", end: .declinedByEva),
    Situation(name: "one user is busy", id: uuid(12), kind: "incoming_call", payload: "", end: .evaIsBusy),
    Situation(name: "missed", id: uuid(6), kind: "incoming_call", payload: "", end: .deadline),
    Situation(
      name: "nulls, numbers and extras", id: uuid(7), kind: "incoming_call",
      payload: #"""
        "apartmentNumber": 101, "buildingName": null, "channelName": 7, "callerName": null, "channel": 5, "type": "forged",
        "action": "forged", "aps": {"alert": "forged"}, "gcm.message_id": "forged", "google.x": "y", "message_type": "z",
        "notification": {"title": "forged"}, "priority": "normal", "to": "someone", "doorCode": "A1", "floor": 3, "open": true,
        "dataString": "{\"type\":\"intercom_call\",\"callId\":\"forged\",\"from\":\"forged\",\"fromName\":\"forged\"}",
        "roomId": "", "title": "forged", "metadata": {"schemaVersion": 1, "clientVersion": null, "n": 5, "isAnswer": "false", "isDecline": "false",
          "voice_sdk_id": 5, "dialogParams": {"custom_headers": [{"name": "X-RTC-CALLID", "value": "forged"}]}}
        """#, end: .none),
    Situation(name: "call id that is no UUID", id: "call-8", kind: "incoming_call", payload: "", end: .none),
    Situation(
      name: "bad tokens among good ones", id: uuid(9), kind: "incoming_call", payload: "", end: .none,
      unusable: #"""
        {"userId": "b1", "voipPushToken": "no-hex"}, {"userId": "b2", "pushToken": "fcm:raw-token-in-the-wrong-column"},
        {"userId": "b3", "fcmToken": 5}, {"userId": "b4"}, 7
        """#),
    Situation(name: "message", id: "m-1", kind: "message", payload: #""chatId": "room-7", "badge": 3"#, end: .none),
    Situation(
      name: "group message", id: "m-2", kind: "group_message",
      payload: #""chatId": "room-8", "groupId": "room-8", "groupName": "Familie""#, end: .none),
    Situation(
      name: "group invite", id: "m-3", kind: "group_invite",
      payload: #""chatId": "room-9", "groupId": "room-9", "groupName": "Familie""#, end: .none),
    Situation(name: "missed call of the backend", id: "m-4", kind: "missed_call", payload: "", end: .none),
  ]

  /// Situations whose pushes the phones get twice, from the provider, or from a gateway that does not know whether it
  /// has sent one.
  private static let twice = [
    "call": "call, its push twice", "call id that is no UUID": "call id that is no UUID, its push twice",
    "message": "message, its push twice", "missed call of the backend": "missed call, its push twice",
  ]

  /// The systems whose iPhones, if they were shown an alert of a call, are shown its end in its place.
  private static let showingEnds: Set<PhoneSystem> = [.porteiro, .enclosure, .commeazy]

  /// CallKit's id for a call whose id is not a UUID, where the app would crash with the original.
  private static let madeUUID = "d6320833-5ab8-890c-a17c-c4e34d7ab2fe"

  private static func uuid(_ number: Int) -> String {
    "7d4e3a52-53cb-4a4e-9f0c-00000000000\(String(number, radix: 16))"
  }

  /// The parameters of Twilio's webhook for a call.
  private static func twilio(_ id: String) -> String {
    #"""
    "twi_account_sid": "AC1", "twi_bridge_token": "bridge", "twi_call_sid": "CA-\#(id)", "twi_from": "client:Ana",
    "twi_message_id": "NO1", "twi_message_type": "twilio.voice.call", "twi_params": "", "twi_to": "client:bob"
    """#
  }

  /// Nulls in place of values that the dialect derives or the app does not need, and a number where the SDK requires a
  /// string.
  private static let twilioNulls =
    #""twi_account_sid": null, "twi_params": null, "twi_to": null, "twi_message_type": null, "twi_message_id": 7"#

  // MARK: - The test

  @Test("the phones do what their tables say, and that is right", arguments: PhoneSystem.allCases)
  func situations(system: PhoneSystem) async throws {
    let users = Self.users(system)
    var pushes: [AcceptedPush] = []
    try await GatewayHarness.speaking(system.dialect) { gateway in
      let helper = #"{"userId": "helper", "fcmToken": "\#(PhoneToken.fcm("helper"))", "platform": "android"}"#
      for situation in Self.situations {
        var members = [#""callId": "\#(situation.id)", "from": "ana", "fromName": "Ana""#]
        if system == .twilio, situation.isCall { members.append(Self.twilio(situation.id)) }
        if system == .twilio, situation.name.hasPrefix("nulls") { members.append(Self.twilioNulls) }
        if !situation.payload.isEmpty { members.append(situation.payload) }
        let others = situation.end == .answered ? helper : situation.unusable
        let entries = users.map { $0.recipient(of: situation.owner($0)) } + (others.isEmpty ? [] : [others])
        let all = "[\(entries.joined(separator: ", "))]"
        try await gateway.ring(
          "{\(members.joined(separator: ", "))}", all, kind: situation.kind)
        // The same call again, as a duplicate.
        if situation.isCall, situation.end == .none {
          try await gateway.ring("{\(members.joined(separator: ", "))}", all, kind: situation.kind)
        }
      }
      try await gateway.settled()
      let phone = PhoneToken.fcm(Self.evasPhone(system))
      for situation in Self.situations {
        switch situation.end {
        case .none: break
        case .deadline: try await gateway.lapse(situation.id)
        case .hungUp: try await gateway.end(situation.id)
        case .declined: try await gateway.end(situation.id, "declined")
        case .answered: try await gateway.answer(situation.id, by: "helper")
        case .answeredByOne: try await gateway.answer(situation.id, by: "eva", with: phone)
        case .declinedByEva: try await gateway.decline(situation.id, by: "eva", "declined", with: phone)
        case .evaIsBusy: try await gateway.decline(situation.id, by: "eva", "busy")
        }
      }
      try await gateway.database.wait(
        for: "select exists (select from push.outbox where state = 'missed' and kind = 'incoming_call')")
      try await gateway.settled()
      #expect(await gateway.refusals() == [:])
      pushes = await gateway.simulators.apnsProduction.accepted + gateway.simulators.fcm.accepted
      pushes += await gateway.simulators.expo.accepted
    }
    let rows = try Self.rows(system, users, pushes)
    for row in rows { Self.judge(system, row) }
    if system == .telnyx { try Self.judgeLate(pushes) }
    try Self.compare(rows, with: system)
  }

  /// SDK 4 understands a VoIP push for the end of a call. Older apps would ring, so the configuration of the app must
  /// allow it.
  @Test func `Telnyx's iPhones get a cancel over VoIP only if the app's configuration allows it`() async throws {
    for isOn in [false, true] {
      try await GatewayHarness.speaking("telnyx", hasVoIPCancel: isOn) { gateway in
        let iPhone = #"{"userId": "ida", "voipPushToken": "\#(PhoneToken.voip)", "apnsToken": "\#(PhoneToken.alert)"}"#
        let ends: [(id: String, end: () async throws -> Void)] = [
          (Self.uuid(1), { try await gateway.end(Self.uuid(1)) }),
          (Self.uuid(2), { try await gateway.end(Self.uuid(2), "declined") }),
          (Self.uuid(3), { try await gateway.answer(Self.uuid(3), by: "otto") }),
          (Self.uuid(4), { try await gateway.decline(Self.uuid(4), by: "ida", "declined") }),
          (Self.uuid(5), { try await gateway.answer(Self.uuid(5), by: "ida", with: PhoneToken.voip) }),
          ("no-uuid", { try await gateway.end("no-uuid", "declined") }),
        ]
        for (id, _) in ends {
          try await gateway.ring(#"{"callId": "\#(id)", "from": "ana", "fromName": "Ana"}"#, #"[\#(iPhone), "otto"]"#)
        }
        try await gateway.settled()
        for (_, end) in ends { try await end() }
        try await gateway.settled()
        #expect(await gateway.refusals() == [:])
        let pushes = await gateway.simulators.apnsProduction.accepted.filter { $0.token == PhoneToken.voip }
        for (id, _) in ends {
          let own = try pushes.filter { try Self.callID($0) == id }.sorted { $0.at < $1.at }
          for state in PhoneState.allCases {
            let made = try own.flatMap { try Phone(.telnyx, .ios, state).receives(#require(PhonePush($0))).reactions }
            // An id that is not a UUID is converted to one, the same for both pushes.
            let known = id == "no-uuid" ? "f88b94d4-34ad-8ee4-aac3-558ccbd61ba3" : id
            var expected: [PhoneReaction] = [.rings(PhoneRing(callID: known, caller: "Ana"))]
            // The request did not name the phone that declined. The VoIP push would go to that phone, too, which has no
            // call to report any more.
            if isOn, id != Self.uuid(4), id != Self.uuid(5) { expected.append(.stops(callID: known)) }
            #expect(made == expected, "\(id) \(state) \(isOn)")
          }
        }
      }
    }
  }

  /// CommEazy's users are UUIDs: without a name, its document shows `Onbekend`.
  @Test func `CommEazy's iPhones show the name of the app's configuration for a caller without one`() async throws {
    for (name, shown) in [("Onbekend", "Onbekend"), (nil, "jan@example.com")] as [(String?, String)] {
      try await GatewayHarness.speaking("commeazy", unknownName: name) { gateway in
        let names = ["", #", "fromName": """#, #", "fromName": " ""#, #", "fromName": null"#]
        for (number, member) in names.enumerated() {
          try await gateway.ring(
            #"{"callId": "\#(Self.uuid(number))", "from": "jan@example.com"\#(member)}"#,
            #"[{"userId": "oma", "voipPushToken": "\#(PhoneToken.voip)"}]"#)
        }
        try await gateway.settled()
        let pushes = await gateway.simulators.apnsProduction.accepted
        #expect(pushes.count == names.count)
        for push in pushes {
          let ring = PhoneRing(callID: try Self.callID(push), caller: shown)
          for state in PhoneState.allCases {
            let phone = Phone(.commeazy, .ios, state, variant: .seed)
            #expect(try phone.receives(#require(PhonePush(push))).reactions == [.rings(ring)])
          }
        }
      }
    }
  }

  @Test func `Enclosure's phones show the text of a message, if the app's configuration allows it`() async throws {
    for sends in [false, true] {
      try await GatewayHarness.speaking("enclosure", sendsMessageText: sends) { gateway in
        let text = sends ? #", "text": "See you at 8 \ud83d\ude42""# : ""
        try await gateway.ring(
          #"{"messageId": "m-1", "from": "layla", "fromName": "Layla", "chatId": "layla"\#(text)}"#,
          #"""
          [{"userId": "omar", "fcmToken": "\#(PhoneToken.fcm("omar"))", "platform": "ios", "locale": "en"},
            {"userId": "ali", "fcmToken": "\#(PhoneToken.fcm("ali"))", "platform": "android", "locale": "en"}]
          """#, kind: "message")
        try await gateway.settled()
        #expect(await gateway.refusals() == [:])
        let pushes = await gateway.simulators.fcm.accepted
        #expect(pushes.count == 2)
        let body = sends ? "See you at 8 \u{1F642}" : "New message"
        for push in pushes {
          let platform = push.token == PhoneToken.fcm("omar") ? PhonePlatform.ios : .android
          let made = try Phone(.enclosure, platform, .killed).receives(#require(PhonePush(push))).reactions
          #expect(made == [.shows(title: "Layla", body: body, tap: "chat layla")], "\(platform)")
        }
      }
    }
  }

  /// Porteiro's channels `default`, `visitor`, `delivery` and `emergency` play its ring tone; today, only `call` does not.
  @Test func `Porteiro's Android phones show notices and missed calls in the channels named for them`() async throws {
    // A call, for whoever takes the text of a message for data.
    let forged = #"{\"type\": \"intercom_call\", \"callId\": \"c\", \"from\": \"d\"}"#
    try await GatewayHarness.speaking("intercom", missedCallChannel: "call", sendsMessageText: true) { gateway in
      let phones = #"""
        [{"userId": "eva", "fcmToken": "\#(PhoneToken.fcm("eva"))", "platform": "android"},
          {"userId": "rui", "pushToken": "\#(PhoneToken.expo("rui"))", "platform": "android"}]
        """#
      for (id, text) in [("n-1", "Ana is at the gate"), ("n-2", forged)] {
        let notice = #""from": "gate", "fromName": "Visitor", "chatId": "v-7", "androidChannel": "visitor""#
        try await gateway.ring(
          #"{"messageId": "\#(id)", \#(notice), "text": "\#(text)"}"#, phones, kind: "message")
      }
      try await gateway.ring(#"{"callId": "n-3", "from": "gate", "fromName": "Gate"}"#, phones, kind: "missed_call")
      try await gateway.settled()
      #expect(await gateway.refusals() == [:])
      let pushes = await gateway.simulators.fcm.accepted + gateway.simulators.expo.accepted
      #expect(pushes.count == 6)
      for push in pushes {
        let isMissed = try Self.callID(push) == "n-3"
        for state in PhoneState.allCases {
          let phone = Phone(.porteiro, .android, state)
          let received = try #require(PhonePush(push))
          let made = phone.receives(received).reactions
          #expect(made.count == 1, "\(state) \(made)")
          #expect(made.allSatisfy { if case .shows = $0 { true } else { false } }, "\(state) \(made)")
          let channel = PhoneChannel(id: isMissed ? "call" : "visitor", playsRingTone: !isMissed)
          #expect(phone.channel(of: received) == channel)
        }
      }
    }
  }

  // MARK: - What the phones do

  struct Row: Equatable {
    var situation: String
    var user: String
    var platform: PhonePlatform
    var state: PhoneState
    var variant: PhoneVariant
    var reactions: [PhoneReaction]
    var rules: [String]
  }

  private static func rows(_ system: PhoneSystem, _ users: [User], _ pushes: [AcceptedPush]) throws -> [Row] {
    var rows: [Row] = []
    for situation in situations {
      var again: [Row] = []
      for user in users {
        let own = try pushes.filter { user.token.contains($0.token) }.filter { push in
          let id = try callID(push)
          return id == situation.id || situation.id == "call-8" && id == madeUUID
        }.sorted { $0.at < $1.at }.map { try #require(PhonePush($0)) }
        rows += Self.rows(system, user, situation.name, own)
        if let name = twice[situation.name] {
          again += Self.rows(system, user, name, own.flatMap { [$0, $0] })
        }
      }
      rows += again
    }
    return rows
  }

  private static func rows(
    _ system: PhoneSystem, _ user: User, _ situation: String, _ pushes: [PhonePush]
  ) -> [Row] {
    user.platforms.flatMap { platform in
      PhoneVariant.allCases.flatMap { variant in
        PhoneState.allCases.map { state in
          let phone = Phone(system, platform, state, variant: variant)
          var memory = PhoneMemory()
          let outcomes = pushes.map { phone.receives($0, remembering: &memory) }
          return Row(
            situation: situation, user: user.name, platform: platform, state: state, variant: variant,
            reactions: outcomes.flatMap(\.reactions), rules: outcomes.map(\.rule))
        }
      }
    }
  }

  private static func callID(_ push: AcceptedPush) throws -> String? {
    let object = try push.object()
    return (object["data"] as? [String: Any])?["callId"] as? String ?? object["callId"] as? String
  }

  // MARK: - Judging

  /// Checks what is right in every state on every phone. Exceptions name the source that makes them necessary.
  private static func judge(_ system: PhoneSystem, _ row: Row) {
    let all = row.reactions.compactMap { if case .rings(let ring) = $0 { ring } else { nil } }
    let rings = all.filter { !$0.isOnlyIfWoken }
    let woken = all.filter(\.isOnlyIfWoken)
    let shown = standing(row)
    let place = Comment(
      rawValue:
        "\(system) \(row.situation) \(row.user) \(row.platform) \(row.state) \(row.variant): \(row.reactions) \(row.rules)"
    )
    if !endsTheApp(system, row) { #expect(!row.reactions.contains(.crashes), place) } else { return }
    #expect(shown.allSatisfy { !$0.0.contains("forged") && !$0.1.contains("forged") }, place)
    if twice.values.contains(row.situation) { return judgeTwice(system, row, place) }
    let isCall = !["message", "group message", "group invite", "missed call of the backend"].contains(row.situation)
    guard isCall else {
      #expect(all.isEmpty, place)
      guard isSeen(system, row) else {
        #expect(shown.isEmpty, "it can be seen after all: \(place)")
        return
      }
      // CommEazy's own code shows the group's name for an invitation (plan, end-to-end tests).
      let isGroups = system == .commeazy && row.situation == "group invite"
      let titles = isGroups && row.platform == .android ? ["Familie"] : isGroups ? ["Ana", "Familie"] : ["Ana"]
      #expect(
        shown.count == (isShownTwice(system, row) ? 2 : 1)
          && shown.allSatisfy { shown in titles.contains { shown.0.hasPrefix($0) } }, place)
      let chats = ["message": "room-7", "group message": "room-8", "group invite": "room-9"]
      if let chat = chats[row.situation] {
        // Nothing calls onNotification in today's app (src/services/notifications.ts:214,225-240).
        let leadsTo = row.variant == .seed ? "chat \(chat)" : "app"
        if system == .commeazy { #expect(shown.allSatisfy { $0.2 == leadsTo }, place) }
        if system == .enclosure { #expect(shown.first?.2 == "chat ana", place) }
      }
      return
    }
    // The phone rings once, with the right caller and type; an iPhone that cannot ring shows the call once.
    #expect(rings.count <= 1, place)
    if canRing(system, row) {
      #expect(rings.count == 1, place)
      #expect(rings.first?.canBeAnswered == canBeAnswered(system, row), place)
      #expect(rings.first?.caller == caller(system, row), place)
      if system == .enclosure { #expect(rings.first?.filedUnder == "ana", place) }
      #expect(rings.first?.isVideo == (showsVideo(system, row) && row.situation == "video call"), place)
    } else {
      #expect(rings.isEmpty, "it can ring after all: \(place)")
    }
    #expect(woken.map(\.caller) == (ringsIfWoken(system, row) ? ["Ana"] : []), place)
    #expect(woken.allSatisfy { $0.canBeAnswered }, place)
    if !canRing(system, row), row.platform == .ios, !isBlindInFront(system, row), row.user != "some-expo" {
      guard case .shows("Ana", let body, _) = row.reactions.first, body.hasPrefix("Incoming") else {
        Issue.record("not seen: \(place)")
        return
      }
    }
    let missed = shown.filter { $0.1.hasPrefix("Missed") || $0.1.hasPrefix("missed") }
    let ended = shown.filter { $0.1 == "Call ended" }
    if canRing(system, row) { #expect(shown.count == missed.count + ended.count, place) }
    // A phone that was told of the end does not show an alert of the call any more.
    if showingEnds.contains(system), isToldOfTheEnd(system, row) || row.situation == "missed" {
      #expect(!shown.contains { $0.1.hasPrefix("Incoming") }, place)
      let isTold = row.platform == .ios && !["iphone", "some-expo"].contains(row.user)
      #expect(ended.count == (isTold && missed.isEmpty ? 1 : 0), place)
    }
    switch row.situation {
    case "missed", "hung up":
      if isSeen(system, row) { #expect(missed.count == (isShownTwice(system, row) ? 2 : 1), place) }
    default:
      // The only message that stops Telnyx's app on Android leaves an entry (notification_service.dart:245-291).
      let leavesEntry = system == .telnyx && row.platform == .android && isToldOfTheEnd(system, row)
      #expect(missed.count == (leavesEntry ? 1 : 0), place)
    }
    // A push stops the phone if it can, unless the phone is to keep ringing or is the one that the user has in hand.
    let stops = row.reactions.contains { if case .stops = $0 { true } else { false } }
    #expect(stops == isStopped(system, row), place)
    if !isToldOfTheEnd(system, row), row.situation != "missed" {
      // The phone rings or shows the call as without the end, and nothing shows the end.
      let assured = row.reactions.count - woken.count
      #expect(assured == 1 || assured == 0 && row.user == "some-expo" && woken.count == 1, place)
    }
  }

  /// What is visible at the end.
  private static func standing(_ row: Row) -> [(title: String, body: String, tap: String)] {
    var shown: [(title: String, body: String, tap: String)] = []
    for reaction in row.reactions {
      switch reaction {
      case .shows(let title, let body, let tap): shown.append((title, body, tap))
      // The system's notification comes before what the app shows in addition.
      case .replaces(let title, let body, let tap): shown[0] = (title, body, tap)
      default: break
      }
    }
    return shown
  }

  /// CommEazy in the foreground: AppDelegate.mm:122-133 shows a banner of every push, and its router (plan §1b,
  /// §3a) shows a notification of its own. Both contain what a tap needs: `gcm.message_id`, `type`, `chatId`.
  private static func isShownTwice(_ system: PhoneSystem, _ row: Row) -> Bool {
    system == .commeazy && row.variant == .seed && row.platform == .ios && row.state == .open
  }

  /// Porteiro's app, in the foreground or woken by Expo's push, passes an id that is not a UUID to CallKeep, which ends
  /// the app. A phone known to be an iPhone gets an alert instead; an Android phone needs the type that makes it a
  /// call.
  private static func endsTheApp(_ system: PhoneSystem, _ row: Row) -> Bool {
    system == .porteiro && row.situation.hasPrefix("call id that is no UUID") && row.platform == .ios
      && (row.state == .open && row.user.hasPrefix("some-") || row.state == .background && row.user == "some-expo")
  }

  /// Whether this iPhone rings in addition if iOS wakes the app: Expo's push has `content-available`, and Porteiro's
  /// task makes a call of it (services/notification/backgroundTask.ts:65-70,105,173-199).
  private static func ringsIfWoken(_ system: PhoneSystem, _ row: Row) -> Bool {
    system == .porteiro && row.platform == .ios && row.state == .background && row.user.hasSuffix("-expo")
      && !row.situation.hasPrefix("call id that is no UUID")
  }

  /// A push that arrives twice rings once if the app recognizes the call's id, and is shown once if the system
  /// recognizes it.
  private static func judgeTwice(_ system: PhoneSystem, _ row: Row, _ place: Comment) {
    let rings = row.reactions.count { if case .rings = $0 { true } else { false } }
    let isCall = row.situation.hasPrefix("call")
    let ringsAgain =
      switch system {
      case .enclosure: true  // CallKitManager.swift:108
      case .commeazy: row.variant == .today  // AppDelegate.mm:306
      case .porteiro: row.user == "iphone" && row.situation.hasPrefix("call id")  // VoipCallKitHandler.mm:91-96
      case .twilio: true  // example/ios/TwilioPhoneExample/AppDelegate.m:102, src/RNTwilioPhone.ts:207
      case .telnyx: false
      }
    let rightRings = canRing(system, row) ? (ringsAgain ? 2 : 1) : ringsIfWoken(system, row) ? 1 : 0
    #expect(rings == (isCall ? rightRings : 0), place)
    let shown = standing(row)
    if isCall {
      let isSeen =
        row.platform == .ios && !canRing(system, row) && !isBlindInFront(system, row) && row.user != "some-expo"
      #expect(shown.count == (isSeen ? 1 : 0), place)
    } else if isSeen(system, row) {
      // Over Expo, each push is another notification: a collapse id would apply to both systems, and Android would show
      // one notification for all. Each is also another one where CommEazy's or Telnyx's app shows it.
      let isReplaced =
        row.platform == .ios
        ? row.user != "some-expo" : row.user.hasSuffix("-fcm") && [.porteiro, .twilio].contains(system)
      #expect(shown.count == (isReplaced ? (isShownTwice(system, row) ? 3 : 1) : 2), place)
    }
  }

  /// Whether a push must stop this phone. Other phones learn of the end over their app's own connection.
  private static func isStopped(_ system: PhoneSystem, _ row: Row) -> Bool {
    switch (system, row.platform) {
    case (.telnyx, .android): isToldOfTheEnd(system, row) || row.situation == "missed"
    // The SDK of today's library does not accept a cancel (error 31302), and none is sent over Expo.
    case (.twilio, .android): row.variant == .seed && row.user != "android-expo" && isToldOfTheEnd(system, row)
    default: false
    }
  }

  /// Whether this phone gets a push about the end of the ringing.
  private static func isToldOfTheEnd(_ system: PhoneSystem, _ row: Row) -> Bool {
    switch row.situation {
    case "hung up", "answered elsewhere", "declined": true
    case "answered by one of a user's phones": row.user != evasPhone(system)
    case "one user declines": row.user.hasSuffix("-fcm") && row.user != evasPhone(system)
    case "one user is busy": row.user.hasSuffix("-fcm")
    default: false
    }
  }

  /// A call that Google delivers a minute late is shown as missed, by the phone's own clock.
  private static func judgeLate(_ pushes: [AcceptedPush]) throws {
    let call = try #require(
      try pushes.first { try $0.token == PhoneToken.fcm("android-fcm") && callID($0) == uuid(1) })
    for variant in PhoneVariant.allCases {
      for state in PhoneState.allCases {
        var push = try #require(PhonePush(call))
        push.secondsLate = 61
        let late = Phone(.telnyx, .android, state, variant: variant).receives(push).reactions
        #expect(late == [.stops(callID: uuid(1)), .shows(title: "Ana", body: "Missed call", tap: "call back")])
      }
    }
  }

  /// Whether a push can make this phone ring.
  private static func canRing(_ system: PhoneSystem, _ row: Row) -> Bool {
    if row.user == "iphone" { return true }
    switch (system, row.platform) {
    // In the background, iOS shows an alert and runs nothing (CLIENTS, rules). In the foreground, these two apps make a
    // call of it; the others have no handler for it: react-native-twilio-phone src/RNTwilioPhone.ts:177-201,
    // flutter-voice-sdk lib/service/ios_push_notification_handler.dart:48-54, CommEazy
    // ios/CommEazyTemp/AppDelegate.mm:122-133.
    case (.porteiro, .ios): return row.state == .open && !row.situation.hasPrefix("call id that is no UUID")
    case (.enclosure, .ios): return row.state == .open
    case (.twilio, .ios), (.telnyx, .ios), (.commeazy, .ios): return false
    // plan §5a leaves calls to CallKeep without details; today's app shows nothing
    // (src/services/notifications.ts:265-284).
    case (.commeazy, .android): return false
    // react-native-twilio-phone does not use Expo (src/RNTwilioPhone.ts:150-201).
    case (.twilio, .android): return row.user != "android-expo"
    default: return true
    }
  }

  /// The caller that the screen shows.
  private static func caller(_ system: PhoneSystem, _ row: Row) -> String {
    switch system {
    // Today's app reads no VoIP payload (CommEazy ios/CommEazyTemp/AppDelegate.mm:294-318).
    case .commeazy where row.variant == .today: "CommEazy"
    // CallKit is given `from` and no name (VoipCallKitHandler.mm:100-105).
    case .porteiro where row.variant == .today && row.user == "iphone": "ana"
    default: "Ana"
    }
  }

  /// Whether a call that rings can be answered.
  private static func canBeAnswered(_ system: PhoneSystem, _ row: Row) -> Bool {
    switch system {
    // Porteiro looks up CallKit's id in another spelling than it stores (CallKeepService.ts:274-283,342-353,
    // RNCallKeep.m:1084).
    case .porteiro: row.user != "iphone" || !row.situation.hasPrefix("call id that is no UUID")
    // The id that today's app gives to CallKit is not in its map (AppDelegate.mm:306,
    // src/services/call/callKitService.ts:329-331).
    case .commeazy: row.variant == .seed
    default: true
    }
  }

  /// Whether an iPhone's app suppresses banners in the foreground. Twilio's registers only for VoIP
  /// (src/RNTwilioPhone.ts:177-201). Telnyx's sets Firebase's presentation options only on Android
  /// (android_push_notification_handler.dart:236-240; SDK docs, its `main`), and without them the plugin shows nothing
  /// (FLTFirebaseMessagingPlugin.m, willPresentNotification).
  private static func isBlindInFront(_ system: PhoneSystem, _ row: Row) -> Bool {
    row.platform == .ios && row.state == .open && [.twilio, .telnyx].contains(system)
  }

  /// Whether this phone shows anything other than calls.
  private static func isSeen(_ system: PhoneSystem, _ row: Row) -> Bool {
    if isBlindInFront(system, row) { return false }
    let isChat = ["message", "group message", "group invite"].contains { row.situation.hasPrefix($0) }
    switch (system, row.platform) {
    // In the foreground the app shows no notifications; in the background the system does
    // (src/RNTwilioPhone.ts:101-201).
    case (.twilio, _): return row.state != .open
    // The app treats a chat as a call (SDK docs, "Handle the push notification") or ignores it
    // (notification_service.dart:155-160).
    case (.telnyx, .android): return !isChat
    // A phone that may be an Android gets no chat. It gets one push about a hang-up, the cancel, which only wakes an
    // iPhone: a second "Missed call!" would be a second entry (notification_service.dart:245-291).
    case (.telnyx, .ios): return row.user != "some-fcm" || row.situation != "hung up" && !isChat
    // Today's app shows nothing on Android. In the background, the system shows an invitation for either app.
    case (.commeazy, .android): return row.variant == .seed || row.situation == "group invite" && row.state != .open
    // expo-notifications shows Expo's own messages; in the foreground porteiroapp shows them as well
    // (notificationHandler.ts:25-52).
    default: return true
    }
  }

  private static func showsVideo(_ system: PhoneSystem, _ row: Row) -> Bool {
    switch system {
    case .enclosure: true
    // Android's call has type 0, audio (notification_service.dart:27); SDK docs do not read `isVideo`.
    case .telnyx: row.platform == .ios && row.variant == .today
    // Today's app reads no VoIP payload (AppDelegate.mm:294-318); on Android no push rings.
    case .commeazy: row.platform == .ios && row.variant == .seed
    case .porteiro, .twilio: false  // hasVideo:NO (VoipCallKitHandler.mm:103, AppDelegate.m:113)
    }
  }

  // MARK: - The tables

  private static func compare(_ rows: [Row], with system: PhoneSystem) throws {
    let file = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "Situations/\(system.rawValue).txt")
    let text = table(rows)
    if ProcessInfo.processInfo.environment["PUSH_GATEWAY_WRITE_SITUATIONS"] != nil {
      try text.write(to: file, atomically: true, encoding: .utf8)
    }
    let written = try String(contentsOf: file, encoding: .utf8)
    #expect(written == text, "write it anew with PUSH_GATEWAY_WRITE_SITUATIONS=1, and read what changed")
  }

  /// One line for all states and variants in which a phone behaves the same.
  private static func table(_ rows: [Row]) -> String {
    var lines: [String] = []
    var rest = rows[...]
    while let first = rest.first {
      let group = rest.prefix {
        $0.situation == first.situation && $0.user == first.user && $0.platform == first.platform
      }
      rest = rest.dropFirst(group.count)
      var seen: [(what: String, rows: [Row])] = []
      for row in group {
        let what = row.reactions.isEmpty ? "nothing comes" : row.reactions.map(describe).joined(separator: ", ")
        if let index = seen.firstIndex(where: { $0.what == what }) {
          seen[index].rows.append(row)
        } else {
          seen.append((what, [row]))
        }
      }
      for (what, rows) in seen {
        let variants = Set(rows.map(\.variant)).count == 2 ? "" : " (\(rows[0].variant))"
        let states = PhoneState.allCases.filter { state in rows.contains { $0.state == state } }.map(\.rawValue)
        let always = states.count == 3 ? "always" : states.joined(separator: ", ")
        lines.append("\(first.situation) | \(first.user) (\(first.platform)) | \(always)\(variants) | \(what)")
      }
    }
    return lines.joined(separator: "\n") + "\n"
  }

  private static func describe(_ reaction: PhoneReaction) -> String { reaction.description }
}
