// The interface that the models of all apps share.

/// The code of one app.
protocol PhoneApp: Sendable {
  /// PushKit's handler.
  func voip(_ payload: PhoneJSON) -> PhoneOutcome
  /// An alert that arrives while the app is in the foreground.
  func presents(_ userInfo: PhoneJSON) -> PhoneOutcome
  /// What a tap on a notification opens.
  func tap(_ userInfo: PhoneJSON) -> (leadsTo: String, rule: String)
  /// An iPhone's app that received a push without an alert.
  func wakes(_ userInfo: PhoneJSON, _ state: PhoneState) -> PhoneOutcome
  /// What the app does in the background when iOS wakes it for an alert; nil for nothing.
  func wakesBesides(_ userInfo: PhoneJSON, _ state: PhoneState) -> PhoneOutcome?
  /// FCM data on Android.
  func androidMessage(_ data: PhoneJSON, _ state: PhoneState, secondsLate: Double) -> PhoneOutcome
  /// Expo's `data` on Android. `message` has the texts to show.
  func expoTask(_ data: PhoneJSON, _ state: PhoneState, message: PhoneJSON) -> PhoneOutcome
  /// The id by which the app or CallKit recognizes a ringing call; nil if each push makes a new call.
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

  /// Whether it is a UUID in the form of CallKeep's events.
  static func isLowercase(_ text: String) -> Bool { isOne(text) && text == text.lowercased() }
}
