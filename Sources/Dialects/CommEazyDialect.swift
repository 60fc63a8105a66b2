// CommEazy: one router for calls and messages. No message text ever travels in a push.

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
          "type": "missed_call",
          "isVideo": "${isVideo:json}",
          \#(caller),
          \#(DialectFragments.stamps)
        },
        \#(DialectFragments.chatAlerts(sender: sender, thread: "${chatId}"))
      },
      "fcm": {
        "invite": {
          "type": "${callType}",
          "isVideo": "${isVideo}",
          \#(caller),
          \#(DialectFragments.stamps)
        },
        "cancel": {
          "type": "${callType}",
          "isVideo": "${isVideo}",
          \#(DialectFragments.callCancelled)
        },
        "missed_call": {
          \#(DialectFragments.missedCallData(title: "${fromName|from}")),
          "isVideo": "${isVideo}",
          \#(caller),
          \#(DialectFragments.stamps)
        },
        \#(DialectFragments.chatSections { kind, _ in #"{"type": "\#(kind)", \#(sender), \#(DialectFragments.stamps)}"# })
      }
    }
    """#

  private static let caller = #"""
    "callerJid": "${from}", "callerName": "${fromName|from}"
    """#

  /// The app makes its notification of a message itself, so FCM carries these alone.
  private static let sender = #"""
    "chatId": "${chatId}", "senderJid": "${from}", "senderName": "${fromName|from}"
    """#
}
