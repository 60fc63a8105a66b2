// Apps built on react-native-twilio-phone: the SDK on Android reads the FCM data, the app on iOS maps twi_call_sid to CallKit.
//
// Members that the backend got from Twilio's call notification are passed on unchanged and take precedence over derived ones.
// Without `twi_bridge_token` the SDK ignores a push on Android, and an iPhone cannot answer. A missed call has no
// `twi_message_type`, so the SDK does not treat it as a call. The library passes all data to the SDK, so the system shows what is
// visible.

extension ShippedDialects {
  /// Each push gets a random UUID (example/ios/TwilioPhoneExample/AppDelegate.m:102, src/RNTwilioPhone.ts:207).
  static let twilioRingsTwice = true

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
        "missed_call": {
          \#(DialectFragments.missedCallData(title: "${fromName|from}")),
          \#(call),
          \#(DialectFragments.shownByAndroid(title: "${fromName|from}", text: "missedCallText"))
        },
        \#(DialectFragments.chatData(isShownByAndroid: true))
      },
      "expo": {
        "invite": {"_contentAvailable": true, "data": \#(callInvite)},
        "invite.ios": {
          "title": "${fromName|from}",
          "body": "${incomingCallText}",
          "sound": "default",
          "_contentAvailable": true,
          "data": \#(callInvite)
        },
        "cancel": {"_contentAvailable": true, "data": \#(cancelledCallInvite)},
        "missed_call": \#(missedCallMessage),
        "missed_call.ios": \#(missedCallMessage),
        \#(DialectFragments.chatMessages()),
        \#(DialectFragments.chatMessages(for: ".ios"))
      }
    }
    """#

  /// On iPhones it replaces an earlier copy of itself.
  private static let missedCallMessage = #"""
    {\#(DialectFragments.missedCallMessage(title: "${fromName|from}")), "data": {"type": "missed_call", \#(call)}}
    """#

  private static let callInvite = #"""
    {
      "twi_message_type": "${payload.twi_message_type|'twilio.voice.call'}",
      \#(call),
      "fromName": "${fromName|from}",
      "$payload": "twi_*"
    }
    """#

  private static let cancelledCallInvite = #"""
    {
      "twi_message_type": "twilio.voice.cancel",
      \#(parties),
      \#(DialectFragments.callCancelled),
      "$payload": "twi_*"
    }
    """#

  private static let call = #"""
    \#(parties), \#(DialectFragments.stamps)
    """#

  /// `twi_from` is an identity. The app shows it without `client:`.
  private static let parties = #"""
    "twi_call_sid": "${payload.twi_call_sid|callId}",
    "twi_from": "${payload.twi_from|from}",
    "twi_to": "${payload.twi_to|metadata.to|userId}"
    """#
}
