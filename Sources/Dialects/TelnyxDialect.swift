// Apps on the Telnyx Voice SDK: the call under `metadata`, over FCM as a JSON string whose values are strings. What the backend's
// own metadata has stands there, too: the answer connects to the instance of Telnyx that it names.
//
// The iPhone app makes a UUID of `metadata.call_id` and ends when it is none: what is no UUID is left out there. Apps take any data
// push for a ringing call unless its `message` is "Missed call!": the one thing that makes them stop, so a cancel says it.
// Each leaves an entry, so an Android phone that was told by a cancel hears of no missed call. A chat message has no
// `metadata`, without which they can make no call of it.

extension ShippedDialects {
  static let telnyx = #"""
    {
      "apns": {
        "invite": {
          "call_id": "${callId}",
          "isVideo": "${isVideo:json}",
          "metadata": \#(objectMetadata),
          \#(DialectFragments.stamps)
        },
        "missed_call": {
          "aps": \#(DialectFragments.missedCallAlert(title: "${fromName|from}")),
          "type": "missed_call",
          "call_id": "${callId}",
          "metadata": {"call_id": "${callId}", \#(caller)},
          \#(DialectFragments.stamps)
        },
        \#(DialectFragments.chatAlerts())
      },
      "fcm": {
        "invite": {
          "call_id": "${callId}",
          "isVideo": "${isVideo?'true'}",
          "metadata": {"$string": \#(textMetadata)},
          \#(DialectFragments.stamps)
        },
        "cancel": {
          "message": "Missed call!",
          "call_id": "${callId}",
          "metadata": {"$string": {"call_id": "${callId}", \#(caller)}},
          \#(DialectFragments.callCancelled)
        },
        "missed_call": {"$push": {"after_cancel": false}, \#(missedCall)},
        "missed_call.ios": {\#(missedCall)},
        \#(DialectFragments.chatData())
      }
    }
    """#

  private static let missedCall = #"""
    "message": "Missed call!",
    \#(DialectFragments.missedCallData(title: "${fromName|from}")),
    "call_id": "${callId}",
    "metadata": {"$string": {"call_id": "${callId}", \#(caller)}},
    \#(DialectFragments.stamps)
    """#

  private static let objectMetadata = #"""
    {"call_id": "${callId|metadata.call_id?:uuid}", \#(caller), "$metadata": "others"}
    """#

  private static let textMetadata = #"""
    {"call_id": "${callId}", \#(caller), "$metadata": "texts"}
    """#

  private static let caller = #"""
    "caller_name": "${fromName|from}", "caller_number": "${from}"
    """#
}
