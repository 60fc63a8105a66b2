// CommEazy: one router for calls and messages. No message text ever travels in a push.

extension ShippedDialects {
  static let commeazy = #"""
    {
      "apns": {
        "invite": {
          "type": "${callType}",
          "callId": "${callId}",
          "callerJid": "${from}",
          "callerName": "${fromName|from}",
          "isVideo": "${isVideo:json}",
          "timestamp": "${timestamp}",
          "expiresAt": "${expiresAt}",
          "seq": "${seq}"
        }
      },
      "fcm": {
        "invite": {
          "type": "${callType}",
          "callId": "${callId}",
          "callerJid": "${from}",
          "callerName": "${fromName|from}",
          "isVideo": "${isVideo}",
          "timestamp": "${timestamp}",
          "expiresAt": "${expiresAt}",
          "seq": "${seq}"
        }
      }
    }
    """#
}
