// Enclosure: SwiftUI, PushKit for calls and alerts over FCM. There is only an iPhone app.

struct EnclosureApp: PhoneApp {
  private static let voipRule = "enclosure_ios_2025 Enclosure/Utility/VoIPPushManager.swift:197-290"
  private static let presentRule = "enclosure_ios_2025 Enclosure/Utility/NotificationDelegate.swift:53-254"
  private static let tapRule = "enclosure_ios_2025 Enclosure/Utility/NotificationDelegate.swift:274-423"

  func voip(_ payload: PhoneJSON) -> PhoneOutcome {
    guard let call = call(payload, isVideo: (payload["bodyKey"]?.text ?? "").lowercased().contains("video")) else {
      return .crashes("\(Self.voipRule) (:273-279): without a room nothing is reported, and iOS ends the app")
    }
    return .rings(call, Self.voipRule)
  }

  /// CallKit gets a new id for each push (Enclosure/Utility/CallKitManager.swift:108).
  func id(of ring: PhoneRing, over channel: PhonePush.Channel, _ state: PhoneState) -> String? { nil }

  func presents(_ userInfo: PhoneJSON) -> PhoneOutcome {
    guard let isVideo = isVideoCall(userInfo) else { return banner(userInfo, Self.presentRule) }
    return call(userInfo, isVideo: isVideo).map { .rings($0, Self.presentRule) } ?? .ignores(Self.presentRule)
  }

  func tap(_ userInfo: PhoneJSON) -> (leadsTo: String, rule: String) {
    if userInfo["aps"]?["content-available"]?.bridgedBoolean == true {
      return ("nothing", "seed 002, attempt 2: SwiftUI does not deliver an alert with content-available")
    }
    if isVideoCall(userInfo) != nil {
      return (userInfo["roomId"]?.text?.isEmpty == false ? "call" : "app", Self.tapRule)
    }
    guard userInfo["bodyKey"]?.text == "chatting" else { return ("app", Self.tapRule) }
    let friend = userInfo["friendUidKey"]?.text ?? ""
    return (friend.isEmpty ? "app" : "chat \(friend)", "\(Self.tapRule) (:409-423)")
  }

  func wakes(_ userInfo: PhoneJSON, _ state: PhoneState) -> PhoneOutcome {
    let rule = "enclosure_ios_2025 Enclosure/EnclosureApp.swift:185-280"
    let words = [userInfo["bodyKey"]?.text, userInfo["aps"]?["alert"]?["body"]?.text]
    guard let isVideo = [false, true].first(where: { words.contains("Incoming \($0 ? "video" : "voice") call") }) else {
      return PhoneOutcome([.wakes], rule)
    }
    return call(userInfo, isVideo: isVideo).map { .rings($0, rule) } ?? .ignores(rule)
  }

  func androidMessage(_ data: PhoneJSON, _ state: PhoneState, secondsLate: Double) -> PhoneOutcome {
    .ignores("there is no source of an Android app")
  }

  /// nil if it is not a call.
  private func isVideoCall(_ userInfo: PhoneJSON) -> Bool? {
    let words = [userInfo["bodyKey"]?.text, userInfo["aps"]?["alert"]?["body"]?.text]
    let category = userInfo["aps"]?["category"]?.text
    if words.contains("Incoming voice call") || category == "VOICE_CALL" { return false }
    return words.contains("Incoming video call") || category == "VIDEO_CALL" ? true : nil
  }

  /// nil without a room. Without the caller's id, the call is stored under the called user (:207-242).
  private func call(_ userInfo: PhoneJSON, isVideo: Bool) -> PhoneRing? {
    guard let room = userInfo["roomId"]?.text, !room.isEmpty else { return nil }
    let caller = userInfo["name"]?.text ?? userInfo["user_nameKey"]?.text ?? "Unknown Caller"
    let receiver = userInfo["receiverId"]?.text ?? ""
    let uid = userInfo["uid"]?.text ?? userInfo["incoming"]?.text ?? ""
    return PhoneRing(callID: room, caller: caller, isVideo: isVideo, filedUnder: uid.isEmpty ? receiver : uid)
  }
}
