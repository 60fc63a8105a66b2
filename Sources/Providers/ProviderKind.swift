// The providers a lane may lead to, by the names they have in SQL, in the configuration and in metrics.

/// A provider, by its name.
public enum ProviderKind: String, CaseIterable, Sendable {
  case apns
  case fcm
  case expo
}
