// The parts that the templates of several shipped dialects have in common.

/// Members without braces, to be put between others.
enum DialectFragments {
  /// What every push carries, so that a late phone can tell, and one with two pushes knows which is the newer.
  static let stamps = #"""
    "callId": "${callId}",
    "timestamp": "${timestamp}",
    "expiresAt": "${expiresAt}",
    "seq": "${seq}"
    """#

  /// What every cancel says. There is none over APNs: a VoIP push must end in a call, so it cannot take one back.
  static let callCancelled = #"""
    "action": "call_cancelled",
    "reason": "${reason|'ended'}",
    \#(stamps)
    """#

  // A missed call carries the caller, and nothing else of the payload: an alert has less room than the VoIP push that
  // rang, and what it shows stays on the lock screen for hours.

  /// The `aps` of a missed call. Those of one caller are grouped.
  static func missedCallAlert(title: String) -> String {
    #"""
    {
      "alert": {"title": "\#(title)", "body": "${missedCallText}"},
      "category": "missed_call",
      "sound": "default",
      "thread-id": "${from?}"
    }
    """#
  }

  /// The FCM data of a missed call, from which the app makes its notification.
  static func missedCallData(title: String) -> String {
    #"""
    "type": "missed_call",
    "title": "\#(title)",
    "body": "${missedCallText}",
    "category": "missed_call"
    """#
  }

  /// What Expo shows of a missed call.
  static func missedCallMessage(title: String) -> String {
    #"""
    "title": "\#(title)",
    "body": "${missedCallText}",
    "sound": "default",
    "channelId": "default",
    "categoryId": "missed_call"
    """#
  }
}
