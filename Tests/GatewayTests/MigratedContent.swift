// The schema for tests with a gateway, which refuses a database without the records of its migrations.

import Queue
import Settings
import TestSupport

@testable import Gateway

extension TestDatabase.Content {
  /// The schema as `push-gateway migrate` leaves it.
  static let migrated = TestDatabase.Content(
    name: "migrated",
    scripts: Migration.embedded.map(\.sql) + FunctionsFile.embedded.map(\.sql) + [GatewayVersion.current]
  ) { try await $0.migrateAsGateway() }
}

extension TestDatabase {
  /// Does in an empty database what `push-gateway migrate` does.
  func migrateAsGateway() async throws {
    let connection = try await connect()
    try await Migrator().migrate(connection)
    await connection.close()
  }
}
