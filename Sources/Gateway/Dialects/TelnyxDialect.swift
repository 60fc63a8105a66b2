// Apps on the Telnyx Voice SDK: the call under `metadata`, over FCM as a JSON string. The SDK shows a push that comes more
// than 60 s after it was sent as a missed call; `timestamp` says when that was.

extension ShippedDialects {
  static let telnyx = #"""
    {
      "apns": {
        "invite": {
          "call_id": "${callId}",
          "metadata": \#(metadata),
          "callId": "${callId}",
          "timestamp": "${timestamp}",
          "expiresAt": "${expiresAt}",
          "seq": "${seq}"
        }
      },
      "fcm": {
        "invite": {
          "call_id": "${callId}",
          "metadata": {"$string": \#(metadata)},
          "callId": "${callId}",
          "timestamp": "${timestamp}",
          "expiresAt": "${expiresAt}",
          "seq": "${seq}"
        }
      }
    }
    """#

  private static let metadata = #"""
    {"call_id": "${callId}", "caller_name": "${fromName|from}", "caller_number": "${from}"}
    """#
}
