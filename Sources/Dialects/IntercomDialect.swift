// Door intercoms whose apps read baseCallData: the default dialect.
//
// The app's background task checks only for the type `intercom_call`, at every place it reads, and then starts a call. So a push that
// ends a call has another type everywhere. Flat FCM data with `type` would also need `from`, which is a reserved key. So the flat data
// has no type, and `body`, which the task reads next, has the whole object as a JSON string.
// The app's schema accepts only strings for callerName, channel and our members, so these are written as strings. An Android phone
// gets only data, because a visible notification would prevent the task from running. An iPhone with only an Expo or FCM token can
// only show an alert. (Over Expo the app also rings, if iOS wakes it.) The FCM data of a visible push also has its text as `message`,
// and a `tag`: expo-notifications shows `message` and replaces the notification with the same tag.
//
// In the foreground or woken, the app starts a call from an alert with CallKeep, and on an iPhone it crashes if the call's id is not a
// UUID. The app answers with that id, so the id cannot be replaced: there such a call has another type and is only shown. The other calls
// have the app's category for calls, with the buttons Answer and Decline, which it handles for alerts of Expo alone.
//
// A browser's service worker must show a notification for every push. Title, body and tag are those of the notification; the tag is
// the call's id, so that each push about a call replaces the notification of the one before (docs/integrations/web.md).

extension ShippedDialects {
  /// A push whose `callId` is known is ignored.
  static let intercomRingsTwice = false

