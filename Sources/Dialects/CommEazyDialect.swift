// CommEazy: one router for calls and messages. No message text ever travels in a push.
//
// `isVideo` is a boolean over APNs. Over FCM all values are strings, so it is `true` or missing: the app would treat the string
// `false` as true. react-native-firebase passes a tap on an APNs alert to the app only with `gcm.message_id`. Only the
// categories `message` and `missed_call` have actions.
//
// The app's document passes `callId` to CallKit, which accepts only a UUID. Any other id is replaced by a UUID, only in the VoIP push:
// FCM has no CallKit, so the call keeps its id. On Android only an app in the foreground shows a group invitation, so the system does.

extension ShippedDialects {
  /// Each push gets a random UUID (AppDelegate.mm:306).
  static let commeazyRingsTwice = true

  static let commeazy = #"""
    {
      "apns": {
        "invite": {
          "type": "${callType}",
          "isVideo": "${isVideo:json}",
          \#(caller),
          "callId": "${callUuid}",
          \#(DialectFragments.sent)
        },
        "missed_call": {
          "aps": \#(DialectFragments.missedCallAlert(title: "${fromName|from}")),
          "gcm.message_id": "${callId}",
          "type": "missed_call",
          "isVideo": "${isVideo:json}",
          \#(caller),
          \#(DialectFragments.stamps)
        },
        \#(chats { aps, _ in #""aps": \#(aps), "gcm.message_id": "${callId}""# })
      },
      "fcm": {
        "invite": {
          "type": "${callType}",
          "isVideo": "${isVideo?'true'}",
          \#(caller),
          \#(DialectFragments.stamps)
        },
        "cancel": {
          "type": "call_cancelled",
          \#(DialectFragments.callCancelled),
          \#(DialectFragments.push(aps: DialectFragments.endedAlert(title: "${fromName|from}")))
        },
        "missed_call": {
          \#(DialectFragments.missedCallData(title: "${fromName|from}")),
          "isVideo": "${isVideo?'true'}",
          \#(caller),
          \#(DialectFragments.stamps)
        },
        \#(chats { DialectFragments.push(aps: $0, android: $1) })
      }
    }
    """#

  private static let caller = #"""
    "callerJid": "${from}", "callerName": "${fromName|from}"
    """#

  private static let sender = #"""
    "senderJid": "${from}", "senderName": "${fromName|from}"
    """#

  private static let group = #"""
    "chatId": "${chatId|payload.groupId}",
    "groupId": "${payload.groupId|chatId}",
    "groupName": "${payload.groupName?}"
    """#

  /// Messages, group messages and invitations. APNs and FCM use the same keys.
  /// - Parameter shown: makes the visible members from what an iPhone shows and what Android shows; nil if the app shows it on Android.
  private static func chats(_ shown: (_ aps: String, _ android: String?) -> String) -> String {
    let message = alert("newMessageText", category: "message", thread: "${chatId}")
    let groupMessage = alert("newGroupMessageText", category: "message", thread: groupThread)
    let invitation = alert("groupInvitationText", subtitle: "${payload.groupName?}", thread: groupThread)
    return #"""
      "message": {\#(shown(message, nil)), "type": "message", "chatId": "${chatId}", \#(sender), \#(DialectFragments.stamps)},
      "group_message": {
        \#(shown(groupMessage, nil)), "type": "group_message", \#(group), \#(sender), \#(DialectFragments.stamps)
      },
      "group_invite": {
        \#(shown(invitation, invitationOnAndroid)), "type": "group_invite", \#(group), \#(sender), \#(DialectFragments.stamps)
      }
      """#
  }

  /// Like the app's own notification: the group is the title, in the channel of the app's document.
  private static let invitationOnAndroid = #"""
    {"title": "${payload.groupName|fromName|from}", "body": "${groupInvitationText}", "channel_id": "groups", \#(DialectFragments.tag)}
    """#

  private static let groupThread = "${chatId|payload.groupId}"

  private static func alert(
    _ text: String, subtitle: String? = nil, category: String? = nil, thread: String
  ) -> String {
    DialectFragments.alert(
      title: "${fromName|from}", subtitle: subtitle, text: "${\(text)}", category: category, thread: thread,
      extra: DialectFragments.badge)
  }
}
