// Where the token comes from that proves to a provider who we are.

/// A signed token, as the `authorization` header carries it after its scheme.
public struct ProviderToken: Sendable, Equatable {
  /// ASCII; a secret: never in a log line or an error.
  public let value: [UInt8]
  /// When it was issued: milliseconds since 1970.
  public let issuedAtMilliseconds: Int64
  /// When to ask for the next one: milliseconds since 1970.
  public let renewAtMilliseconds: Int64

  public init(value: [UInt8], issuedAtMilliseconds: Int64, renewAtMilliseconds: Int64) {
    self.value = value
    self.issuedAtMilliseconds = issuedAtMilliseconds
    self.renewAtMilliseconds = renewAtMilliseconds
  }
}

/// Why there is no token. Holds no secret.
public struct ProviderTokenError: Error, Sendable, CustomStringConvertible {
  public let description: String
  public init(_ description: String) { self.description = description }
}

/// Gives the token that is to be used now. One source serves every connection of a key; a source that keeps its token
/// in the database serves every replica.
public protocol ProviderTokenSource: Sendable {
  /// The current token; a new one if there is none, if it is due to be renewed, or if the provider refused `refused`,
  /// which is still the current one, and its age allows another. May give `refused` again when it is too young to be
  /// replaced.
  ///
  /// - Throws: `ProviderTokenError` when no token can be had.
  func token(replacing refused: ProviderToken?) async throws(ProviderTokenError) -> ProviderToken
}
