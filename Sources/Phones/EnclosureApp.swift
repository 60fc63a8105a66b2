// Enclosure: on iPhones SwiftUI, PushKit for calls and alerts over FCM; on Android data, from which the app makes every notification.

struct EnclosureApp: PhoneApp {
  private static let voipRule = "enclosure_ios_2025 Enclosure/Utility/VoIPPushManager.swift:197-290"
  private static let presentRule = "enclosure_ios_2025 Enclosure/Utility/NotificationDelegate.swift:53-254"
  private static let tapRule = "enclosure_ios_2025 Enclosure/Utility/NotificationDelegate.swift:274-423"
  private static let androidRule = "Enc-14-oct-2025 Utils/FirebaseMessagingService.java"

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
      return ("nothing", "notes, attempt 2: SwiftUI does not deliver an alert with content-available")
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
    let rule = Self.androidRule
    switch data["bodyKey"]?.text {
    case "Incoming voice call", "Incoming video call":
      guard data["receiverId"]?.text != nil, let caller = data["name"]?.text else {
        return .crashes("\(rule):233-238,351: a value is missing")
      }
      guard ["1", "2"].contains(data["device_type"]?.text) else {
        return .crashes(
          "\(rule):262, FcmNotificationSenderMisscall.java:50: without device_type the app ends at a hang-up or a decline"
        )
      }
      let ring = PhoneRing(
        callID: data["roomId"]?.text, caller: caller, isVideo: data["bodyKey"]?.text == "Incoming video call",
        canBeAnswered: data["roomId"]?.text?.isEmpty == false && data["username"]?.text != nil,
        filedUnder: data["uid"]?.text)
      return .rings(ring, "\(rule):230-463")
    case "chatting":
      guard let text = data["msgKey"]?.text, let name = data["user_nameKey"]?.text, data["uidPower"]?.text != nil,
        data["selectionCount"]?.text != nil
      else { return .crashes("\(rule):725,729,1224: a value is missing") }
      let friend = data["friendUidKey"]?.text ?? ""
      return PhoneOutcome(
        [.shows(title: name, body: text, tap: friend.isEmpty ? "app" : "chat \(friend)")], "\(rule):692-776,1205-1415")
    case "voiceMissCall", "videoMissCall":
      let name = data["name"]?.text ?? ""
      return PhoneOutcome([.shows(title: name, body: "Missed Call", tap: "app")], "\(rule):779-1008")
    default: return .ignores("\(rule): bodyKey is none that it knows")
    }
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
