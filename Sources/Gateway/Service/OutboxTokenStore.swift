// Stores provider tokens in the outbox's database, so that replicas share them.

import Providers
import Queue
import Runtime

/// Keeps the tokens of one provider in `push.provider_tokens`.
struct OutboxTokenStore: SharedTokenStore {
  let outbox: PostgresOutbox
  let provider: ProviderKind

  func current(_ identity: String) async throws -> ProviderToken? {
    try await outbox.providerToken(provider.rawValue, identity).map(ProviderToken.init)
  }

  func offer(_ token: ProviderToken, as identity: String, ageMin: Nanoseconds) async throws -> ProviderToken {
    let stored = StoredToken(
      value: token.value, mintedAtMilliseconds: token.issuedAtMilliseconds,
      renewAtMilliseconds: token.renewAtMilliseconds)
    return ProviderToken(try await outbox.offer(stored, provider.rawValue, identity, ageMin: ageMin))
  }
}

extension ProviderToken {
  fileprivate init(_ stored: StoredToken) {
    self.init(
      value: stored.value, issuedAtMilliseconds: stored.mintedAtMilliseconds,
      renewAtMilliseconds: stored.renewAtMilliseconds)
  }
}
