// The parts that the templates of several shipped dialects have in common.

/// Members without braces, to be put between others, but for the whole sections at the end.
enum DialectFragments {
  /// What every push carries, so that a late phone can tell, and one with two pushes knows which is the newer.
  static let stamps = #""callId": "${callId}", \#(sent)"#

  /// The same where `callId` has another form.
  static let sent = #"""
    "timestamp": "${timestamp}",
    "expiresAt": "${expiresAt}",
    "seq": "${seq}"
    """#

  /// What every cancel says. There is none over APNs: a VoIP push must end in a call, so it cannot take one back.
  static let callCancelled = #"""
    "action": "call_cancelled",
    "reason": "${reason|'ended'}",
    \#(stamps)
    """#

  // What is shown carries who it is from, and nothing else of the payload: an alert has less room than the VoIP push that
  // rang, and what it shows stays on the lock screen for hours.

  // MARK: - Missed calls

  /// The `aps` of a missed call. Those of one caller are grouped.
  static func missedCallAlert(title: String) -> String {
    alert(title: title, text: "${missedCallText}", category: "missed_call", thread: "${from?}")
  }

  /// The FCM data of a missed call, from which the app makes its notification.
  static func missedCallData(title: String) -> String {
    data(title: title, text: "missedCallText", type: "missed_call")
  }

  /// What Expo shows of a missed call.
  static func missedCallMessage(title: String) -> String {
    message(title: title, text: "missedCallText", category: "missed_call")
  }

  // MARK: - Ended calls

  /// What turns the alert of a call that is over into "Call ended" on an iPhone, by the collapse id that both have. It makes no
  /// sound, and lights no screen. (An iPhone that rings by PushKit gets none: it has no such alert.)
  static func endedAlert(title: String) -> String {
    #"{"alert": {"title": "\#(title)", "body": "${callEndedText}"}, "interruption-level": "passive"}"#
  }

  /// The same over Expo, without `data`.
  static func endedMessage(title: String) -> String {
    #""title": "\#(title)", "body": "${callEndedText}", "interruptionLevel": "passive""#
  }

  // MARK: - Messages and group invitations

  /// The kinds that are about a chat, and the placeholder of what is shown of each.
  private static let chatKinds = [
    ("message", "newMessageText"), ("group_message", "newGroupMessageText"), ("group_invite", "groupInvitationText"),
  ]

  static let chatTitle = "${fromName|from}"

  /// The APNs templates of messages and invitations, grouped by chat.
  static func chatAlerts() -> String {
    chatSections { kind, text in
      let alert = alert(
        title: chatTitle, text: "${\(text)}", category: kind, thread: "${chatId|from}", extra: badge)
      return #"{"aps": \#(alert), "type": "\#(kind)", \#(chat(from: "from")), \#(stamps)}"#
    }
  }

  /// The FCM templates of messages and invitations.
  /// - Parameters:
  ///   - platform: `.ios` or `.android` for one of them alone.
  ///   - extra: members beside these, given the placeholder of the text that is shown.
  ///   - isShownByAndroid: where the app itself would show nothing.
  static func chatData(
    for platform: String = "", extra: ((_ text: String) -> String)? = nil, isShownByAndroid: Bool = false
  ) -> String {
    chatSections(for: platform) { kind, text in
      var extra = extra.map { $0(text) + ", " } ?? ""
      if isShownByAndroid { extra += shownByAndroid(title: chatTitle, text: text) + ", " }
      return "{\(extra)\(data(title: chatTitle, text: text, type: kind)), \(chat(from: "fromId")), \(stamps)}"
    }
  }

  /// The Expo templates of messages and invitations.
  /// - Parameter platform: `.ios` or `.android` for one of them alone.
  static func chatMessages(for platform: String = "") -> String {
    chatSections(for: platform) { kind, text in
      #"""
      {
        \#(message(title: chatTitle, text: text, category: kind)),
        "data": {"type": "\#(kind)", \#(chat(from: "from")), \#(stamps)}
      }
      """#
    }
  }

  /// One template a kind, to be put among those of a provider.
  static func chatSections(for platform: String = "", _ template: (_ kind: String, _ text: String) -> String) -> String
  {
    chatKinds.map { #""\#($0)\#(platform)": \#(template($0, $1))"# }.joined(separator: ",\n")
  }

  /// Which chat, and whose turn it was. `from` is a reserved FCM key.
  static func chat(from key: String) -> String {
    #""chatId": "${chatId?}", "\#(key)": "${from}", "fromName": "${fromName|from}""#
  }

  // MARK: - What is shown

  /// How many messages are unread, where the backend says so.
  static let badge = #""badge": "${badge?:json}""#

  /// An `aps` that is shown and heard.
  /// - Parameters:
  ///   - category: which of the app's actions stand below it; nil for none.
  ///   - extra: further members.
  static func alert(
    title: String, subtitle: String? = nil, text: String, category: String? = nil, thread: String? = nil,
    extra: String? = nil
  ) -> String {
    let shown = [("title", title), ("subtitle", subtitle), ("body", text)]
    let members = [("category", category), ("sound", "default"), ("thread-id", thread)]
    let parts = [#""alert": {\#(list(shown))}"#, list(members)] + (extra.map { [$0] } ?? [])
    return "{\(parts.joined(separator: ", "))}"
  }

  /// The `$push` of an FCM template whose alert on iPhones is this `aps`.
  /// - Parameter android: what Android shows by itself while the app is not in front; nil for nothing.
  static func push(aps: String, android: String? = nil) -> String {
    let android = android.map { #", "android": {"notification": \#($0)}"# } ?? ""
    return #""$push": {"apns": {"payload": {"aps": \#(aps)}}\#(android)}"#
  }

  /// By this Android shows a notification in the place of the same one that came before.
  static let tag = #""tag": "${callId}""#

  /// The `$push` of an FCM template that Android shows by itself while the app is not in front.
  static func shownByAndroid(title: String, text: String) -> String {
    #""$push": {"android": {"notification": {"title": "\#(title)", "body": "${\#(text)}", \#(tag)}}}"#
  }

  private static func list(_ members: [(String, String?)]) -> String {
    members.compactMap { name, value in value.map { #""\#(name)": "\#($0)""# } }.joined(separator: ", ")
  }

  static func data(title: String, text: String, type: String) -> String {
    #"""
    "type": "\#(type)",
    "title": "\#(title)",
    "body": "${\#(text)}",
    "category": "\#(type)"
    """#
  }

  private static func message(title: String, text: String, category: String) -> String {
    #"""
    "title": "\#(title)",
    "body": "${\#(text)}",
    "sound": "default",
    "channelId": "default",
    "categoryId": "\#(category)"
    """#
  }
}
