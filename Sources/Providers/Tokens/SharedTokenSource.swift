// One token for all replicas. The first replica that needs it creates it; the others read it from the database.

public import Runtime
internal import Synchronization

/// The store of tokens shared by all replicas.
public protocol SharedTokenStore: Sendable {
  /// The token in use; nil if there is none.
  func current(_ identity: String) async throws -> ProviderToken?
  /// Offers a new token and returns the one in use. The new token is used only if it is newer than the current one by at least
  /// `ageMin`; otherwise the current one is returned.
  func offer(_ token: ProviderToken, as identity: String, ageMin: Nanoseconds) async throws -> ProviderToken
}

/// Returns the shared token, and creates the next one when it is due.
///
/// A created token that the store did not accept is never sent to the provider. A key therefore gets at most one new token in
/// `ageMin`, whatever the number of replicas. While the store cannot be reached, the last known token is used.
public final class SharedTokenSource: ProviderTokenSource {
  private let identity: String
  private let ageMin: Nanoseconds
  private let store: any SharedTokenStore
  private let clock: any GatewayClock
  private let mint: @Sendable (_ refused: ProviderToken?) async throws(ProviderTokenError) -> ProviderToken
  private let known = Mutex<ProviderToken?>(nil)

  /// - Parameters:
  ///   - identity: identifies the key of the token; the same in every replica.
  ///   - ageMin: minimum age of a token before it is replaced, as its provider demands; zero: a token that was refused is replaced at once.
  ///   - mint: creates a new token. The argument is the token that the provider refused, if any.
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
