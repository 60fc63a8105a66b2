// CommEazy: React Native with Firebase and CallKeep. Its document (seed 004) plans one router; today's app knows three types.

struct CommEazyApp: PhoneApp {
  let variant: PhoneVariant

  private static let todayRule = "CommEazy src/services/notifications.ts:34-56,225-284"
  private static let presentRule = "CommEazy ios/CommEazyTemp/AppDelegate.mm:122-133"
  private static let tapRule = "react-native-firebase RNFBMessaging+UNUserNotificationCenter.m:154-161"

  func voip(_ payload: PhoneJSON) -> PhoneOutcome {
    guard variant == .seed else {
      return .rings(
        PhoneRing(callID: nil, caller: "CommEazy"),
        "CommEazy ios/CommEazyTemp/AppDelegate.mm:294-318: the payload is not read")
    }
    let ring = PhoneRing(
      callID: payload["callId"]?.text, caller: payload["callerName"]?.text ?? "Onbekend",
      isVideo: payload["isVideo"]?.bridgedBoolean ?? false)
    return .rings(ring, "seed 004 §4a")
  }

  func presents(_ userInfo: PhoneJSON) -> PhoneOutcome { banner(userInfo, Self.presentRule) }

  func tap(_ userInfo: PhoneJSON) -> (leadsTo: String, rule: String) {
    guard userInfo["gcm.message_id"]?.text != nil else { return ("app", "\(Self.tapRule): no gcm.message_id") }
    let type = userInfo["type"]?.text ?? ""
    let chat = userInfo["chatId"]?.text ?? ""
    if variant == .today {
      let known = ["message", "call", "group_invite"].contains(type)
      return (known && !chat.isEmpty ? "chat \(chat)" : "app", Self.todayRule)
    }
    switch type {
    case "message", "group_message", "group_invite": return (chat.isEmpty ? "app" : "chat \(chat)", "seed 004 §1b, §3a")
    case "missed_call": return ("call history", "seed 004 §1b, §3a")
    case "call", "video_call": return ("call", "seed 004 §1b, §3a")
    default: return ("app", "seed 004 §1a")
    }
  }

  func androidMessage(_ data: PhoneJSON, _ state: PhoneState, secondsLate: Double) -> PhoneOutcome {
    guard variant == .seed else {
      return .ignores("\(Self.todayRule): what is known goes to handlers that nobody registers; nothing is shown")
    }
    let isOpen = state == .open
    let type = data["type"]?.text ?? ""
    switch type {
    case "message", "group_message":
      guard !isOpen || data["chatId"]?.text?.isEmpty == false else { return .ignores("seed 004 §1b: canHandle") }
      let title = data["senderName"]?.text ?? "Nieuw bericht"
      let body = data["messagePreview"]?.text ?? (isOpen ? "newMessage" : "")
      return PhoneOutcome(
        [.shows(title: title, body: body, tap: tapOfShown(data))], "seed 004 \(isOpen ? "§1b" : "§5a")")
    case "missed_call":
      let isVideo = data["isVideo"]?.isTruthy == true
      return PhoneOutcome(
        [
          .shows(
            title: data["callerName"]?.text ?? "Gemiste oproep",
            body: isOpen ? "missedCall" : isVideo ? "missedVideoCall" : "missedCall", tap: "call history")
        ], "seed 004 \(isOpen ? "§1b" : "§5a")")
    case "group_invite" where isOpen:
      return PhoneOutcome(
        [.shows(title: data["groupName"]?.text ?? "", body: "groupInvite", tap: tapOfShown(data))],
        "seed 004, end-to-end tests: a notification with the group's name")
    case "call", "video_call":
      return .ignores("seed 004 §5a: calls are not handled by the background handler, nor shown by the router (§1b)")
    default: return .ignores("seed 004 §1a, §5a: no such type")
    }
  }

  private func tapOfShown(_ data: PhoneJSON) -> String {
    data["chatId"]?.text.map { "chat \($0)" } ?? "app"
  }
}
