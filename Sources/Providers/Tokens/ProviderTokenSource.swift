// The source of the token that authenticates us to a provider.

/// A signed token: the text after the scheme in the `authorization` header.
public struct ProviderToken: Sendable, Equatable {
  /// ASCII. A secret: never part of a log line or an error.
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

/// Why there is no token. Contains no secret.
public struct ProviderTokenError: Error, Sendable, CustomStringConvertible {
  public let description: String
  /// The error code with which the provider refuses the credentials; nil if it was not asked, or gave no such answer.
  public let refusal: String?

  public init(_ description: String, refusal: String? = nil) {
    self.description = description
    self.refusal = refusal
  }
}

/// Returns the token to use now. One source serves all connections of a key. A source that keeps its token in the database serves
/// all replicas.
public protocol ProviderTokenSource: Sendable {
  /// Returns the current token. Returns a new token in three cases: there is none, it is due for renewal, or the provider refused
  /// it (`refused`) and its age allows a replacement. If `refused` is too young to be replaced, it may be returned again.
  ///
  /// - Throws: `ProviderTokenError` if no token can be obtained.
  func token(replacing refused: ProviderToken?) async throws(ProviderTokenError) -> ProviderToken
}
