// Enclosure: chat and calls for iOS and Android. The iPhone drops a push with an empty roomId, so a room is required. `bodyKey` is the
// kind of push, and the app stores the call under `uid`. `phone` is the number of the called user. Only that recipient's entry can give it;
// otherwise it is empty, never another user's number.
//
// Over FCM a call is an alert without content-available (SwiftUI does not deliver an alert that has it); a tap starts CallKit. The app
// learns of hang-ups from Firebase itself. So a cancel only must not look like a call: it replaces the alert by one whose tap makes no
// call. A chat has no `token`: with one, a phone that answers from the alert would send a push itself.
//
// The Android app makes every notification from the data (Enc-14-oct-2025, Utils/FirebaseMessagingService.java). It ends at a chat without
// `uidPower` or `selectionCount`, and after a call without `device_type`. It knows only its own names of missed calls. When the caller
// hangs up, it sends a missed call to `userFcmToken`, which is its own token, if the recipient's entry gives it.

extension ShippedDialects {
  /// Each push gets a random UUID (CallKitManager.swift:108).
  static let enclosureRingsTwice = true

  static let enclosure = #"""
    {
      "apns": {
        "invite": {"bodyKey": "\#(incoming)", \#(room)},
        "missed_call": {
          "aps": \#(DialectFragments.missedCallAlert(title: "${fromName|from}")),
          "type": "missed_call",
          "bodyKey": "\#(missed)",
          \#(room)
        },
        \#(apnsChats)
      },
      "fcm": {
        "invite": {
          "bodyKey": "\#(incoming)",
          \#(room),
          "username": "${from}",
          "createdBy": "${from}",
          "incoming": "${from}",
          "device_type": "1",
          "userFcmToken": "${recipient.fcmToken?}",
          \#(DialectFragments.push(aps: callAlert))
        },
        "cancel": {
          "bodyKey": "${isVideo?'Cancelled video call':'Cancelled voice call'}",
          "roomId": "${channelName|callId}",
          "receiverId": "${userId}",
          \#(DialectFragments.callCancelled),
          \#(DialectFragments.push(aps: DialectFragments.endedAlert(title: "${fromName|from}")))
        },
        "missed_call": {
          \#(DialectFragments.missedCallData(title: "${fromName|from}")),
          "bodyKey": "${isVideo?'videoMissCall':'voiceMissCall'}",
          \#(room)
        },
        \#(fcmChats)
      }
    }
    """#

  private static let incoming = "${isVideo?'Incoming video call':'Incoming voice call'}"
  private static let missed = "${isVideo?'Missed video call':'Missed voice call'}"

  /// The app compares these words exactly, in every language.
  private static let callAlert = DialectFragments.alert(
    title: "${fromName|from}", text: incoming, category: "${isVideo?'VIDEO_CALL':'VOICE_CALL'}")

  private static let room = #"""
    "name": "${fromName|from}",
    "photo": "${metadata.photo|''}",
    "roomId": "${channelName|callId}",
    "receiverId": "${userId}",
    "uid": "${from}",
    "phone": "${recipient.phone|''}",
    "senderPhone": "${metadata.senderPhone?}",
    \#(DialectFragments.stamps)
    """#

  // MARK: - Chat

  private static let apnsChats = DialectFragments.chatSections { kind, text in
    #"{"aps": \#(chatAlert(text)), "type": "\#(kind)", \#(DialectFragments.chat(from: "from")), \#(message(text))}"#
  }

  private static let fcmChats = DialectFragments.chatSections { kind, text in
    #"""
    {
      \#(DialectFragments.data(title: DialectFragments.chatTitle, text: text, type: kind)),
      \#(DialectFragments.chat(from: "fromId")),
      \#(message(text)),
      "uidPower": "${from}",
      "selectionCount": "1",
      "device_type": "${metadata.deviceType|''}",
      \#(DialectFragments.push(aps: chatAlert(text)))
    }
    """#
  }

  /// `mutable-content`, so that the app's extension can add the sender's picture.
  private static func chatAlert(_ text: String) -> String {
    DialectFragments.alert(
      title: DialectFragments.chatTitle, text: "${\(text)}", category: "CHAT_MESSAGE", thread: "${chatId|from}",
      extra: #""mutable-content": 1, \#(DialectFragments.badge)"#)
  }

  private static func message(_ text: String) -> String {
    #"""
    "bodyKey": "chatting",
    "friendUidKey": "${from}",
    "name": "${fromName|from}",
    "user_nameKey": "${fromName|from}",
    "msgKey": "${\#(text)}",
    "photo": "${metadata.photo|''}",
    "phone": "${metadata.senderPhone?}",
    \#(DialectFragments.stamps)
    """#
  }
}
