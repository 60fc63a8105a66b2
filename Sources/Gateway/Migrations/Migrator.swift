// Brings the schema up to date: forward only, one replica at a time. First the tables, each migration in a transaction of
// its own; then the functions whose files have changed, all in one transaction.

internal import Queue
internal import Settings

/// Applies migrations and remembers them in `push.schema_migration`, and files of functions in `push.schema_functions`.
struct Migrator: Sendable {
  /// What a database says it has of the migrations.
  struct Applied: Equatable, Sendable {
    var version: Int32
    var name: String
    var checksum: String
  }

  /// What a database says it has of the functions.
  struct Recorded: Equatable, Sendable {
    var topic: String
    var checksum: String
    /// Of the push-gateway that applied the file.
    var release: String
  }

  /// What is left to do.
  struct Pending: Equatable, Sendable {
    var migrations: [Migration] = []
    var functions: [FunctionsFile] = []

    var titles: [String] { migrations.map(\.title) + functions.map(\.title) }
    var isEmpty: Bool { migrations.isEmpty && functions.isEmpty }
  }

  /// In order of their versions.
  let migrations: [Migration]
  /// In the order they are applied in. The last grants rights on what the others make.
  let functions: [FunctionsFile]
  /// Our own.
  let release: String
  /// How often a step is tried whose tables are locked.
  let lockTriesMax: Int
  /// The pause between two such tries, in which whoever waited behind the lock goes on.
  let lockPause: Duration

  init(
    migrations: [Migration] = Migration.embedded, functions: [FunctionsFile] = FunctionsFile.embedded,
    release: String = GatewayVersion.current, lockTriesMax: Int = 200, lockPause: Duration = .milliseconds(2500)
  ) {
    self.migrations = migrations
    self.functions = functions
    self.release = release
    self.lockTriesMax = lockTriesMax
    self.lockPause = lockPause
  }

  /// Applies what is missing. Several replicas may do so at once: one works, the others wait and then find nothing to do.
  ///
  /// A lock on a table is waited for only briefly, and the step tried again: calls are enqueued meanwhile, and whoever wants a
  /// table that we wait for stands behind us, however weak its lock.
  ///
  /// - Parameters:
  ///   - report: told the title of each file when it has been applied.
  ///   - waits: told the title of a file, once, when another transaction is in its way.
  /// - Throws: `MigrationError`, or `PostgresError` where the server cannot be asked.
  func migrate(
    _ connection: PostgresConnection, report: (String) -> Void = { _ in }, waits: (String) -> Void = { _ in }
  ) async throws {
    _ = try await connection.query(Self.lock)
    do {
      try await connection.script("set lock_timeout = '500ms';")
      try await applyPending(connection, report, waits)
    } catch {
      _ = try? await connection.script("reset lock_timeout;")
      _ = try? await connection.query(Self.unlock)
      throw error
    }
    try await connection.script("reset lock_timeout;")
    _ = try await connection.query(Self.unlock)
  }

  /// What is missing, without applying anything: for a gateway that starts.
  func pending(on connection: PostgresConnection) async throws -> Pending {
    let tables = try await connection.query(Self.exist)
    let applied = tables.bool(0, 0) ? try await self.applied(on: connection) : []
    let recorded = tables.bool(0, 1) ? try await self.recorded(on: connection) : []
    if applied.isEmpty, tables.bool(0, 2) { throw MigrationError.unrecorded }
    let migrations = try pending(after: applied)
    // A migration makes all functions due.
    return Pending(migrations: migrations, functions: pendingFunctions(after: migrations.isEmpty ? recorded : []))
  }

  /// The decision about migrations: what is left to apply to a database that has this.
  func pending(after applied: [Applied]) throws(MigrationError) -> [Migration] {
    for entry in applied {
      let ours = migrations.first { $0.version == entry.version }
      // The first migration is the baseline, which is never edited: another one belongs to another history.
      if let ours, entry.version == 1, ours.checksum != entry.checksum { throw .beforeBaseline }
      guard let ours else { throw .unknown(Migration(version: entry.version, name: entry.name, sql: "").title) }
      guard ours.checksum == entry.checksum else { throw .changed(ours.title) }
    }
    let last = applied.map(\.version).max() ?? 0
    let pending = migrations.filter { migration in !applied.contains { $0.version == migration.version } }
    if let skipped = pending.first(where: { $0.version < last }) { throw .skipped(skipped.title) }
    return pending
  }

  /// The decision about functions: those whose text the database does not have, and the last file whenever there are any.
  ///
  /// Functions that a newer release has applied serve this one, too: during an update the old gateways run on, and may be
  /// started again, on the new schema. So if any file was recorded by a newer release, nothing is due. Between builds
  /// of one release there is no order: the one that migrated last has its way.
  func pendingFunctions(after recorded: [Recorded]) -> [FunctionsFile] {
    if recorded.contains(where: { Self.isRelease($0.release, after: release) }) { return [] }
    let changed = functions.filter { file in
      !recorded.contains { $0.topic == file.topic && $0.checksum == file.checksum }
    }
    guard let last = functions.last, !changed.isEmpty, changed.last != last else { return changed }
    return changed + [last]
  }

  /// Whether a release is newer than another: by the numbers, suffixes aside.
  private static func isRelease(_ release: String, after other: String) -> Bool {
    func numbers(_ text: String) -> [Int] {
      text.prefix { $0 != "-" && $0 != "+" }.split(separator: ".").map { Int($0) ?? 0 }
    }
    return numbers(other).lexicographicallyPrecedes(numbers(release))
  }

