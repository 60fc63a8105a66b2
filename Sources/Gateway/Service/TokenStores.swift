// Where replicas share provider tokens: in the outbox databases.

import Providers
import Queue
import Runtime
import Synchronization

/// The databases that are served now, in the order of their names. All replicas ask them in this order, so that they find the same
/// tokens. If the first does not answer, the next one is asked.
final class TokenStores: Sendable {
  private struct Entry {
    let database: String
    let number: Int
    let outbox: PostgresOutbox
  }

  private let entries = Mutex<[Entry]>([])

  /// - Parameter number: identifies the outbox among those of its database; the newest is used.
  func add(_ outbox: PostgresOutbox, database: String?, number: Int) {
    entries.withLock { entries in
      entries.append(Entry(database: database ?? "", number: number, outbox: outbox))
      entries.sort { $0.database == $1.database ? $0.number > $1.number : $0.database < $1.database }
    }
  }

  func remove(number: Int) { entries.withLock { $0.removeAll { $0.number == number } } }

  /// The answer of the first database that answers.
  ///
  /// - Throws: the error of the last one.
  func ask<Answer: Sendable>(
    _ question: (PostgresOutbox) async throws(OutboxError) -> Answer
  ) async throws(OutboxError) -> Answer {
    var failure = OutboxError(.unavailable, "no database is served yet")
    for entry in entries.withLock({ $0 }) {
      do throws(OutboxError) {
        return try await question(entry.outbox)
      } catch {
        failure = error
      }
    }
    throw failure
  }
}

/// Keeps the tokens of one provider in `push.provider_tokens`.
struct OutboxTokenStore: SharedTokenStore {
  let stores: TokenStores
  let provider: ProviderKind

  func current(_ identity: String) async throws -> ProviderToken? {
    try await stores.ask { outbox throws(OutboxError) in
      try await outbox.providerToken(provider.rawValue, identity)
    }.map(ProviderToken.init)
  }

  func offer(_ token: ProviderToken, as identity: String, ageMin: Nanoseconds) async throws -> ProviderToken {
    let stored = StoredToken(
      value: token.value, mintedAtMilliseconds: token.issuedAtMilliseconds,
      renewAtMilliseconds: token.renewAtMilliseconds)
    return ProviderToken(
      try await stores.ask { outbox throws(OutboxError) in
        try await outbox.offer(stored, provider.rawValue, identity, ageMin: ageMin)
      })
  }
}

extension ProviderToken {
  fileprivate init(_ stored: StoredToken) {
    self.init(
      value: stored.value, issuedAtMilliseconds: stored.mintedAtMilliseconds,
      renewAtMilliseconds: stored.renewAtMilliseconds)
  }
}
