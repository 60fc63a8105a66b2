// The VAPID tokens for one push service. They are signed in this process: RFC 8292 does not limit their number.

internal import Runtime
internal import Synchronization

/// Signs a token for one origin, and keeps it for half of its lifetime.
final class WebPushTokenSource: ProviderTokenSource {
  /// Age at which a token is renewed.
  static let renewalAge = Nanoseconds.seconds(6 * 3600)

  private let credentials: WebPushCredentials
  private let origin: WebPushOrigin
  private let clock: any GatewayClock
  private let current = Mutex<ProviderToken?>(nil)

  init(_ credentials: WebPushCredentials, for origin: WebPushOrigin, clock: any GatewayClock) {
    self.credentials = credentials
    self.origin = origin
    self.clock = clock
  }

  func token(replacing refused: ProviderToken?) async throws(ProviderTokenError) -> ProviderToken {
    let now = clock.wallMilliseconds()
    let result: Result<ProviderToken, ProviderTokenError> = current.withLock { current in
      // If the clock was set back, the token was issued in the future, and it would expire too late.
      if let token = current, token != refused, now >= token.issuedAtMilliseconds, now < token.renewAtMilliseconds {
        return .success(token)
      }
      do throws(SigningKeyError) {
        let token = ProviderToken(
          value: try credentials.mint(for: origin, issuedAtSeconds: now / 1000), issuedAtMilliseconds: now,
          renewAtMilliseconds: now + Self.renewalAge.milliseconds)
        current = token
        return .success(token)
      } catch {
        return .failure(ProviderTokenError("no VAPID token for \(origin.host): \(error)"))
      }
    }
    return try result.get()
  }
}
