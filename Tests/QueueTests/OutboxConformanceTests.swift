import TestSupport
import Testing

@Suite("Outbox in Postgres: the rules of every store", .timeLimit(.minutes(10)))
struct OutboxConformanceTests {
  @Test("it keeps them", arguments: OutboxStoreConformance.rules)
  func rule(_ rule: OutboxStoreRule) async throws {
    try await PostgresServerUnderTest.with { try await rule.check($0) }
  }
}
