// Apps built on react-native-twilio-phone: the SDK on Android reads the FCM data, the app on iOS maps twi_call_sid to CallKit.

extension ShippedDialects {
  static let twilio = #"""
    {
      "apns": {"invite": \#(callInvite)},
      "fcm": {"invite": \#(callInvite)},
      "expo": {
        "invite": {"_contentAvailable": true, "data": \#(callInvite)},
        "invite.ios": {
          "title": "${fromName|from}",
          "body": "Incoming call",
          "sound": "default",
          "_contentAvailable": true,
          "data": \#(callInvite)
        }
      }
    }
    """#

  private static let callInvite = #"""
    {
      "twi_message_type": "twilio.voice.call",
      "twi_call_sid": "${callId}",
      "twi_from": "${fromName|from}",
      "twi_to": "${metadata.to|userId}",
      "callId": "${callId}",
      "timestamp": "${timestamp}",
      "expiresAt": "${expiresAt}",
      "seq": "${seq}"
    }
    """#
}
