// Apps on the Telnyx Voice SDK: the call is under `metadata`, over FCM as a JSON string. The backend's own metadata is there, too,
// because the answer connects to the Telnyx instance that it names. It keeps its types: Android apps look for a list of objects in
// `dialogParams.custom_headers` (lib/service/notification_service.dart:81-91). The SDK accepts its own six names only with their types
// (packages/telnyx_webrtc/lib/model/push_notification.dart:25-30): strings, and booleans that the app itself sets when a call is
// answered or declined. So the backend's members with these names are left out.
//
// The iPhone app makes a UUID of `metadata.call_id` and crashes if it is not one. Without an id it makes a new one for each push, which
// a cancel could not name. So an id that is not a UUID is replaced by a UUID derived from it. The SDK uses it only for its own time-out
// (packages/telnyx_webrtc/lib/telnyx_client.dart:1530).
//
// Android apps treat every data push as a ringing call unless its `message` is "Missed call!". Nothing else stops them, so a cancel has
// that message. Each such push leaves an entry, so an Android phone that got a cancel gets no missed call. Chats are only for iPhones:
// the document's Android handler shows a call for every push (SDK docs, "Handle the push notification"), today's shows nothing. The
// cancel over APNs is a VoIP push, which SDK 4 treats as the end of a call (ios/Runner/AppDelegate.swift:106-126). It is sent only for
// apps with `voip_cancel`.

extension ShippedDialects {
  /// The phone uses the call's id (AppDelegate.swift:143-151, notification_service.dart:165-168), over VoIP as a UUID.
  static let telnyxRingsTwice = false

  static let telnyx = #"""
    {
      "apns": {
        "invite": {
          "call_id": "${callId}",
          "isVideo": "${isVideo:json}",
          "metadata": \#(voipMetadata),
          \#(DialectFragments.stamps)
        },
        "cancel": {
          "$push": {"type": "voip"},
          "aps": {"alert": "Missed call!"},
          "metadata": \#(voipMetadata),
          \#(DialectFragments.callCancelled)
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
          "metadata": {"$string": \#(fcmMetadata)},
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
        \#(DialectFragments.chatData(for: ".ios"))
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

  private static let voipMetadata = #"""
    {"call_id": "${callId|metadata.call_id|callUuid?:uuid}", \#(caller), \#(own), "$metadata": "others"}
    """#

  private static let fcmMetadata = #"""
    {"call_id": "${callId}", \#(caller), \#(own), "$metadata": "others"}
    """#

  private static let own = #"""
    "voice_sdk_id": "${metadata.voice_sdk_id?}", "isAnswer": null, "isDecline": null
    """#

  private static let caller = #"""
    "caller_name": "${fromName|from}", "caller_number": "${from}"
    """#
}
