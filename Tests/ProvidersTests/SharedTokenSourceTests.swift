// Tests of a provider token that several replicas share.

import Runtime
import Synchronization
import Testing

@testable import Providers

@Suite("Shared provider tokens", .timeLimit(.minutes(10)))
struct SharedTokenSourceTests {
  /// The database's part, in memory.
  final class Store: SharedTokenStore {
    struct Unreachable: Error {}
    private let state = Mutex<(token: ProviderToken?, isDown: Bool)>((nil, false))
    func current(_ identity: String) async throws -> ProviderToken? {
      try state.withLock { state in
        if state.isDown { throw Unreachable() }
        return state.token
      }
    }
    func offer(_ token: ProviderToken, as identity: String, ageMin: Nanoseconds) async throws -> ProviderToken {
      try state.withLock { state in
        if state.isDown { throw Unreachable() }
        if let current = state.token, current.issuedAtMilliseconds > token.issuedAtMilliseconds - ageMin.milliseconds {
          return current
        }
        state.token = token
        return token
      }
    }
    func goDown() { state.withLock { $0.isDown = true } }
  }

  private let clock = SettableClock()
  private let store = Store()
  private let minted = Counter()

  final class Counter: Sendable {
    private let count = Mutex(0)
    func next() -> Int {
      count.withLock {
        $0 += 1; return $0
      }
    }
  }

  private func replica() -> SharedTokenSource {
    let (clock, minted) = (clock, minted)
    return SharedTokenSource(identity: "key", ageMin: .seconds(20 * 60), store: store, clock: clock) {
      _ throws(ProviderTokenError) in
      let now = clock.wallMilliseconds()
      return ProviderToken(
        value: Array("token-\(minted.next())".utf8), issuedAtMilliseconds: now, renewAtMilliseconds: now + 45 * 60_000)
    }
  }

  @Test
  func `eight connections of three replicas use one token in each period, however they race`() async throws {
    let replicas = (0..<3).map { _ in replica() }
    for _ in 0..<3 {
      let used = try await withThrowingTaskGroup(of: [UInt8].self) { group in
        for index in 0..<24 { group.addTask { try await replicas[index % 3].token(replacing: nil).value } }
        return try await group.reduce(into: Set<[UInt8]>()) { $0.insert($1) }
      }
      #expect(used.count == 1)
      clock.advance(minutes: 45)
    }
  }

  @Test
  func `a refused token is replaced only when it is 20 minutes old`() async throws {
    let source = replica()
    let first = try await source.token(replacing: nil)
    #expect(try await source.token(replacing: first) == first)
    clock.advance(minutes: 20)
    #expect(try await source.token(replacing: first) != first)
  }

  @Test
  func `while the database is unavailable the known token stays in use, and without one there is a clear error`()
    async throws
  {
    let source = replica()
    let first = try await source.token(replacing: nil)
    store.goDown()
    clock.advance(minutes: 46)
    #expect(try await source.token(replacing: nil) == first)
    await #expect(throws: ProviderTokenError.self) { try await replica().token(replacing: nil) }
  }
}
