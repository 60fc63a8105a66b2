// CommEazy: one router for calls and messages. No message text ever travels in a push.
//
// `isVideo` is a boolean over APNs; over FCM, where all is text, it is `true` or not there, because the app would take the text
// `false` for a yes. react-native-firebase hands a tap on an APNs alert to the app only with `gcm.message_id`. Only the
// categories `message` and `missed_call` have actions.

extension ShippedDialects {
  static let commeazy = #"""
    {
      "apns": {
        "invite": {
          "type": "${callType}",
          "isVideo": "${isVideo:json}",
          \#(caller),
          \#(DialectFragments.stamps)
        },
        "missed_call": {
          "aps": \#(DialectFragments.missedCallAlert(title: "${fromName|from}")),
          "gcm.message_id": "${callId}",
          "type": "missed_call",
          "isVideo": "${isVideo:json}",
          \#(caller),
          \#(DialectFragments.stamps)
        },
        \#(chats { #""aps": \#($0), "gcm.message_id": "${callId}""# })
      },
      "fcm": {
        "invite": {
          "type": "${callType}",
          "isVideo": "${isVideo?'true'}",
          \#(caller),
          \#(DialectFragments.stamps)
        },
        "cancel": {"type": "call_cancelled", \#(DialectFragments.callCancelled)},
        "missed_call": {
          \#(DialectFragments.missedCallData(title: "${fromName|from}")),
          "isVideo": "${isVideo?'true'}",
          \#(caller),
          \#(DialectFragments.stamps)
        },
        \#(chats { DialectFragments.push(aps: $0) })
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

  /// Messages, group messages and invitations: the same keys over both, and what an iPhone shows of them.
  private static func chats(_ shown: (_ aps: String) -> String) -> String {
    let message = alert("newMessageText", category: "message", thread: "${chatId}")
    let groupMessage = alert("newGroupMessageText", category: "message", thread: groupThread)
    let invitation = alert("groupInvitationText", subtitle: "${payload.groupName?}", thread: groupThread)
    return #"""
      "message": {\#(shown(message)), "type": "message", "chatId": "${chatId}", \#(sender), \#(DialectFragments.stamps)},
      "group_message": {
        \#(shown(groupMessage)), "type": "group_message", \#(group), \#(sender), \#(DialectFragments.stamps)
      },
      "group_invite": {
        \#(shown(invitation)), "type": "group_invite", \#(group), \#(sender), \#(DialectFragments.stamps)
      }
      """#
  }

  private static let groupThread = "${chatId|payload.groupId}"

  private static func alert(
    _ text: String, subtitle: String? = nil, category: String? = nil, thread: String
  ) -> String {
    DialectFragments.alert(
      title: "${fromName|from}", subtitle: subtitle, text: "${\(text)}", category: category, thread: thread,
      extra: DialectFragments.badge)
  }
}
