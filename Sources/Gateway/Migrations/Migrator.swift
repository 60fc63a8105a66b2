// Brings the schema up to date: forward only, each migration in a transaction of its own, one replica at a time.

internal import Queue

/// Applies migrations and remembers them in `push.schema_migration`.
struct Migrator: Sendable {
  /// What a database says it has.
  struct Applied: Equatable, Sendable {
    var version: Int32
    var name: String
    var checksum: String
  }

  /// In order of their versions.
  let migrations: [Migration]

  init(migrations: [Migration] = Migration.embedded) {
    self.migrations = migrations
  }

  /// Applies what is missing. Several replicas may do so at once: one works, the others wait and then find nothing to do.
  ///
  /// - Parameter report: told of each migration when it has been applied.
  /// - Throws: `MigrationError`, or `PostgresError` where the server cannot be asked.
  func migrate(_ connection: PostgresConnection, report: (Migration) -> Void = { _ in }) async throws {
    _ = try await connection.query(Self.lock)
    do {
      try await applyPending(connection, report)
    } catch {
      _ = try? await connection.query(Self.unlock)
      throw error
    }
    _ = try await connection.query(Self.unlock)
  }

  /// What is missing, without applying anything: for a gateway that starts.
  func pending(on connection: PostgresConnection) async throws -> [Migration] {
    guard try await connection.query(Self.exists).bool(0, 0) else { return migrations }
    return try pending(after: try await applied(on: connection))
  }

  /// The decision: what is left to apply to a database that has this.
  func pending(after applied: [Applied]) throws(MigrationError) -> [Migration] {
    for entry in applied {
      guard let ours = migrations.first(where: { $0.version == entry.version }) else {
        throw .unknown(Migration(version: entry.version, name: entry.name, sql: "").title)
      }
      guard ours.checksum == entry.checksum else { throw .changed(ours.title) }
    }
    let last = applied.map(\.version).max() ?? 0
    let pending = migrations.filter { migration in !applied.contains { $0.version == migration.version } }
    if let skipped = pending.first(where: { $0.version < last }) { throw .skipped(skipped.title) }
    return pending
  }

  private func applyPending(_ connection: PostgresConnection, _ report: (Migration) -> Void) async throws {
    try await connection.script(Self.table)
    for migration in try pending(after: try await applied(on: connection)) {
      do throws(PostgresError) {
        try await connection.script(Self.script(migration))
      } catch {
        throw MigrationError.failed(migration.title, reason: error.description)
      }
      report(migration)
    }
  }

  private func applied(on connection: PostgresConnection) async throws -> [Applied] {
    let rows = try await connection.query(Self.list)
    return (0..<rows.rowCount).map {
      Applied(version: rows.int32($0, 0), name: rows.text($0, 1), checksum: rows.text($0, 2))
    }
  }

  // MARK: - SQL

  /// The statements of one message are one transaction, so a migration and its row are there together or not at all.
  private static func script(_ migration: Migration) -> String {
    """
    \(migration.sql)
    insert into push.schema_migration (version, name, checksum, took_ms)
      values (\(migration.version), '\(migration.name)', '\\x\(migration.checksum)',
        extract(epoch from clock_timestamp() - transaction_timestamp()) * 1000);
    """
  }

  /// The keys of the lock are ours alone in a database: 'push' and 'sche' as numbers.
  private static let lock = PostgresStatement(
    name: "migrate_lock", sql: "select pg_advisory_lock(1886745448, 1935894629)")
  private static let unlock = PostgresStatement(
    name: "migrate_unlock", sql: "select pg_advisory_unlock(1886745448, 1935894629)")
  private static let exists = PostgresStatement(
    name: "migrate_exists", sql: "select to_regclass('push.schema_migration') is not null")
  private static let list = PostgresStatement(
    name: "migrate_list",
    sql: "select version, name, encode(checksum, 'hex') from push.schema_migration order by version")

  private static let table = """
    set client_min_messages = warning;
    create schema if not exists push;
    create table if not exists push.schema_migration (
      version    int primary key,
      name       text not null,
      checksum   bytea not null,
      applied_at timestamptz not null default clock_timestamp(),
      took_ms    int not null,
      constraint schema_migration_version_positive check (version > 0),
      constraint schema_migration_checksum_sha256 check (length(checksum) = 32)
    );
    comment on table push.schema_migration is 'one migration that was applied; written by push-gateway migrate';
    comment on column push.schema_migration.version is 'number of the file in migrations/';
    comment on column push.schema_migration.name is 'name of the file without number and ending';
    comment on column push.schema_migration.checksum is 'SHA-256 of the file as it was applied';
    comment on column push.schema_migration.applied_at is 'when';
    comment on column push.schema_migration.took_ms is 'how long it took, in milliseconds';
    """
}
