// Parts that several shipped dialects share.

/// Members without braces, to be inserted between others. Only the last ones are whole sections.
enum DialectFragments {
  /// Members of every push, so that a phone can see that a push is late, and which of two pushes is newer.
  static let stamps = #""callId": "${callId}", \#(sent)"#

  /// The same without `callId`, for dialects where it has another form.
  static let sent = #"""
    "timestamp": "${timestamp}",
    "expiresAt": "${expiresAt}",
    "seq": "${seq}"
    """#

  /// Members of every cancel. There is none over APNs: a VoIP push must report a call, so it cannot end one.
  static let callCancelled = #"""
    "action": "call_cancelled",
    "reason": "${reason|'ended'}",
    \#(stamps)
    """#

  // A visible push contains the sender and, if the app's configuration allows it, the text of a message. It contains nothing else of the
  // payload: an alert has less room than the VoIP push, and it stays on the lock screen for hours.

  // MARK: - Missed calls

  /// The `aps` of a missed call. Missed calls from one caller are grouped.
  static func missedCallAlert(title: String) -> String {
    alert(title: title, text: "${missedCallText}", category: "missed_call", thread: "${from?}")
  }

  /// The FCM data of a missed call, from which the app makes its notification.
  static func missedCallData(title: String) -> String {
    data(title: title, text: "missedCallText", type: "missed_call")
  }

  /// What Expo shows of a missed call.
  static func missedCallMessage(title: String) -> String {
    message(title: title, text: "missedCallText", channel: "${missedCallChannel|'default'}", category: "missed_call")
  }

  /// Android's channel, which alone decides about the sound: the one of the app's configuration for missed calls, or the one that the
  /// payload of any other notification names.
  private static func channel(for text: String) -> String {
    text == "missedCallText" ? "${missedCallChannel?}" : "${payload.androidChannel?}"
  }

  /// The same in FCM data, where expo-notifications reads it (FirebaseNotificationTrigger.kt, getNotificationChannel).
  static func channelInData(for text: String) -> String { #""channelId": "\#(channel(for: text))""# }

  // MARK: - Ended calls

  /// Replaces the alert of an ended call by "Call ended" on an iPhone. Both have the same collapse id. It makes no sound and does
  /// not light the screen. (An iPhone that rings by PushKit has no such alert and gets none.)
  static func endedAlert(title: String) -> String {
    #"{"alert": {"title": "\#(title)", "body": "${callEndedText}"}, "interruption-level": "passive"}"#
  }

  /// The same over Expo, without `data`.
  static func endedMessage(title: String) -> String {
    #""title": "\#(title)", "body": "${callEndedText}", "interruptionLevel": "passive""#
  }

  // MARK: - Messages and group invitations

  /// The kinds of chat events, with the placeholders of each one's visible text.
  private static let chatKinds = [
    ("message", "messageText|newMessageText"), ("group_message", "messageText|newGroupMessageText"),
    ("group_invite", "groupInvitationText"),
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
  ///   - platform: `.ios` or `.android` for only one of them.
  ///   - extra: further members, made from the placeholder of the visible text.
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
  /// - Parameter platform: `.ios` or `.android` for only one of them.
  static func chatMessages(for platform: String = "") -> String {
    chatSections(for: platform) { kind, text in
      #"""
      {
        \#(message(title: chatTitle, text: text, channel: "${payload.androidChannel|'default'}", category: kind)),
        "data": {"type": "\#(kind)", \#(chat(from: "from")), \#(stamps)}
      }
      """#
    }
  }

  /// Members from which a service worker makes its notification. With the same tag, a browser replaces the earlier one.
  static func browserNotification(title: String, text: String, tag: String = "${callId}") -> String {
    #""title": "\#(title)", "body": "${\#(text)}", "tag": "\#(tag)""#
  }

  /// The web push templates of messages and invitations. Those of one chat replace one another.
  static func chatsInBrowser() -> String {
    chatSections { kind, text in
      let notification = browserNotification(title: chatTitle, text: text, tag: "${chatId|from}")
      return #"{"type": "\#(kind)", \#(notification), \#(chat(from: "from")), \#(stamps)}"#
    }
  }

  /// One template for each kind, to be inserted among those of a provider.
  static func chatSections(for platform: String = "", _ template: (_ kind: String, _ text: String) -> String) -> String
  {
    chatKinds.map { #""\#($0)\#(platform)": \#(template($0, $1))"# }.joined(separator: ",\n")
  }

  /// Which chat, and whose turn it was. `from` is a reserved FCM key.
  static func chat(from key: String) -> String {
    #""chatId": "${chatId?}", "\#(key)": "${from}", "fromName": "${fromName|from}""#
  }

  // MARK: - What is shown

  /// The number of unread messages, if the backend gives it.
  static let badge = #""badge": "${badge?:json}""#

  /// An `aps` with an alert and a sound.
  /// - Parameters:
  ///   - category: selects the app's actions below it; nil for none.
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
  /// - Parameter android: what Android itself shows while the app is not in the foreground; nil for nothing.
  static func push(aps: String, android: String? = nil) -> String {
    let android = android.map { #", "android": {"notification": \#($0)}"# } ?? ""
    return #""$push": {"apns": {"payload": {"aps": \#(aps)}}\#(android)}"#
  }

  /// With this tag, Android replaces the earlier copy of a notification.
  static let tag = #""tag": "${callId}""#

  /// The `$push` of an FCM template that Android itself shows while the app is not in the foreground.
  static func shownByAndroid(title: String, text: String) -> String {
    let place = #""channel_id": "\#(channel(for: text))", \#(tag)"#
    return #""$push": {"android": {"notification": {"title": "\#(title)", "body": "${\#(text)}", \#(place)}}}"#
  }

  private static func list(_ members: [(String, String?)]) -> String {
    members.compactMap { name, value in value.map { #""\#(name)": "\#($0)""# } }.joined(separator: ", ")
  }

  /// FCM data of a notification. `body` never has what a sender wrote: Porteiro's background task makes a call of JSON there.
  static func data(title: String, text: String, type: String) -> String {
    #"""
    "type": "\#(type)",
    "title": "\#(title)",
    "body": "${\#(text.replacing("messageText|", with: ""))}",
    "category": "\#(type)"
    """#
  }

  private static func message(title: String, text: String, channel: String, category: String) -> String {
    #"""
    "title": "\#(title)",
    "body": "${\#(text)}",
    "sound": "default",
    "channelId": "\#(channel)",
    "categoryId": "\#(category)"
    """#
  }
}
