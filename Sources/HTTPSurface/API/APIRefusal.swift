// Why a request was refused because of its key or its use, as logs and metrics name it.

/// What was wrong with the key of a request, or with its use.
struct APIRefusal: Equatable, Sendable {
  enum Reason: String, CaseIterable, Sendable {
    case noKey = "no_key"
    /// It does not have the form of a key, or no key has its number.
    case unknownKey = "unknown_key"
    /// A key has its number, but another secret.
    case wrongSecret = "wrong_secret"
    case revoked, expired
    /// The key may not be used from the address of the request.
    case address
    /// A path that needs no key may not be used from the address of the request.
    case network
    case scope
    /// The peer has shown too many wrong keys.
    case guessing
    /// The key sends too many requests a second, or has too many in flight.
    case rate
    /// The app of the key has used up its quota.
    case quota

    /// Whether a client without a key can cause it.
    var isUnauthenticated: Bool {
      switch self {
      case .noKey, .unknownKey, .wrongSecret, .guessing, .network: true
      case .revoked, .expired, .address, .scope, .rate, .quota: false
      }
    }
  }

  var reason: Reason
  /// The key with the number that was shown; nil if there is none.
  var keyID: Int32?
}
