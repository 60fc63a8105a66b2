// CommEazy: one router for calls and messages. No message text ever travels in a push.
//
// `isVideo` is a boolean over APNs; over FCM, where all is text, it is `true` or not there, because the app would take the text
// `false` for a yes. react-native-firebase hands a tap on an APNs alert to the app only with `gcm.message_id`. Only the
// categories `message` and `missed_call` have actions.
//
// The plan hands `callId` to CallKit, which takes nothing but a UUID. What is none becomes one in the VoIP push alone: over FCM, where
// no CallKit is, the call has its own id. On Android nobody shows an invitation to a group but the app in front; so the system does.

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

  /// Messages, group messages and invitations: the same keys over both, and what is shown of them.
  /// - Parameter shown: how, of what an iPhone shows, and of what Android shows by itself; nil where the app does.
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

  /// As the app's own: the group above, in the plan's channel.
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
