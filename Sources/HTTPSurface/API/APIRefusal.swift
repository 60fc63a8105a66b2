// Why a request is not let in, as logs and metrics say it.

/// What was wrong with the key of a request, or with how it was used.
struct APIRefusal: Equatable, Sendable {
  enum Reason: String, CaseIterable, Sendable {
    case noKey = "no_key"
    /// It has not the form of a key, or there is none of its number.
    case unknownKey = "unknown_key"
    /// There is a key of its number, and it is another one.
    case wrongSecret = "wrong_secret"
    case revoked, expired
    /// It may not be used from where the request came from.
    case address
    case scope
    /// Its peer has shown too many keys that are not good.
    case guessing
    /// It is used too often, or has too many requests under way.
    case rate

    /// Whether somebody may cause it who has no key.
    var isOfStranger: Bool {
      switch self {
      case .noKey, .unknownKey, .wrongSecret, .guessing: true
      case .revoked, .expired, .address, .scope, .rate: false
      }
    }
  }

  var reason: Reason
  /// The key that was meant; nil where there is none.
  var keyID: Int32?
}
