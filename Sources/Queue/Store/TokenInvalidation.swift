// A dead token, as the outbox is told of it.

/// A token that its provider called dead.
public struct TokenInvalidation: Sendable {
  /// `push.lane.id`: which app's token at which provider.
  public var lane: Int16
  public var token: ArraySlice<UInt8>
  /// When it died according to the provider, in milliseconds since 1970. A token registered later is not affected.
  public var since: Int64?
  public var reason: String

  public init(lane: Int16, token: ArraySlice<UInt8>, since: Int64?, reason: String) {
    self.lane = lane
    self.token = token
    self.since = since
    self.reason = reason
  }
}
