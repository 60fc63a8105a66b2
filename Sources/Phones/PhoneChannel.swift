// The channels of Android, in one of which every notification is shown. The channel alone decides about the sound.

/// A channel on a phone.
public struct PhoneChannel: Equatable, Sendable {
  public var id: String
  /// Whether it plays the tone with which the app rings.
  public var playsRingTone: Bool

  public init(id: String, playsRingTone: Bool) {
    self.id = id
    self.playsRingTone = playsRingTone
  }

  /// Where expo-notifications shows what names no channel that the app has made (BaseNotificationBuilder.kt, channelId).
  public static let fallback = PhoneChannel(
    id: "expo_notifications_fallback_notification_channel", playsRingTone: false)
}

extension Phone {
  /// The channel in which the phone shows a push; nil if it shows none. Only Porteiro's channels are modelled.
  public func channel(of push: PhonePush) -> PhoneChannel? {
    let isShown = receives(push).reactions.contains { if case .shows = $0 { true } else { false } }
    guard system == .porteiro, platform == .android, isShown else { return nil }
    let named = push.channel == .expo ? push.message["channelId"] : push.message["data"]?["channelId"]
    return PorteiroApp.channels.first { $0.id == named?.text } ?? .fallback
  }
}

extension PorteiroApp {
  /// porteiroapp apps/expo/services/notification/notificationHandler.ts:68-122
  static let channels =
    ["default", "visitor", "delivery", "emergency", "intercom_call"].map { PhoneChannel(id: $0, playsRingTone: true) }
    + [PhoneChannel(id: "call", playsRingTone: false)]
}
