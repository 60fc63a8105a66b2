// Apps built on react-native-twilio-phone: the SDK on Android reads the FCM data, the app on iOS maps twi_call_sid to CallKit.
// A missed call has no `twi_message_type`: it is the app's to show, and not the SDK's to handle.

extension ShippedDialects {
  static let twilio = #"""
    {
      "apns": {
        "invite": \#(callInvite),
        "missed_call": {
          "aps": \#(DialectFragments.missedCallAlert(title: "${fromName|from}")),
          "type": "missed_call",
          \#(call)
        },
        \#(DialectFragments.chatAlerts())
      },
      "fcm": {
        "invite": \#(callInvite),
        "cancel": \#(cancelledCallInvite),
        "missed_call": {\#(DialectFragments.missedCallData(title: "${fromName|from}")), \#(call)},
        \#(DialectFragments.chatData())
      },
      "expo": {
        "invite": {"_contentAvailable": true, "data": \#(callInvite)},
        "invite.ios": {
          "title": "${fromName|from}",
          "body": "Incoming call",
          "sound": "default",
          "_contentAvailable": true,
          "data": \#(callInvite)
        },
        "cancel": {"_contentAvailable": true, "data": \#(cancelledCallInvite)},
        "missed_call": {
          \#(DialectFragments.missedCallMessage(title: "${fromName|from}")),
          "data": {"type": "missed_call", \#(call)}
        },
        \#(DialectFragments.chatMessages)
      }
    }
    """#

  private static let callInvite = #"""
    {"twi_message_type": "twilio.voice.call", \#(call)}
    """#

  private static let cancelledCallInvite = #"""
    {"twi_message_type": "twilio.voice.cancel", \#(parties), \#(DialectFragments.callCancelled)}
    """#

  private static let call = #"""
    \#(parties), \#(DialectFragments.stamps)
    """#

  private static let parties = #"""
    "twi_call_sid": "${callId}", "twi_from": "${fromName|from}", "twi_to": "${metadata.to|userId}"
    """#
}
