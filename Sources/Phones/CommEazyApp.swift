// CommEazy: React Native with Firebase and CallKeep. Its plan specifies one router; today's app handles three types.

struct CommEazyApp: PhoneApp {
  let variant: PhoneVariant

  private static let todayRule = "CommEazy src/services/notifications.ts:34-56,225-284"
  private static let todayTapRule =
    "CommEazy src/services/notifications.ts:214,225-240: a tap goes to the handlers of onNotification, which are never called"
  private static let presentRule = "CommEazy ios/CommEazyTemp/AppDelegate.mm:122-133"
  private static let bothRule =
    "\(presentRule), and react-native-firebase RNFBMessaging+UNUserNotificationCenter.m:112-120 hands it to the router"
  private static let callKeepRule =
    "plan §4a; react-native-callkeep ios/RNCallKeep/RNCallKeep.m:779,790: CallKit is given no id, and the app ends"
  private static let tapRule = "react-native-firebase RNFBMessaging+UNUserNotificationCenter.m:154-161"

  func voip(_ payload: PhoneJSON) -> PhoneOutcome {
    guard variant == .seed else {
      return .rings(
        PhoneRing(callID: nil, caller: "CommEazy", canBeAnswered: false),
        "CommEazy ios/CommEazyTemp/AppDelegate.mm:294-318: the payload is not read, and of CallKit's id (:306) neither "
          + "src/services/call/index.ts:109-120 nor callKitService.ts:329-331 knows a call to answer or decline")
    }
    let callID = payload["callId"]?.text
    if let callID, !PhoneUUID.isOne(callID) { return .crashes(Self.callKeepRule) }
    let ring = PhoneRing(
      callID: callID, caller: payload["callerName"]?.text ?? "Onbekend",
      isVideo: payload["isVideo"]?.bridgedBoolean ?? false)
    return .rings(ring, "plan §4a")
  }

  /// Today's app gives CallKit a new id for each push (AppDelegate.mm:306).
  func id(of ring: PhoneRing, over channel: PhonePush.Channel, _ state: PhoneState) -> String? {
    variant == .today ? nil : ring.callID
  }

  /// The native code always shows a banner. The router of the document also shows messages and missed calls.
  func presents(_ userInfo: PhoneJSON) -> PhoneOutcome {
    let banner = banner(userInfo, Self.presentRule)
    guard variant == .seed, userInfo["gcm.message_id"]?.text != nil else { return banner }
    let routed = androidMessage(userInfo, .open, secondsLate: 0).reactions.filter { $0 != .ignores }
    return routed.isEmpty ? banner : PhoneOutcome(banner.reactions + routed, Self.bothRule)
  }

  func tap(_ userInfo: PhoneJSON) -> (leadsTo: String, rule: String) {
    guard variant == .seed else { return ("app", Self.todayTapRule) }
    guard userInfo["gcm.message_id"]?.text != nil else { return ("app", "\(Self.tapRule): no gcm.message_id") }
    let chat = userInfo["chatId"]?.text ?? ""
    switch userInfo["type"]?.text ?? "" {
    case "message", "group_message", "group_invite": return (chat.isEmpty ? "app" : "chat \(chat)", "plan §1b, §3a")
    case "missed_call": return ("call history", "plan §1b, §3a")
    case "call", "video_call": return ("call", "plan §1b, §3a")
    default: return ("app", "plan §1a")
    }
  }

  func androidMessage(_ data: PhoneJSON, _ state: PhoneState, secondsLate: Double) -> PhoneOutcome {
    guard variant == .seed else {
      return .ignores("\(Self.todayRule): known types go to handlers that are never registered; nothing is shown")
    }
    let isOpen = state == .open
    let type = data["type"]?.text ?? ""
    switch type {
    case "message", "group_message":
      guard !isOpen || data["chatId"]?.text?.isEmpty == false else { return .ignores("plan §1b: canHandle") }
      let title = data["senderName"]?.text ?? "Nieuw bericht"
      let body = data["messagePreview"]?.text ?? (isOpen ? "newMessage" : "")
      return PhoneOutcome(
        [.shows(title: title, body: body, tap: tapOfShown(data))], "plan \(isOpen ? "§1b" : "§5a")")
    case "missed_call":
      let isVideo = data["isVideo"]?.isTruthy == true
      return PhoneOutcome(
        [
          .shows(
            title: data["callerName"]?.text ?? "Gemiste oproep",
            body: isOpen ? "missedCall" : isVideo ? "missedVideoCall" : "missedCall", tap: "call history")
        ], "plan \(isOpen ? "§1b" : "§5a")")
    case "group_invite" where isOpen:
      return PhoneOutcome(
        [.shows(title: data["groupName"]?.text ?? "", body: "groupInvite", tap: tapOfShown(data))],
        "plan, end-to-end tests: a notification with the group's name")
    case "call", "video_call":
      return .ignores("plan §5a: calls are not handled by the background handler, nor shown by the router (§1b)")
    default: return .ignores("plan §1a, §5a: no such type")
    }
  }

  private func tapOfShown(_ data: PhoneJSON) -> String {
    data["chatId"]?.text.map { "chat \($0)" } ?? "app"
  }
}
