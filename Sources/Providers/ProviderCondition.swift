// How a provider's connections are, for metrics.

public import Runtime

/// Connections, goodbyes and credentials of one provider.
public struct ProviderCondition: Sendable, Equatable {
  /// Connections that carry requests, those that finish their last ones included. Of Expo: requests under way, for its
  /// connections are libcurl's.
  public var openConnections = 0
  /// Connections being made.
  public var connectingConnections = 0
  /// GOAWAY frames of the server, by reason (`ProviderReasons.goAways`), since the start.
  public var goAways: [String: Int] = [:]
  /// Connections that had to be replaced, by reason, since the start. Of Expo none are known: libcurl replaces its own.
  public var replacements: [ConnectionReplacement: Int] = [:]
  /// Invites that were sent once more over another connection, since the start.
  public var hedged = 0
  /// For how long requests have gone unanswered, all of them; zero while all is well.
  public var unanswered = Nanoseconds.zero
  /// When the token in use was issued, in milliseconds since 1970; nil while there is none, and where there never is.
  public var tokenIssuedAtMilliseconds: Int64?

  public init() {}
}
