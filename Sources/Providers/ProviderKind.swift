// The providers, by their names in SQL, in the configuration and in metrics.

/// The name of a provider.
public enum ProviderKind: String, CaseIterable, Sendable {
  case apns
  case fcm
  case expo
}
