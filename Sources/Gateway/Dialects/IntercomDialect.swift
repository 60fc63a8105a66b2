// Door intercoms whose apps read baseCallData: the default dialect.
//
// `from` is a reserved FCM key, so the flat FCM data has it as `fromId`, and `body` has the whole canonical object as a JSON string:
// where an Expo app's background task looks for it. An Android phone gets data only, because a visible notification would keep
// the task from running; an iPhone with nothing but an Expo token can only be shown an alert.

extension ShippedDialects {
  static let intercom = #"""
    {
      "apns": {
        "invite": {
          "type": "intercom_call",
          "action": "incoming_call",
          "isVoip": true,
          "callId": "${callId}",
          "from": "${from}",
          "fromName": "${fromName|'Porteiro'}",
          "apartmentNumber": "${apartmentNumber?}",
          "buildingName": "${buildingName?}",
          "channelName": "${channelName?}",
          "metadata": "${metadata?:json}",
          "timestamp": "${timestamp}",
          "expiresAt": "${expiresAt}",
          "seq": "${seq}",
          "$payload": "others"
        }
      },
      "fcm": {
        "invite": {
          "type": "intercom_call",
          "action": "incoming_call",
          "callId": "${callId}",
          "fromId": "${from}",
          "fromName": "${fromName|'Porteiro'}",
          "apartmentNumber": "${apartmentNumber?}",
          "buildingName": "${buildingName?}",
          "channelName": "${channelName?}",
          "metadata": "${metadata?}",
          "timestamp": "${timestamp}",
          "expiresAt": "${expiresAt}",
          "seq": "${seq}",
          "$payload": "others",
          "body": {"$string": \#(canonical)}
        }
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
        }
      }
    }
    """#

  /// What the app makes a call of, wherever it finds it.
  private static let canonical = #"""
    {
      "type": "intercom_call",
      "action": "incoming_call",
      "callId": "${callId}",
      "from": "${from}",
      "fromName": "${fromName|'Porteiro'}",
      "apartmentNumber": "${apartmentNumber?}",
      "buildingName": "${buildingName?}",
      "channelName": "${channelName?}",
      "metadata": "${metadata?:json}",
      "timestamp": "${timestamp}",
      "expiresAt": "${expiresAt}",
      "seq": "${seq}",
      "$payload": "others"
    }
    """#
}
