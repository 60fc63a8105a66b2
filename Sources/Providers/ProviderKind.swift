// The providers, by their names in SQL, in the configuration and in metrics, and what other modules must know of each.

/// The name of a provider. The order is that of the channels in the database (`push.channels`): the best comes first.
public enum ProviderKind: String, CaseIterable, Sendable {
  case apns
  case fcm
  case expo
  case webpush

  /// Its documented reasons: labels of metrics.
  public var reasons: [String] {
    switch self {
    case .apns: ProviderReasons.apns
    case .fcm: ProviderReasons.fcm
    case .expo: ProviderReasons.expo
    case .webpush: ProviderReasons.webpush
    }
  }

  /// Those who run push services behind it, each with a lane of its own; `[nil]` if one service takes all pushes.
  public var services: [WebPushService?] { self == .webpush ? WebPushService.allCases : [nil] }

  /// All names in one text, for messages: `apns, fcm, expo or webpush`.
  /// - Parameter conjunction: the word before the last name.
  public static func names(_ conjunction: String = "or") -> String {
    let names = allCases.map(\.rawValue)
    return names.dropLast().joined(separator: ", ") + " \(conjunction) " + names[names.count - 1]
  }
}