  private func applyPending(
    _ connection: PostgresConnection, _ report: (String) -> Void, _ waits: (String) -> Void
  ) async throws {
    // What is refused is left as it is.
    _ = try await pending(on: connection)
    try await connection.script(Self.tables)
    for migration in try pending(after: try await applied(on: connection)) {
      try await withoutLocks(waits) { try await run(Self.script(migration), of: migration.title, on: connection) }
      report(migration.title)
    }
    let changed = pendingFunctions(after: try await recorded(on: connection))
    guard !changed.isEmpty else { return }
    try await withoutLocks(waits) { try await apply(changed, on: connection) }
    for file in changed { report(file.title) }
  }

  /// A step, tried again for as long as it meets a lock.
  private func withoutLocks(_ waits: (String) -> Void, _ step: () async throws -> Void) async throws {
    for tries in 1... {
      do {
        return try await step()
      } catch MigrationError.locked(let title) where tries < lockTriesMax {
        if tries == 1 { waits(title) }
        try await Task.sleep(for: lockPause)
      }
    }
  }

  private func apply(_ changed: [FunctionsFile], on connection: PostgresConnection) async throws {
    // A function's body may name what a later file makes, so it is not checked before all of them are there.
    try await connection.script("begin; set local check_function_bodies = off;")
    do {
      for file in changed { try await run(script(file), of: file.title, on: connection) }
      try await connection.script(forgetOthers + "commit;")
    } catch {
      try? await connection.script("rollback;")
      throw error
    }
  }

  private func run(_ script: String, of title: String, on connection: PostgresConnection) async throws(MigrationError) {
    do throws(PostgresError) {
      try await connection.script(script)
    } catch {
      if error.code == .server(sqlState: "55P03") { throw .locked(title) }
      throw .failed(title, reason: error.description)
    }
  }

  private func applied(on connection: PostgresConnection) async throws -> [Applied] {
    let rows = try await connection.query(Self.listMigrations)
    return (0..<rows.rowCount).map {
      Applied(version: rows.int32($0, 0), name: rows.text($0, 1), checksum: rows.text($0, 2))
    }
  }

  private func recorded(on connection: PostgresConnection) async throws -> [Recorded] {
    let rows = try await connection.query(Self.listFunctions)
    return (0..<rows.rowCount).map {
      Recorded(topic: rows.text($0, 0), checksum: rows.text($0, 1), release: rows.text($0, 2))
    }
  }

  // MARK: - SQL

  /// The statements of one message are one transaction, so a migration and its row are there together or not at all. It
  /// may have dropped functions and views, so all their files are due afterwards.
  private static func script(_ migration: Migration) -> String {
    """
    \(migration.sql)
    delete from push.schema_functions;
    insert into push.schema_migration (version, name, checksum, took_ms)
      values (\(migration.version), '\(migration.name)', '\\x\(migration.checksum)',
        extract(epoch from clock_timestamp() - transaction_timestamp()) * 1000);
    """
  }

  private func script(_ file: FunctionsFile) -> String {
    """
    \(file.sql)
    insert into push.schema_functions (topic, checksum, release)
      values ('\(file.topic)', '\\x\(file.checksum)', '\(release)')
      on conflict (topic) do update
        set checksum = excluded.checksum, release = excluded.release, applied_at = excluded.applied_at;
    """
  }

  /// A topic that is ours no more has its functions in other files, or a migration has dropped them.
  private var forgetOthers: String {
    "delete from push.schema_functions where topic <> all ('{\(functions.map(\.topic).joined(separator: ","))}');"
  }

  /// The keys of the lock are ours alone in a database: 'push' and 'sche' as numbers.
  private static let lock = PostgresStatement(
    name: "migrate_lock", sql: "select pg_advisory_lock(1886745448, 1935894629)")
  private static let unlock = PostgresStatement(
    name: "migrate_unlock", sql: "select pg_advisory_unlock(1886745448, 1935894629)")
  private static let exist = PostgresStatement(
    name: "migrate_exist",
    sql: """
      select to_regclass('push.schema_migration') is not null, to_regclass('push.schema_functions') is not null,
        to_regclass('push.outbox') is not null
      """)
  private static let listMigrations = PostgresStatement(
    name: "migrate_list",
    sql: "select version, name, encode(checksum, 'hex') from push.schema_migration order by version")
  private static let listFunctions = PostgresStatement(
    name: "migrate_list_functions",
    sql: "select topic, encode(checksum, 'hex'), release from push.schema_functions order by topic")

  private static let tables = """
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
    create table if not exists push.schema_functions (
      topic      text primary key,
      checksum   bytea not null,
      release    text not null,
      applied_at timestamptz not null default clock_timestamp(),
      constraint schema_functions_checksum_sha256 check (length(checksum) = 32)
    );
    comment on table push.schema_functions is
      'one file of functions, views and triggers as it was applied last; written by push-gateway migrate';
    comment on column push.schema_functions.topic is 'name of the file in migrations/functions/, without ending';
    comment on column push.schema_functions.checksum is 'SHA-256 of the file as it was applied';
    comment on column push.schema_functions.release is 'version of the push-gateway that applied it';
    comment on column push.schema_functions.applied_at is 'when';
    """
}
