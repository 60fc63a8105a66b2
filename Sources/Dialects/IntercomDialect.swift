// Door intercoms whose apps read baseCallData: the default dialect.
//
// The app's background task asks only for the type `intercom_call`, wherever it finds it, and makes a call of it: so what ends a
// call has another type everywhere. Where `type` stands flat in FCM data, `from` would have to stand there, too, and is a reserved
// key; so the flat data has no type, and `body` has the whole canonical object as a JSON string, where the task looks next.
// Its schema takes texts or nothing for callerName and channel as for ours, hence these are made texts. An Android phone gets
// data only, because a visible notification would keep the task from running; an iPhone with nothing but an Expo or FCM token
// can only be shown an alert. (Over Expo the app also rings, if iOS wakes it.) The FCM data of what is shown has its text as
// `message` as well, and a `tag`: that is where expo-notifications looks for what to show, and in whose place.
//
// In front or woken, the app makes a call of an alert by CallKeep, and an iPhone's app ends when the call's id is no UUID. The
// app answers with that id, so it cannot be replaced: such a call has another type there, and is shown.

extension ShippedDialects {
  /// A push whose `callId` is known is ignored (seed 001, rules).
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
          \#(DialectFragments.tag),
          "fromId": "${from}",
          \#(missedCaller),
          \#(DialectFragments.push(aps: DialectFragments.missedCallAlert(title: "${fromName|'Porteiro'}")))
        },
        \#(DialectFragments.chatData { #""message": "${\#($0)}", \#(DialectFragments.tag)"# })
      },
      "expo": {
        "invite": {"_contentAvailable": true, "data": \#(canonical)},
        "invite.ios": {
          "title": "${fromName|'Porteiro'}",
          "body": "${incomingCallText}",
          "sound": "default",
          "_contentAvailable": true,
          "data": \#(canonicalOnIPhone)
        },
        "cancel": {"_contentAvailable": true, "data": \#(cancel)},
        "cancel.ios": {\#(DialectFragments.endedMessage(title: "${fromName|'Porteiro'}")), "data": \#(cancel)},
        "missed_call": \#(missedCallMessage),
        "missed_call.ios": \#(missedCallMessage),
        \#(DialectFragments.chatMessages()),
        \#(DialectFragments.chatMessages(for: ".ios"))
      }
    }
    """#

  /// What the app makes a call of, wherever it finds it.
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

  /// The call beside `body`, for whatever reads FCM data as they are. Without a type, not even the payload's; and without a
  /// title and a message, of which expo-notifications would make a notification beside the call, or a `dataString`, where the app looks
  /// before it looks into `body` (backgroundTask.ts:54-70, IntercomNotificationListeners.tsx:13-23).
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

  /// That a call is over, wherever the app looks. No push stops the app from ringing; it must not ring again either.
  private static let cancel = #"""
    {"type": "intercom_call_end", \#(DialectFragments.callCancelled)}
    """#

  /// For iPhones and for all others: what is only for iPhones has a collapse id there, and takes the place of the call's alert.
  private static let missedCallMessage = #"""
    {
      \#(DialectFragments.missedCallMessage(title: "${fromName|'Porteiro'}")),
      "data": {"type": "missed_call", "from": "${from}", \#(missedCaller)}
    }
    """#

  /// Who called and from where, but for `from` itself.
  private static let missedCaller = #"""
    "fromName": "${fromName|'Porteiro'}",
    "apartmentNumber": "${apartmentNumber?}",
    "buildingName": "${buildingName?}",
    "channelName": "${channelName?}",
    \#(DialectFragments.stamps)
    """#
}
