// Apps on the Telnyx Voice SDK (Flutter): PushKit natively, Firebase's handlers in Dart on Android.

struct TelnyxApp: PhoneApp {
  let variant: PhoneVariant

  private static let voipRule = "flutter-voice-sdk ios/Runner/AppDelegate.swift:101-161"
  private static let handlerRule = "flutter-voice-sdk lib/service/android_push_notification_handler.dart:66-77,203-219"
  private static let showRule = "flutter-voice-sdk lib/service/notification_service.dart:104-184"
  private static let missedRule = "flutter-voice-sdk lib/service/notification_service.dart:219-300"

  func voip(_ payload: PhoneJSON) -> PhoneOutcome {
    let metadata = payload["metadata"]
    if variant == .today, payload["aps"]?["alert"]?.text == "Missed call!" {
      guard let callID = metadata?["call_id"]?.text, !callID.isEmpty else {
        return .ignores("\(Self.voipRule) (:105-126)")
      }
      return PhoneOutcome([.stops(callID: callID)], "\(Self.voipRule) (:105-126)")
    }
    guard let metadata, case .object = metadata else {
      return .crashes("\(Self.voipRule): without a metadata object nothing is reported, and iOS ends the app")
    }
    var callID: String?
    if let own = metadata["call_id"]?.text, !own.isEmpty {
      guard PhoneUUID.isOne(own) else { return .crashes("\(Self.voipRule) (:147,151): uuid! of what is no UUID") }
      callID = own
    }
    let name = metadata["caller_name"]?.text ?? ""
    let number = metadata["caller_number"]?.text ?? ""
    let isVideo = variant == .today && payload["isVideo"]?.bridgedBoolean ?? false
    let caller = name.isEmpty ? (number.isEmpty ? "Unknown" : number) : name
    return .rings(PhoneRing(callID: callID, caller: caller, isVideo: isVideo), Self.voipRule)
  }

  func presents(_ userInfo: PhoneJSON) -> PhoneOutcome {
    banner(
      userInfo,
      "flutter-voice-sdk lib/service/android_push_notification_handler.dart:235-240; iOS has no handler of its own")
  }

  func tap(_ userInfo: PhoneJSON) -> (leadsTo: String, rule: String) {
    ("app", "onMessageOpenedApp only logs (:221-226)")
  }

  func androidMessage(_ data: PhoneJSON, _ state: PhoneState, secondsLate: Double) -> PhoneOutcome {
    if data["message"]?.text?.lowercased() == "missed call!" { return missed(data) }
    // A map whose members are taken for texts: anything else throws, and nothing is shown (push_notification.dart:25-32).
    guard let metadata = metadata(data) else { return .ignores("\(Self.showRule): an exception") }
    if secondsLate > (variant == .today ? 30 : 60) { return missed(data) }
    guard let callID = metadata["call_id"]?.text, !callID.isEmpty else {
      if variant == .seed {
        return .rings(PhoneRing(callID: nil, caller: "", canBeAnswered: false), "seed 003: shows any message")
      }
      return .ignores("\(Self.showRule) (:155-160): no call id")
    }
    return .rings(
      PhoneRing(
        callID: callID, caller: metadata["caller_name"]?.text ?? "Unknown Caller"),
      "\(Self.handlerRule); \(Self.showRule)")
  }

  /// Ends what rings and leaves an entry.
  private func missed(_ data: PhoneJSON) -> PhoneOutcome {
    guard let metadata = metadata(data), let callID = metadata["call_id"]?.text, !callID.isEmpty else {
      return .ignores(Self.missedRule)
    }
    let caller = metadata["caller_name"]?.text ?? ""
    return PhoneOutcome(
      [.stops(callID: callID), .shows(title: caller, body: "Missed call", tap: "call back")], Self.missedRule)
  }

  private func metadata(_ data: PhoneJSON) -> PhoneJSON? {
    guard let value = data["metadata"] else { return .object([:]) }
    guard let text = value.text, let metadata = PhoneJSON(text.utf8), case .object = metadata else { return nil }
    for name in ["caller_name", "caller_number", "call_id", "voice_sdk_id"] {
      if let member = metadata[name], member.text == nil, !member.isNull { return nil }
    }
    return metadata
  }
}
