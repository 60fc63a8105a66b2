// How large a rendered body may be.

internal import Providers

extension ProviderKind {
  /// Maximum number of bytes of a rendered body (docs/protocols.md §§1–3). The key and value texts of an FCM `data` object are
  /// counted with their quotes, the Expo message with everything the dialect puts into it.
  func bodyLimit(for kind: PushTemplateKind) -> Int {
    self == .apns && kind == .invite ? 5120 : 4096
  }
}
