// Door intercoms whose apps read baseCallData: the default dialect.
//
// `from` is a reserved FCM key, so the flat FCM data has it as `fromId`, and `body` has the whole canonical object as a JSON string:
// where an Expo app's background task looks for it. An Android phone gets data only, because a visible notification would keep
// the task from running; an iPhone with nothing but an Expo token can only be shown an alert. The FCM data of what is shown has
// its text as `message` as well: that is where expo-notifications looks for what to show.

extension ShippedDialects {
  static let intercom = #"""
    {
      "apns": {
        "invite": {
          "type": "intercom_call",
          "action": "incoming_call",
          "isVoip": true,
          "from": "${from}",
          "fromName": "${fromName|'Porteiro'}",
          "apartmentNumber": "${apartmentNumber?}",
          "buildingName": "${buildingName?}",
          "channelName": "${channelName?}",
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
          "type": "intercom_call",
          "action": "incoming_call",
          "fromId": "${from}",
          "fromName": "${fromName|'Porteiro'}",
          "apartmentNumber": "${apartmentNumber?}",
          "buildingName": "${buildingName?}",
          "channelName": "${channelName?}",
          "metadata": "${metadata?}",
          \#(DialectFragments.stamps),
          "$payload": "others",
          "body": {"$string": \#(canonical)}
        },
        "cancel": {
          "type": "intercom_call",
          \#(DialectFragments.callCancelled),
          "body": {"$string": \#(cancel)}
        },
        "missed_call": {
          \#(DialectFragments.missedCallData(title: "${fromName|'Porteiro'}")),
          "message": "${missedCallText}",
          "fromId": "${from}",
          \#(missedCaller)
        },
        \#(DialectFragments.chatData(extra: "message"))
      },
      "expo": {
        "invite": {
          "channelId": "intercom_call",
          "_contentAvailable": true,
          "data": \#(canonical)
        },
        "invite.ios": {
          "title": "${fromName|'Porteiro'}",
          "body": "Chamada do interfone",
          "sound": "default",
          "_contentAvailable": true,
          "data": \#(canonical)
        },
        "cancel": {"_contentAvailable": true, "data": \#(cancel)},
        "missed_call": {
          \#(DialectFragments.missedCallMessage(title: "${fromName|'Porteiro'}")),
          "data": {"type": "missed_call", "from": "${from}", \#(missedCaller)}
        },
        \#(DialectFragments.chatMessages)
      }
    }
    """#

  /// What the app makes a call of, wherever it finds it.
  private static let canonical = #"""
    {
      "type": "intercom_call",
      "action": "incoming_call",
      "from": "${from}",
      "fromName": "${fromName|'Porteiro'}",
      "apartmentNumber": "${apartmentNumber?}",
      "buildingName": "${buildingName?}",
      "channelName": "${channelName?}",
      "metadata": "${metadata?:json}",
      \#(DialectFragments.stamps),
      "$payload": "others"
    }
    """#

  /// What ends a ringing call, wherever the app finds it.
  private static let cancel = #"""
    {"type": "intercom_call", \#(DialectFragments.callCancelled)}
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
