// Enclosure: chat and voice for iOS. The phone drops a push whose roomId is empty, so a room there must be.

extension ShippedDialects {
  static let enclosure = #"""
    {
      "apns": {"invite": \#(incomingVoiceCall)},
      "fcm": {"invite": \#(incomingVoiceCall)}
    }
    """#

  private static let incomingVoiceCall = #"""
    {
      "name": "${fromName|from}",
      "photo": "${metadata.photo|''}",
      "roomId": "${channelName|callId}",
      "receiverId": "${userId}",
      "phone": "${metadata.phone|from}",
      "bodyKey": "Incoming voice call",
      "callId": "${callId}",
      "timestamp": "${timestamp}",
      "expiresAt": "${expiresAt}",
      "seq": "${seq}"
    }
    """#
}
