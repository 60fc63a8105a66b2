// Where replicas share provider tokens: in the outbox databases.

import Providers
import Queue
import Runtime
import Synchronization

/// The databases that are served now, in the order of their names. All replicas ask them in this order, so that they find the same
/// tokens. While the first does not answer, the next one is asked.
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

  /// How long a database has until the next one is asked as well. Pushes may wait for the token.
  private static let patience = Duration.milliseconds(300)

  /// The answer of the first database that answers.
  ///
  /// - Throws: the error of the last one.
  func ask<Answer: Sendable>(
    _ question: @escaping @Sendable (PostgresOutbox) async throws(OutboxError) -> Answer
  ) async throws(OutboxError) -> Answer {
    // Nil: the database that was asked last has had its time. Not a task group, which would wait for the silent ones.
    let (answers, report) = AsyncStream<Result<Answer, OutboxError>?>.makeStream()
    var others = entries.withLock { $0 }[...]
    var waiting = 0
    func askNext() {
      guard let entry = others.popFirst() else { return }
      waiting += 1
      Task {
        do throws(OutboxError) {
          report.yield(.success(try await question(entry.outbox)))
        } catch {
          report.yield(.failure(error))
        }
      }
      Task {
        try? await Task.sleep(for: Self.patience)
        report.yield(nil)
      }
    }
    var failure = OutboxError(.unavailable, "no database is served yet")
    askNext()
    guard waiting > 0 else { throw failure }
    for await answer in answers {
      switch answer {
      case .success(let answer): return answer
      case .failure(let error):
        failure = error
        waiting -= 1
        askNext()
      case nil: askNext()
      }
      if waiting == 0 { break }
    }
    throw failure
  }
}

/// Keeps the tokens of one provider in `push.provider_tokens`.
struct OutboxTokenStore: SharedTokenStore {
  let stores: TokenStores
  let provider: ProviderKind

  func current(_ identity: String) async throws -> ProviderToken? {
    try await stores.ask { [provider] outbox throws(OutboxError) in
      try await outbox.providerToken(provider.rawValue, identity)
    }.map(ProviderToken.init)
  }

  func offer(_ token: ProviderToken, as identity: String, ageMin: Nanoseconds) async throws -> ProviderToken {
    let stored = StoredToken(
      value: token.value, mintedAtMilliseconds: token.issuedAtMilliseconds,
      renewAtMilliseconds: token.renewAtMilliseconds)
    return ProviderToken(
      try await stores.ask { [provider] outbox throws(OutboxError) in
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
