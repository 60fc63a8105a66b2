// Enclosure: chat and voice for iOS. The phone drops a push whose roomId is empty, so a room there must be; `bodyKey` is what
// tells its pushes apart.

extension ShippedDialects {
  static let enclosure = #"""
    {
      "apns": {
        "invite": {"bodyKey": "Incoming voice call", \#(room)},
        "missed_call": {
          "aps": \#(DialectFragments.missedCallAlert(title: "${fromName|from}")),
          "type": "missed_call",
          "bodyKey": "Missed voice call",
          \#(room)
        },
        \#(DialectFragments.chatAlerts())
      },
      "fcm": {
        "invite": {"bodyKey": "Incoming voice call", \#(room)},
        "cancel": {
          "bodyKey": "Cancelled voice call",
          "roomId": "${channelName|callId}",
          "receiverId": "${userId}",
          \#(DialectFragments.callCancelled)
        },
        "missed_call": {
          \#(DialectFragments.missedCallData(title: "${fromName|from}")),
          "bodyKey": "Missed voice call",
          \#(room)
        },
        \#(DialectFragments.chatData())
      }
    }
    """#

  private static let room = #"""
    "name": "${fromName|from}",
    "photo": "${metadata.photo|''}",
    "roomId": "${channelName|callId}",
    "receiverId": "${userId}",
    "phone": "${metadata.phone|from}",
    \#(DialectFragments.stamps)
    """#
}
