// One token for all replicas: minted by whoever needs it first, taken from the database by the others.

public import Runtime
internal import Synchronization

/// Where replicas keep the tokens they share.
public protocol SharedTokenStore: Sendable {
  /// The token in use, or nil when there is none.
  func current(_ identity: String) async throws -> ProviderToken?
  /// Offers a new token; returns the one in use, which is another when that is not older by `ageMin`.
  func offer(_ token: ProviderToken, as identity: String, ageMin: Nanoseconds) async throws -> ProviderToken
}

/// Gives the shared token, and mints the next one when it is due.
///
/// A token that was minted and not taken is never shown to the provider: so a key has one new token in `ageMin`, however many
/// replicas there are. While the store cannot be reached the last known token is used as long as it is good.
public final class SharedTokenSource: ProviderTokenSource {
  private let identity: String
  private let ageMin: Nanoseconds
  private let store: any SharedTokenStore
  private let clock: any GatewayClock
  private let mint: @Sendable (_ refused: ProviderToken?) async throws(ProviderTokenError) -> ProviderToken
  private let known = Mutex<ProviderToken?>(nil)

  /// - Parameters:
  ///   - identity: whose token it is; the same in every replica.
  ///   - ageMin: the age below which a token is not replaced.
  ///   - mint: makes a new token, given the one the provider refused.
  public init(
    identity: String, ageMin: Nanoseconds, store: any SharedTokenStore, clock: any GatewayClock = SystemClock(),
    mint: @escaping @Sendable (_ refused: ProviderToken?) async throws(ProviderTokenError) -> ProviderToken
  ) {
    self.identity = identity
    self.ageMin = ageMin
    self.store = store
    self.clock = clock
    self.mint = mint
  }

  public func token(replacing refused: ProviderToken?) async throws(ProviderTokenError) -> ProviderToken {
    if let token = known.withLock({ $0 }), isFresh(token, refused) { return token }
    let failure: String
    do {
      if let token = try await store.current(identity), isFresh(token, refused) { return keep(token) }
      return keep(try await store.offer(try await mint(refused), as: identity, ageMin: ageMin))
    } catch let error as ProviderTokenError {
      throw error
    } catch {
      failure = "\(error)"
    }
    if let token = known.withLock({ $0 }), token != refused { return token }
    throw ProviderTokenError("the shared token cannot be read: \(failure)")
  }

  private func keep(_ token: ProviderToken) -> ProviderToken {
    known.withLock { $0 = token }
    return token
  }

  private func isFresh(_ token: ProviderToken, _ refused: ProviderToken?) -> Bool {
    let now = clock.wallMilliseconds()
    return token.value != refused?.value && now < token.renewAtMilliseconds
      && token.issuedAtMilliseconds <= now + 300_000
  }
}
