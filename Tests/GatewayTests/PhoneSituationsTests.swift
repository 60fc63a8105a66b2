// Every situation of every system, through the whole gateway, judged by the readers of the apps' own sources (Phones).
//
// What each phone does stands in Situations/SYSTEM.txt, one line a situation and phone; what is right of it, and what cannot be
// right and why, is laid down in `judge`. A changed dialect changes a table, and whoever changes it reads what phones will do.

import Dialects
import Foundation
import Phones
import Simulators
import TestSupport
import Testing

@testable import Gateway

@Suite("Situations of the systems, on their phones", .serialized, .timeLimit(.minutes(3)))
struct PhoneSituationsTests {
  /// A user with one phone, which may turn out to be either where its platform is not known.
  struct User {
    let name: String
    /// The members of its entry beside `userId`.
    let members: String
    let token: [String]
    let platforms: [PhonePlatform]

    /// Its entry of `recipients`, as that of somebody who may have several phones.
    func recipient(of userID: String? = nil) -> String { #"{"userId": "\#(userID ?? name)", \#(members)}"# }
  }

  struct Situation {
    let name: String
    let id: String
    let kind: String
    /// Members of the payload beside those of all.
    let payload: String
    let end: End
    /// Others who are called, with what cannot be used.
    var unusable = ""

    enum End {
      case none, hungUp, answered, declined, deadline
      /// All phones are Eva's, who answers with one.
      case answeredByOne
      /// The phones with FCM are Eva's, who declines with one; or is busy, and nobody says where.
      case declinedByEva, evaIsBusy
    }

    /// Whose phone it is, if not its own user's.
    func owner(_ user: User) -> String? {
      switch end {
      case .answeredByOne: "eva"
      case .declinedByEva, .evaIsBusy: user.name.hasSuffix("-fcm") ? "eva" : nil
      default: nil
      }
    }

    var isCall: Bool { ["incoming_call", "video_call"].contains(kind) }
  }

  // MARK: - Who is called

