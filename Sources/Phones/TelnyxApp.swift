// Apps on the Telnyx Voice SDK (Flutter): PushKit natively, Firebase's handlers in Dart on Android.

struct TelnyxApp: PhoneApp {
  let variant: PhoneVariant

  private static let voipRule = "flutter-voice-sdk ios/Runner/AppDelegate.swift:101-161"
  private static let handlerRule = "flutter-voice-sdk lib/service/android_push_notification_handler.dart:66-77,203-219"
  private static let showRule = "flutter-voice-sdk lib/service/notification_service.dart:104-184"
  /// Android has always handled it, also before SDK 4 (docs-markdown/migrations/v3-to-v4.md:64-66); SDK docs do not mention it.
  private static let missedRule = "flutter-voice-sdk lib/service/notification_service.dart:219-300"

  /// Whether `PushMetaData` can be created. The app creates it when a call is answered, on Android also before. Its members are texts
  /// and two booleans: any other type throws (packages/telnyx_webrtc/lib/model/push_notification.dart:12-30).
  private static func isPushMetaData(_ metadata: PhoneJSON) -> Bool {
    let texts = ["caller_name", "caller_number", "call_id", "voice_sdk_id"].allSatisfy { name in
      metadata[name].map { $0.text != nil || $0.isNull } ?? true
    }
    return texts
      && ["isAnswer", "isDecline"].allSatisfy { name in
        switch metadata[name] {
        case nil, .null?, .boolean?: true
        default: false
        }
      }
  }

  /// SDK 4 recognizes "Missed call!" (AppDelegate.swift:105-126). Older versions show it as a call (SDK docs, "Listen for incoming
  /// calls in AppDelegate.swift").
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
    return .rings(
      PhoneRing(callID: callID, caller: caller, isVideo: isVideo, canBeAnswered: Self.isPushMetaData(metadata)),
      "\(Self.voipRule); lib/service/ios_push_notification_handler.dart:84-116")
  }

  /// Firebase's plugin asks for the options that the app has set, and shows nothing without; only the Android handler sets them
  /// (android_push_notification_handler.dart:236-240, SDK docs under `TargetPlatform.android`).
  func presents(_ userInfo: PhoneJSON) -> PhoneOutcome {
    .ignores(
      "flutterfire FLTFirebaseMessagingPlugin.m, willPresentNotification; "
        + "flutter-voice-sdk lib/service/ios_push_notification_handler.dart:48-54: neither options nor onMessage on an iPhone"
    )
  }

  func tap(_ userInfo: PhoneJSON) -> (leadsTo: String, rule: String) {
    ("app", "flutter-voice-sdk lib/service/ios_push_notification_handler.dart:48-54: no handler of taps")
  }

  func androidMessage(_ data: PhoneJSON, _ state: PhoneState, secondsLate: Double) -> PhoneOutcome {
    if data["message"]?.text?.lowercased() == "missed call!" { return missed(data) }
    // A string that is not a map of the SDK's members throws, and nothing is shown.
    guard let metadata = metadata(data) else { return .ignores("\(Self.showRule): an exception") }
    if secondsLate > (variant == .today ? 30 : 60) { return missed(data) }
    guard let callID = callID(metadata) else {
      if variant == .seed {
        return .rings(
          PhoneRing(callID: nil, caller: "", canBeAnswered: false),
          "SDK docs, \"Handle the push notification\": shows a call whatever comes")
      }
      return .ignores("\(Self.showRule) (:155-160): no call id")
    }
    return .rings(
      PhoneRing(
        callID: callID, caller: metadata["caller_name"]?.text ?? "Unknown Caller"),
      "\(Self.handlerRule); \(Self.showRule)")
  }

  /// Ends the ringing call and shows a missed call.
  private func missed(_ data: PhoneJSON) -> PhoneOutcome {
    guard let metadata = metadata(data), let callID = callID(metadata) else {
      return .ignores(Self.missedRule)
    }
    let caller = metadata["caller_name"]?.text ?? ""
    return PhoneOutcome(
      [.stops(callID: callID), .shows(title: caller, body: "Missed call", tap: "call back")], Self.missedRule)
  }

  /// `call_id`. Without it, today's app looks for a header in `dialogParams`, an object with a list of objects
  /// (notification_service.dart:70-103).
  private func callID(_ metadata: PhoneJSON) -> String? {
    if let own = metadata["call_id"]?.text, !own.isEmpty { return own }
    guard variant == .today, case .array(let headers)? = metadata["dialogParams"]?["custom_headers"] else { return nil }
    let id = headers.first { $0["name"]?.text == "X-RTC-CALLID" }?["value"]?.text
    return id?.isEmpty == false ? id : nil
  }

  private func metadata(_ data: PhoneJSON) -> PhoneJSON? {
    guard let value = data["metadata"] else { return .object([:]) }
    guard let text = value.text, let metadata = PhoneJSON(text.utf8), case .object = metadata else { return nil }
    return Self.isPushMetaData(metadata) ? metadata : nil
  }
}
