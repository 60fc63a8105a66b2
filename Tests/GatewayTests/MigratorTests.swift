// Migrations: the decision by itself, and the work against a real Postgres.

import Foundation
import Queue
import Runtime
import TestSupport
import Testing

@testable import Gateway

@Suite(.timeLimit(.minutes(2))) struct MigratorTests {
  private static let one = Migration(version: 1, name: "one", sql: "create table push.one (id int);")
  private static let two = Migration(version: 2, name: "two", sql: "create table push.two (id int);")
  private static let three = Migration(version: 3, name: "three", sql: "create table push.three (id int);")

  private func applied(_ migration: Migration) -> Migrator.Applied {
    Migrator.Applied(version: migration.version, name: migration.name, checksum: migration.checksum)
  }

  // MARK: The decision

  @Test func `what was not applied is left, in order`() throws {
    let migrator = Migrator(migrations: [Self.one, Self.two, Self.three])
    #expect(try migrator.pending(after: []) == [Self.one, Self.two, Self.three])
    #expect(try migrator.pending(after: [applied(Self.one)]) == [Self.two, Self.three])
    #expect(try migrator.pending(after: [Self.one, Self.two, Self.three].map(applied)) == [])
  }

  @Test func `an edited migration is refused`() {
    var edited = Self.one
    edited.sql += " "
    #expect(throws: MigrationError.changed("0001_one")) {
      try Migrator(migrations: [edited, Self.two]).pending(after: [applied(Self.one)])
    }
  }

  @Test func `a newer version's database is refused`() {
    #expect(throws: MigrationError.unknown("0003_three")) {
      try Migrator(migrations: [Self.one, Self.two]).pending(after: [Self.one, Self.two, Self.three].map(applied))
    }
  }

  @Test func `a gap is refused`() {
    #expect(throws: MigrationError.skipped("0001_one")) {
      try Migrator(migrations: [Self.one, Self.two]).pending(after: [applied(Self.two)])
    }
  }

  // MARK: What the binary carries

  @Test func `the binary carries migrations/ as it is: if not, run scripts/embed-migrations.sh`() throws {
    let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent().appendingPathComponent("migrations")
    let files = try FileManager.default.contentsOfDirectory(atPath: folder.path).filter { $0.hasSuffix(".sql") }
      .sorted()
    #expect(!files.isEmpty)
    #expect(Migration.embedded.map { $0.title + ".sql" } == files)
    for (migration, file) in zip(Migration.embedded, files) {
      let text = try String(contentsOf: folder.appendingPathComponent(file), encoding: .utf8)
      #expect(migration.sql == text, "\(file)")
    }
    #expect(Migration.embedded.map(\.version) == Array(1...Int32(files.count)))
  }

  // MARK: Against Postgres

  @Test func `the shipped schema applies to an empty database, and then there is nothing to do`() async throws {
    try await TestDatabase.with(isMigrated: false) { database in
      let connection = try await database.connect()
      let migrator = Migrator()
      #expect(try await migrator.pending(on: connection) == Migration.embedded)
      var titles: [String] = []
      try await migrator.migrate(connection) { titles.append($0.title) }
      #expect(titles == Migration.embedded.map(\.title))
      #expect(try await migrator.pending(on: connection) == [])
      titles = []
      try await migrator.migrate(connection) { titles.append($0.title) }
      #expect(titles == [])
      let rows = try await connection.query(
        PostgresStatement(
          name: "t",
          sql: "select count(*), bool_and(took_ms >= 0 and applied_at <= clock_timestamp()) from push.schema_migration")
      )
      #expect(rows.int64(0, 0) == Int64(Migration.embedded.count))
      #expect(rows.bool(0, 1))
      await connection.close()
    }
  }

  @Test func `several replicas at once apply each migration exactly once`() async throws {
    try await TestDatabase.with(isMigrated: false) { database in
      let titles = try await withThrowingTaskGroup(of: [String].self) { group in
        for _ in 0..<6 {
          group.addTask {
            let connection = try await database.connect()
            var titles: [String] = []
            try await Migrator().migrate(connection) { titles.append($0.title) }
            await connection.close()
            return titles
          }
        }
        return try await group.reduce([]) { $0 + $1 }
      }
      #expect(titles == Migration.embedded.map(\.title))
    }
  }

  @Test func `a migration that fails leaves nothing, and what came before it stays`() async throws {
    try await TestDatabase.with(isMigrated: false) { database in
      let connection = try await database.connect()
      let broken = Migration(version: 2, name: "two", sql: "create table push.two (id int); select 1 / 0;")
      let error = await #expect(throws: MigrationError.self) {
        try await Migrator(migrations: [Self.one, broken]).migrate(connection)
      }
      #expect(error?.description.contains("0002_two") == true)
      let rows = try await connection.query(
        PostgresStatement(
          name: "t",
          sql:
            "select to_regclass('push.one') is not null, to_regclass('push.two') is null, count(*) from push.schema_migration"
        ))
      #expect(rows.bool(0, 0) && rows.bool(0, 1) && rows.int64(0, 2) == 1)
      // The lock was given back: another connection gets through, and mends it.
      let other = try await database.connect()
      try await Migrator(migrations: [Self.one, Self.two]).migrate(other)
      #expect(try await Migrator(migrations: [Self.one, Self.two]).pending(on: other) == [])
      await other.close()
      await connection.close()
    }
  }

  @Test func `a database that was migrated with other content is refused and left alone`() async throws {
    try await TestDatabase.with(isMigrated: false) { database in
      let connection = try await database.connect()
      try await Migrator(migrations: [Self.one, Self.two]).migrate(connection)
      var edited = Self.one
      edited.sql += "\n"
      await #expect(throws: MigrationError.changed("0001_one")) {
        try await Migrator(migrations: [edited, Self.two, Self.three]).migrate(connection)
      }
      await #expect(throws: MigrationError.unknown("0002_two")) {
        try await Migrator(migrations: [Self.one]).migrate(connection)
      }
      let rows = try await connection.query(
        PostgresStatement(name: "t", sql: "select to_regclass('push.three') is null"))
      #expect(rows.bool(0, 0))
      await connection.close()
    }
  }
}
