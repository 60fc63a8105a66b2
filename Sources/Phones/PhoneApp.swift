// What the readers of the apps have in common.

/// One app's own code.
protocol PhoneApp: Sendable {
  /// PushKit's handler.
  func voip(_ payload: PhoneJSON) -> PhoneOutcome
  /// An alert that comes while the app is in front.
  func presents(_ userInfo: PhoneJSON) -> PhoneOutcome
  /// Where touching a notification leads.
  func tap(_ userInfo: PhoneJSON) -> (leadsTo: String, rule: String)
  /// An iPhone's app that was handed a push without an alert.
  func wakes(_ userInfo: PhoneJSON, _ state: PhoneState) -> PhoneOutcome
  /// What the app does behind when iOS wakes it beside an alert; nil for nothing.
  func wakesBesides(_ userInfo: PhoneJSON, _ state: PhoneState) -> PhoneOutcome?
  /// FCM data on Android.
  func androidMessage(_ data: PhoneJSON, _ state: PhoneState, secondsLate: Double) -> PhoneOutcome
  /// Expo's `data` on Android; `message` has what would be shown.
  func expoTask(_ data: PhoneJSON, _ state: PhoneState, message: PhoneJSON) -> PhoneOutcome
  /// By which id the app, or CallKit, knows a ringing call again; nil where each push makes another call.
  func id(of ring: PhoneRing, over channel: PhonePush.Channel, _ state: PhoneState) -> String?
}

extension PhoneApp {
  func id(of ring: PhoneRing, over channel: PhonePush.Channel, _ state: PhoneState) -> String? { ring.callID }

  func expoTask(_ data: PhoneJSON, _ state: PhoneState, message: PhoneJSON) -> PhoneOutcome {
    .ignores("the app does not use Expo")
  }

  func wakes(_ userInfo: PhoneJSON, _ state: PhoneState) -> PhoneOutcome {
    PhoneOutcome([.wakes], "iOS wakes the app, whose handler does nothing with it")
  }

  func wakesBesides(_ userInfo: PhoneJSON, _ state: PhoneState) -> PhoneOutcome? { nil }

  /// A banner over the app, as iOS and most apps do.
  func banner(_ userInfo: PhoneJSON, _ rule: String) -> PhoneOutcome {
    let (title, body) = Phone.texts(of: userInfo["aps"]?["alert"] ?? .null)
    return PhoneOutcome([.shows(title: title, body: body, tap: tap(userInfo).leadsTo)], rule)
  }
}

enum PhoneUUID {
  /// What `UUID(uuidString:)` and `initWithUUIDString:` take.
  static func isOne(_ text: String) -> Bool {
    let parts = text.split(separator: "-", omittingEmptySubsequences: false)
    return parts.map(\.utf8.count) == [8, 4, 4, 4, 12] && parts.joined().allSatisfy(\.isHexDigit)
  }

  /// Whether it is one as CallKeep's events have them.
  static func isLowercase(_ text: String) -> Bool { isOne(text) && text == text.lowercased() }
}
