// The providers a lane may lead to, by the names they have in SQL, in the configuration and in metrics.

/// A provider, by its name.
public enum ProviderKind: String, CaseIterable, Sendable {
  case apns
  case fcm
  case expo

  /// The most bytes a rendered body may have (docs/protocols.md §§1–3). The key and value texts of an FCM `data` object are
  /// counted with their quotes, the Expo message with everything the dialect puts into it.
  func bodyLimit(for kind: PushTemplateKind) -> Int {
    self == .apns && kind == .invite ? 5120 : 4096
  }
}
