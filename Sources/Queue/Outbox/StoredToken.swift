// A provider token as `push.provider_tokens` keeps it.

/// A secret: never in a log line or an error.
public struct StoredToken: Sendable {
  /// ASCII.
  public var value: [UInt8]
  /// Milliseconds since 1970.
  public var mintedAtMilliseconds: Int64
  /// When to make the next token: milliseconds since 1970.
  public var renewAtMilliseconds: Int64

  public init(value: [UInt8], mintedAtMilliseconds: Int64, renewAtMilliseconds: Int64) {
    self.value = value
    self.mintedAtMilliseconds = mintedAtMilliseconds
    self.renewAtMilliseconds = renewAtMilliseconds
  }

  init(_ result: PostgresResult) {
    self.init(
      value: result.bytes(0, 0), mintedAtMilliseconds: result.timestamp(0, 1) / 1000,
      renewAtMilliseconds: result.timestamp(0, 2) / 1000)
  }
}