  private static func users(_ system: PhoneSystem) -> [User] {
    func fcm(_ name: String, _ platform: String?, _ platforms: [PhonePlatform]) -> User {
      let token = PhoneToken.fcm(name)
      let known = platform.map { #", "platform": "\#($0)""# } ?? ""
      return User(
        name: name, members: #""fcmToken": "\#(token)"\#(known), "locale": "en""#, token: [token],
        platforms: platforms)
    }
    func expo(_ name: String, _ platform: PhonePlatform) -> User {
      let token = PhoneToken.expo(name)
      return User(
        name: name, members: #""pushToken": "\#(token)", "platform": "\#(platform.rawValue)", "locale": "en""#,
        token: [token], platforms: [platform])
    }
    let iPhone = User(
      name: "iphone",
      members: #""voipPushToken": "\#(PhoneToken.voip)", "apnsToken": "\#(PhoneToken.alert)", "locale": "en""#,
      token: [PhoneToken.voip, PhoneToken.alert], platforms: [.ios])
    var users = [iPhone, fcm("iphone-fcm", "ios", [.ios])]
    if system != .enclosure {
      users += [fcm("android-fcm", "android", [.android]), fcm("some-fcm", nil, [.ios, .android])]
    }
    if [.porteiro, .twilio].contains(system) { users += [expo("iphone-expo", .ios), expo("android-expo", .android)] }
    return users
  }

  /// The phone that Eva answers or declines with.
  private static func evasPhone(_ system: PhoneSystem) -> String {
    system == .enclosure ? "iphone-fcm" : "android-fcm"
  }

  // MARK: - What happens

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
        "dataString": "forged", "roomId": "", "title": "forged", "metadata": {"schemaVersion": 1, "clientVersion": null, "n": 5}
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

  /// Telnyx is calls alone: its app on Android takes any other data push for one, or for nothing.
  private static func situations(_ system: PhoneSystem) -> [Situation] {
    situations.filter { system != .telnyx || $0.isCall || $0.kind == "missed_call" }
  }

  private static func uuid(_ number: Int) -> String {
    "7D4E3A52-53CB-4A4E-9F0C-00000000000\(String(number, radix: 16, uppercase: true))"
  }

  /// What Twilio's webhook gives its backend for a call.
  private static func twilio(_ id: String) -> String {
    #"""
    "twi_account_sid": "AC1", "twi_bridge_token": "bridge", "twi_call_sid": "CA-\#(id)", "twi_from": "client:Ana",
    "twi_message_id": "NO1", "twi_message_type": "twilio.voice.call", "twi_params": "", "twi_to": "client:bob"
    """#
  }

  // MARK: - The test

  @Test("what the phones do is what their tables say, and what is right", arguments: PhoneSystem.allCases)
  func situations(system: PhoneSystem) async throws {
    let users = Self.users(system)
    var pushes: [AcceptedPush] = []
    try await GatewayHarness.speaking(system.dialect) { gateway in
      let helper = #"{"userId": "helper", "fcmToken": "\#(PhoneToken.fcm("helper"))", "platform": "android"}"#
      for situation in Self.situations(system) {
        var members = [#""callId": "\#(situation.id)", "from": "ana", "fromName": "Ana""#]
        if system == .twilio, situation.isCall { members.append(Self.twilio(situation.id)) }
        if !situation.payload.isEmpty { members.append(situation.payload) }
        let others = situation.end == .answered ? helper : situation.unusable
        let entries = users.map { $0.recipient(of: situation.owner($0)) } + (others.isEmpty ? [] : [others])
        let all = "[\(entries.joined(separator: ", "))]"
        try await gateway.ring(
          "{\(members.joined(separator: ", "))}", all, kind: situation.kind,
          seconds: situation.end == .deadline ? 3 : nil)
        // The same again: a duplicate.
        if situation.isCall, situation.end == .none {
          try await gateway.ring("{\(members.joined(separator: ", "))}", all, kind: situation.kind)
        }
      }
      try await gateway.settled()
      let phone = PhoneToken.fcm(Self.evasPhone(system))
      for situation in Self.situations(system) {
        switch situation.end {
        case .none, .deadline: break
        case .hungUp: try await gateway.end(situation.id)
        case .declined: try await gateway.end(situation.id, "declined")
        case .answered: try await gateway.answer(situation.id, by: "helper")
        case .answeredByOne: try await gateway.answer(situation.id, by: "eva", with: phone)
        case .declinedByEva: try await gateway.decline(situation.id, by: "eva", "declined", with: phone)
        case .evaIsBusy: try await gateway.decline(situation.id, by: "eva", "busy")
        }
      }
      let missed = "select count(*) from push.outbox where state = 'missed' and kind = 'incoming_call'"
      while try await gateway.database.value(missed) == "0" { try await Task.sleep(for: .milliseconds(50)) }
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
    for situation in situations(system) {
      for user in users {
        let own = try pushes.filter { user.token.contains($0.token) }.filter { try callID($0) == situation.id }
          .sorted { $0.at < $1.at }
        for platform in user.platforms {
          for variant in PhoneVariant.allCases {
            for state in PhoneState.allCases {
              let phone = Phone(system, platform, state, variant: variant)
              let outcomes = try own.map { phone.receives(try #require(PhonePush($0))) }
              rows.append(
                Row(
                  situation: situation.name, user: user.name, platform: platform, state: state, variant: variant,
                  reactions: outcomes.flatMap(\.reactions), rules: outcomes.map(\.rule)))
            }
          }
        }
      }
    }
    return rows
  }

  private static func callID(_ push: AcceptedPush) throws -> String? {
    let object = try push.object()
    return (object["data"] as? [String: Any])?["callId"] as? String ?? object["callId"] as? String
  }

  // MARK: - Judging

  /// What is right in every state, on every phone; and what cannot be, each with the source that forbids it.
  private static func judge(_ system: PhoneSystem, _ row: Row) {
    let rings = row.reactions.compactMap { if case .rings(let ring) = $0 { ring } else { nil } }
    let shown = row.reactions.compactMap {
      if case .shows(let title, let body, let tap) = $0 { (title, body, tap) } else { nil }
    }
    let place = Comment(
      rawValue:
        "\(system) \(row.situation) \(row.user) \(row.platform) \(row.state) \(row.variant): \(row.reactions) \(row.rules)"
    )
    #expect(!row.reactions.contains(.crashes), place)
    #expect(shown.allSatisfy { !$0.0.contains("forged") && !$0.1.contains("forged") }, place)
    let isCall = !["message", "group message", "group invite", "missed call of the backend"].contains(row.situation)
    guard isCall else {
      #expect(rings.isEmpty, place)
      guard isSeen(system, row) else { return }
      // What CommEazy's own code shows of an invitation is the group's name (seed 004, end-to-end tests).
      let title = system == .commeazy && row.platform == .android && row.situation == "group invite" ? "Familie" : "Ana"
      #expect(shown.count == 1 && shown.first?.0.hasPrefix(title) == true, place)
      let chats = ["message": "room-7", "group message": "room-8", "group invite": "room-9"]
      if let chat = chats[row.situation] {
        if system == .commeazy, row.variant == .seed { #expect(shown.first?.2 == "chat \(chat)", place) }
        if system == .enclosure { #expect(shown.first?.2 == "chat ana", place) }
      }
      return
    }
    // Rings once, for who calls, as what it is; or where an iPhone cannot ring, is seen once.
    #expect(rings.count <= 1, place)
    if canRing(system, row) {
      #expect(rings.count == 1, place)
      #expect(rings.first?.canBeAnswered == true, place)
      let callers = system == .commeazy && row.variant == .today ? ["CommEazy"] : ["Ana"]
      #expect(rings.allSatisfy { callers.contains($0.caller) }, place)
      if system == .enclosure { #expect(rings.first?.filedUnder == "ana", place) }
      if showsVideo(system, row) { #expect(rings.first?.isVideo == (row.situation == "video call"), place) }
    } else if row.platform == .ios, !(system == .twilio && row.state == .open) {
      #expect(shown.first.map { $0.0 == "Ana" && $0.1.hasPrefix("Incoming") } == true, place)
    }
    let missed = shown.filter { $0.1.hasPrefix("Missed") || $0.1.hasPrefix("missed") }
    if canRing(system, row) { #expect(shown.count == missed.count, place) }
    switch row.situation {
    case "missed", "hung up": if isSeen(system, row) { #expect(missed.count == 1, place) }
    default:
      // The one word that stops Telnyx's app on Android leaves an entry (notification_service.dart:245-291).
      let leavesEntry = system == .telnyx && row.platform == .android && isToldOfTheEnd(system, row)
      #expect(missed.count == (leavesEntry ? 1 : 0), place)
    }
    // Where a push can stop the phone: it does, unless the phone is to ring on, or the one that the person has in hand.
    let stops = row.reactions.contains { if case .stops = $0 { true } else { false } }
    #expect(stops == isStopped(system, row), place)
    if !isToldOfTheEnd(system, row), row.situation != "missed" {
      // Rung, or shown, as without the end; and nothing of it.
      #expect(row.reactions.count == 1, place)
    }
  }

  /// Whether this phone is to stop ringing by a push. Others hear of the end over their app's own connection.
  private static func isStopped(_ system: PhoneSystem, _ row: Row) -> Bool {
    switch (system, row.platform) {
    case (.telnyx, .android): isToldOfTheEnd(system, row) || row.situation == "missed"
    // Today's library has an SDK that takes no cancel (error 31302), and none comes by Expo.
    case (.twilio, .android): row.variant == .seed && row.user != "android-expo" && isToldOfTheEnd(system, row)
    default: false
    }
  }

  /// Whether this phone is to hear of what ended its ringing.
  private static func isToldOfTheEnd(_ system: PhoneSystem, _ row: Row) -> Bool {
    switch row.situation {
    case "hung up", "answered elsewhere", "declined": true
    case "answered by one of a user's phones": row.user != evasPhone(system)
    case "one user declines": row.user.hasSuffix("-fcm") && row.user != evasPhone(system)
    case "one user is busy": row.user.hasSuffix("-fcm")
    default: false
    }
  }

  /// A call that Google hands over a minute late is a missed one, by the phone's own clock.
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
    // In front, these two make a call of an alert; behind, iOS shows it and runs nothing (CLIENTS, rules).
    case (.porteiro, .ios), (.enclosure, .ios): return row.state == .open
    case (.twilio, .ios), (.telnyx, .ios), (.commeazy, .ios): return false
    // seed 004 §5a leaves calls to CallKeep without saying how; today's app shows nothing (src/services/notifications.ts:265-284).
    case (.commeazy, .android): return false
    // react-native-twilio-phone does not use Expo (src/RNTwilioPhone.ts:150-201).
    case (.twilio, .android): return row.user != "android-expo"
    default: return true
    }
  }

  /// Whether anything but a call can be seen on this phone.
  private static func isSeen(_ system: PhoneSystem, _ row: Row) -> Bool {
    switch (system, row.platform) {
    // In front the app has no notifications; behind, the system shows them (src/RNTwilioPhone.ts:101-201).
    case (.twilio, _): return row.state != .open
    // A phone that may be an Android is told of a hang-up once, by the cancel, which only wakes an iPhone.
    case (.telnyx, .ios): return row.user != "some-fcm" || row.situation != "hung up"
    // Today's app shows nothing on Android; its document has no invitations behind the app (seed 004 §5a).
    case (.commeazy, .android):
      return row.variant == .seed && (row.state == .open || row.situation != "group invite")
    // expo-notifications shows Expo's own messages; in front porteiroapp shows them, too (notificationHandler.ts:25-52).
    default: return true
    }
  }

  private static func showsVideo(_ system: PhoneSystem, _ row: Row) -> Bool {
    switch system {
    case .enclosure: true
    case .telnyx: row.platform == .ios && row.variant == .today
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

  /// One line for all states and variants in which a phone does the same.
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
