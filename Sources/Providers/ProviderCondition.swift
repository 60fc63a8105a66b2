// The state of a provider's connections, for metrics.

public import Runtime

/// Connections, GOAWAY frames and credentials of one provider.
public struct ProviderCondition: Sendable, Equatable {
  /// Number of open connections, including draining ones. For Expo: number of requests under way, because libcurl manages its
  /// connections.
  public var openConnections = 0
  /// Number of connections being opened.
  public var connectingConnections = 0
  /// Number of GOAWAY frames of the server since the start, by reason (`ProviderReasons.goAways`).
  public var goAways: [String: Int] = [:]
  /// Number of connections that had to be replaced since the start, by reason. Always empty for Expo: libcurl replaces its
  /// connections itself.
  public var replacements: [ConnectionReplacement: Int] = [:]
  /// Number of invites that were sent a second time over another connection, since the start.
  public var hedged = 0
  /// For how long no request has been answered; zero while answers arrive as usual.
  public var unanswered = Nanoseconds.zero
  /// For how long nothing could be sent to APNs or FCM for lack of a connection; zero while something can. Always zero for the others.
  public var unconnected = Nanoseconds.zero
  /// When the token in use was issued, in milliseconds since 1970; nil while there is none. Always nil for Expo.
  public var tokenIssuedAtMilliseconds: Int64?
  /// Why the provider does not accept the credentials in use: the reason of its last answer, or the code with which the token endpoint
  /// refuses them; nil once they were accepted, and while nothing is known. Always nil for Expo and web push.
  public var refusal: String?
  /// Whether there is no token because of `refusal`, so that nothing can be sent.
  public var isWithoutToken = false
  /// Why the provider does not accept its new credentials, so that the former ones are still used; nil if they are in use.
  public var refusedCredentials: String?

  public init() {}

  /// How long a connection may take to be replaced before that is worth a remark. The server may close an idle one at any time.
  private static let patience = Nanoseconds.seconds(5)

  /// A few words if the provider does not answer, or cannot be reached; nil if it does, and while `refusal` is why there is no connection.
  public var silence: String? {
    if unanswered > .zero { return "no request was answered for \(unanswered.milliseconds / 1_000) s" }
    guard unconnected > Self.patience, !isWithoutToken else { return nil }
    return "no connection for \(unconnected.milliseconds / 1_000) s"
  }
}
