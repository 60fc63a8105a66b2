// Apps on the Telnyx Voice SDK: the call under `metadata`, over FCM as a JSON string whose values are strings. What the backend's
// own metadata has stands there, too: the answer connects to the instance of Telnyx that it names. The SDK takes the six names of
// its own only in their types (packages/telnyx_webrtc/lib/model/push_notification.dart:25-30): texts, and booleans that the app
// itself sets when a call is answered or declined, so that what a backend has under their names is left out.
//
// The iPhone app makes a UUID of `metadata.call_id` and ends when it is none. Without one it makes up another with each push, which
// a cancel could not name: of an id that is no UUID, one is made here, always the same. The SDK uses it for nothing but its own
// time-out (packages/telnyx_webrtc/lib/telnyx_client.dart:1530).
//
// Android apps take any data push for a ringing call unless its `message` is "Missed call!". Nothing else makes them stop, so a
// cancel says it. Each leaves an entry, so an Android phone that was told by a cancel is sent no missed call. Chats are for
// iPhones alone: the document's Android handler shows a call whatever comes (seed 003, "Handle the push notification"), today's
// shows nothing. The cancel over APNs is a VoIP push, which SDK 4 takes for the end of a call (ios/Runner/AppDelegate.swift:106-126): it is sent for
// apps with `voip_cancel` only.

extension ShippedDialects {
  /// The call's id is the phone's, too (AppDelegate.swift:143-151, notification_service.dart:165-168), over VoIP as a UUID.
  static let telnyxRingsTwice = false

  static let telnyx = #"""
    {
      "apns": {
        "invite": {
          "call_id": "${callId}",
          "isVideo": "${isVideo:json}",
          "metadata": \#(objectMetadata),
          \#(DialectFragments.stamps)
        },
        "cancel": {
          "$push": {"type": "voip"},
          "aps": {"alert": "Missed call!"},
          "metadata": \#(objectMetadata),
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

  private static let objectMetadata = #"""
    {"call_id": "${callId|metadata.call_id|callUuid?:uuid}", \#(caller), \#(own), "$metadata": "others"}
    """#

  private static let textMetadata = #"""
    {"call_id": "${callId}", \#(caller), \#(own), "$metadata": "texts"}
    """#

  private static let own = #"""
    "voice_sdk_id": "${metadata.voice_sdk_id?}", "isAnswer": null, "isDecline": null
    """#

  private static let caller = #"""
    "caller_name": "${fromName|from}", "caller_number": "${from}"
    """#
}
