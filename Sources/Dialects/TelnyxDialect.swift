// Apps on the Telnyx Voice SDK: the call under `metadata`, over FCM as a JSON string. The SDK shows a push that comes more
// than 60 s after it was sent as a missed call; `timestamp` says when that was.
//
// Apps take any data push for a ringing call unless its `message` is "Missed call!": the one thing that makes them stop, so a
// cancel says it too. A chat message has no `metadata`, without which they can make no call of it.

extension ShippedDialects {
  static let telnyx = #"""
    {
      "apns": {
        "invite": {"call_id": "${callId}", "metadata": \#(metadata), \#(DialectFragments.stamps)},
        "missed_call": {
          "aps": \#(DialectFragments.missedCallAlert(title: "${fromName|from}")),
          "type": "missed_call",
          "call_id": "${callId}",
          "metadata": \#(metadata),
          \#(DialectFragments.stamps)
        },
        \#(DialectFragments.chatAlerts())
      },
      "fcm": {
        "invite": {"call_id": "${callId}", "metadata": {"$string": \#(metadata)}, \#(DialectFragments.stamps)},
        "cancel": {
          "message": "Missed call!",
          "call_id": "${callId}",
          "metadata": {"$string": \#(metadata)},
          \#(DialectFragments.callCancelled)
        },
        "missed_call": {
          "message": "Missed call!",
          \#(DialectFragments.missedCallData(title: "${fromName|from}")),
          "call_id": "${callId}",
          "metadata": {"$string": \#(metadata)},
          \#(DialectFragments.stamps)
        },
        \#(DialectFragments.chatData())
      }
    }
    """#

  private static let metadata = #"""
    {"call_id": "${callId}", "caller_name": "${fromName|from}", "caller_number": "${from}"}
    """#
}