  static let intercom = #"""
    {
      "apns": {
        "invite": {
          "type": "intercom_call",
          "action": "incoming_call",
          "isVoip": true,
          "from": "${from}",
          "fromName": "${fromName|'Porteiro'}",
          "callerName": "${payload.callerName?}",
          "apartmentNumber": "${apartmentNumber?}",
          "buildingName": "${buildingName?}",
          "channelName": "${channelName?}",
          "channel": "${payload.channel?}",
          "metadata": "${metadata?:json}",
          \#(DialectFragments.stamps),
          "$payload": "others"
        },
        "missed_call": {
          "aps": \#(DialectFragments.missedCallAlert(title: "${fromName|'Porteiro'}")),
          "type": "missed_call",
          "from": "${from}",
          \#(missedCaller)
        },
        \#(DialectFragments.chatAlerts())
      },
      "fcm": {
        "invite": {
          \#(flat),
          "metadata": "${metadata?}",
          "$payload": "others",
          "body": {"$string": \#(canonical)},
          \#(alert(text: "${incomingCallText}"))
        },
        "invite.ios": {\#(flat), "body": {"$string": \#(canonicalOnIPhone)}, \#(alert(text: "${incomingCallText}"))},
        "cancel": {
          "type": "intercom_call_end",
          \#(DialectFragments.callCancelled),
          "body": {"$string": \#(cancel)},
          \#(DialectFragments.push(aps: DialectFragments.endedAlert(title: "${fromName|'Porteiro'}")))
        },
        "missed_call": {
          \#(DialectFragments.missedCallData(title: "${fromName|'Porteiro'}")),
          "message": "${missedCallText}",
          \#(DialectFragments.channelInData(for: "missedCallText")),
          \#(DialectFragments.tag),
          "fromId": "${from}",
          \#(missedCaller),
          \#(DialectFragments.push(aps: DialectFragments.missedCallAlert(title: "${fromName|'Porteiro'}")))
        },
        \#(DialectFragments.chatData {
          #""message": "${\#($0)}", \#(DialectFragments.channelInData(for: $0)), \#(DialectFragments.tag)"#
        })
      },
      "expo": {
        "invite": {"_contentAvailable": true, "data": \#(canonical)},
        "invite.ios": {
          "title": "${fromName|'Porteiro'}",
          "body": "${incomingCallText}",
          "sound": "default",
          "categoryId": "${isUuid?'call'}",
          "_contentAvailable": true,
          "data": \#(canonicalOnIPhone)
        },
        "cancel": {"_contentAvailable": true, "data": \#(cancel)},
        "cancel.ios": {\#(DialectFragments.endedMessage(title: "${fromName|'Porteiro'}")), "data": \#(cancel)},
        "missed_call": \#(missedCallMessage),
        "missed_call.ios": \#(missedCallMessage),
        \#(DialectFragments.chatMessages()),
        \#(DialectFragments.chatMessages(for: ".ios"))
      },
      "webpush": {
        "invite": {
          "type": "intercom_call",
          \#(DialectFragments.browserNotification(title: "${fromName|'Porteiro'}", text: "incomingCallText")),
          "action": "incoming_call",
          "from": "${from}",
          "fromName": "${fromName|'Porteiro'}",
          "apartmentNumber": "${apartmentNumber?}",
          "buildingName": "${buildingName?}",
          "channelName": "${channelName?}",
          "metadata": "${metadata?:json}",
          \#(DialectFragments.stamps),
          "$payload": "others"
        },
        "cancel": {
          "type": "intercom_call_end",
          \#(DialectFragments.browserNotification(title: "${fromName|'Porteiro'}", text: "callEndedText")),
          \#(DialectFragments.callCancelled)
        },
        "missed_call": {
          "type": "missed_call",
          \#(DialectFragments.browserNotification(title: "${fromName|'Porteiro'}", text: "missedCallText")),
          "from": "${from}",
          \#(missedCaller)
        },
        \#(DialectFragments.chatsInBrowser())
      }
    }
    """#

  /// The members from which the app starts a call, at every place it reads.
  private static let canonical = canonical(type: "intercom_call")
  private static let canonicalOnIPhone = canonical(type: "${isUuid?'intercom_call':'intercom_call_alert'}")

  private static func canonical(type: String) -> String {
    #"""
    {
      "type": "\#(type)",
      "action": "incoming_call",
      "from": "${from}",
      "fromName": "${fromName|'Porteiro'}",
      "callerName": "${payload.callerName?}",
      "apartmentNumber": "${apartmentNumber?}",
      "buildingName": "${buildingName?}",
      "channelName": "${channelName?}",
      "channel": "${payload.channel?}",
      "metadata": "${metadata?:json}",
      \#(DialectFragments.stamps),
      "$payload": "others"
    }
    """#
  }

  /// The call beside `body`, for code that reads flat FCM data. It has no type, not even the payload's. It has no title and message,
  /// because expo-notifications would show them beside the call, and no `dataString`, which the app reads before `body`
  /// (backgroundTask.ts:54-70, IntercomNotificationListeners.tsx:13-23).
  private static let flat = #"""
    "type": null,
    "title": null,
    "message": null,
    "dataString": null,
    "action": "incoming_call",
    "fromId": "${from}",
    "fromName": "${fromName|'Porteiro'}",
    "callerName": "${payload.callerName?}",
    "apartmentNumber": "${apartmentNumber?}",
    "buildingName": "${buildingName?}",
    "channelName": "${channelName?}",
    "channel": "${payload.channel?}",
    \#(DialectFragments.stamps)
    """#

  private static func alert(text: String) -> String {
    DialectFragments.push(aps: DialectFragments.alert(title: "${fromName|'Porteiro'}", text: text))
  }

  /// The end of a call, at every place the app reads. No push can stop the app from ringing, but this one must not make it ring.
  private static let cancel = #"""
    {"type": "intercom_call_end", \#(DialectFragments.callCancelled)}
    """#

  /// Templates for iPhones and for all other phones. The one for iPhones has a collapse id and replaces the call's alert.
  private static let missedCallMessage = #"""
    {
      \#(DialectFragments.missedCallMessage(title: "${fromName|'Porteiro'}")),
      "data": {"type": "missed_call", "from": "${from}", \#(missedCaller)}
    }
    """#

  /// The caller and the place, without `from`.
  private static let missedCaller = #"""
    "fromName": "${fromName|'Porteiro'}",
    "apartmentNumber": "${apartmentNumber?}",
    "buildingName": "${buildingName?}",
    "channelName": "${channelName?}",
    \#(DialectFragments.stamps)
    """#
}
