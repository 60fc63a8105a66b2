// The two environments of APNs.

/// The APNs environment a token belongs to; other providers have none. The raw values are the codes of
/// `push.delivery.environment`.
public enum PushEnvironment: UInt8, Sendable {
  case production = 0
  case sandbox = 1

  /// The other environment.
  public var other: PushEnvironment {
    switch self {
    case .production: .sandbox
    case .sandbox: .production
    }
  }
}
