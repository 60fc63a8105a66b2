// Updates the schema: forward only, one replica at a time. First the tables, with a transaction for each migration,
// then all functions whose files have changed, in one transaction.

internal import Queue
internal import Runtime
internal import Settings

/// Applies migrations and files of functions, and records them in `push.schema_migration` and `push.schema_functions`.
struct Migrator: Sendable {
  /// A migration that a database has recorded.
  struct Applied: Equatable, Sendable {
    var version: Int32
    var name: String
    var checksum: String
  }

  /// A file of functions that a database has recorded.
  struct Recorded: Equatable, Sendable {
    var topic: String
    var checksum: String
    /// The version of the push-gateway that applied the file.
    var release: String
  }

  /// What is still to be applied.
  struct Pending: Equatable, Sendable {
    var migrations: [Migration] = []
    var functions: [FunctionsFile] = []

    var titles: [String] { migrations.map(\.title) + functions.map(\.title) }
    var isEmpty: Bool { migrations.isEmpty && functions.isEmpty }
  }

  /// Whether a gateway of this release can serve a database.
  enum Readiness: Equatable, Sendable {
    /// The schema is this release's.
    case isCurrent
    /// A newer release has migrated the schema, and this release can serve it.
    case isNewer(release: String)
    /// A newer release has applied its migrations, but not yet its functions.
    case isBeingMigrated
    case lacks(Pending)
  }

  /// What a migration waits for.
  enum Obstacle: Equatable, Sendable {
    /// The lock that lets only one replica at a time migrate. Any login can take it.
    case turn(holder: String)
    /// Another transaction's lock on what a file changes.
    case lock(title: String)
  }

  /// In order of their versions.
  let migrations: [Migration]
  /// In the order of their application. The last one grants rights on what the others create.
  let functions: [FunctionsFile]
  /// The version of this binary.
  let release: String
  /// Maximum number of tries of a step whose tables are locked, and to begin.
  let lockTriesMax: Int
  /// The pause between two tries, in which statements that waited behind the lock can continue. A try to begin waits as long.
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

  /// Applies what is missing. Several replicas may call it at once: one applies, the others wait and then find nothing
  /// to do.
  ///
  /// A step waits only briefly for a lock on a table and is then tried again. While a lock is waited for, all
  /// statements on the table wait behind it, even those with weaker locks. Calls can be enqueued between the tries.
  ///
  /// - Parameters:
  ///   - report: called with the title of each file that was applied.
  ///   - waits: called if another session's lock is in the way, once for each file, and for each holder of the lock to begin.
  /// - Throws: `MigrationError`; or `PostgresError` if a query fails.
  func migrate(
    _ connection: PostgresConnection, report: (String) -> Void = { _ in }, waits: (Obstacle) -> Void = { _ in }
  ) async throws {
    try await connection.script(Self.pins)
    try await takeTurn(connection, waits)
    do {
      try await connection.script("set lock_timeout = '500ms';")
      try await applyPending(connection, report, waits)
      try await connection.script(Self.populate)
    } catch {
      _ = try? await connection.script("reset lock_timeout;")
      _ = try? await connection.query(Self.unlock)
      throw error
    }
    try await connection.script("reset lock_timeout;")
    _ = try await connection.query(Self.unlock)
  }

  /// Takes the lock that lets only one replica at a time migrate. Nothing else waits for it, so a try may last.
  private func takeTurn(_ connection: PostgresConnection, _ waits: (Obstacle) -> Void) async throws {
    try await connection.script("set lock_timeout = \(max(1, Int(lockPause / .milliseconds(1))));")
    var told: String?
    for tries in 1... {
      do throws(PostgresError) {
        _ = try await connection.query(Self.lock)
        return
      } catch {
        guard error.code == .server(sqlState: "55P03") else { throw error }  // lock_not_available
        let holder = try await connection.query(Self.holder).text(0, 0)
        if holder != told { waits(.turn(holder: holder)) }
        told = holder
        guard tries < lockTriesMax else {
          try await connection.script("reset lock_timeout;")
          throw MigrationError.occupied(holder: holder)
        }
      }
    }
  }

  /// Returns what is missing without applying anything.
  func pending(on connection: PostgresConnection) async throws -> Pending {
    let (applied, recorded) = try await records(on: connection)
    return try pending(after: applied, recorded)
  }

  /// How the schema differs from what `migrate` has left, one sentence each.
  func faults(on connection: PostgresConnection) async throws(PostgresError) -> [String] {
    let rows = try await connection.query(Self.differences)
    return (0..<rows.rowCount).map { rows.text($0, 0) }
  }

  /// Returns whether a gateway of this release can serve the database.
  ///
  /// - Parameter patience: maximum silence of the server; nil for no limit.
  /// - Throws: `MigrationError` if it cannot, and `migrate` of this release would not help.
  func readiness(on connection: PostgresConnection, patience: Nanoseconds? = nil) async throws -> Readiness {
    let (applied, recorded) = try await records(on: connection, patience)
    return try readiness(after: applied, recorded)
  }

  /// Decides whether a gateway of this release can serve a database with these.
  ///
  /// During an upgrade, gateways of the former release run on the schema of the new one, and may be restarted. Each
  /// release therefore keeps what the one before it uses (docs/compatibility.md). Older releases are not considered.
  func readiness(after applied: [Applied], _ recorded: [Recorded]) throws(MigrationError) -> Readiness {
    let last = migrations.map(\.version).max() ?? 0
    let later = applied.filter { $0.version > last }
    let known = try pending(after: applied.filter { $0.version <= last })
    let newest = recorded.map(\.release).max { Self.isRelease($1, after: $0) }
    guard let newest, Self.isRelease(newest, after: release) else {
      if let unknown = later.first {
        if recorded.isEmpty { return .isBeingMigrated }
        throw .unknown(Migration(version: unknown.version, name: unknown.name, sql: "").title)
      }
      let pending = try pending(after: applied, recorded)
      return pending.isEmpty ? .isCurrent : .lacks(pending)
    }
    if let skipped = known.first { throw .skipped(skipped.title) }
    guard Self.isNext(newest, after: release) else { throw .tooNew(release: newest) }
    return .isNewer(release: newest)
  }

  private func pending(after applied: [Applied], _ recorded: [Recorded]) throws(MigrationError) -> Pending {
    let migrations = try pending(after: applied)
    // After a migration, all functions are applied again.
    return Pending(migrations: migrations, functions: pendingFunctions(after: migrations.isEmpty ? recorded : []))
  }

  /// Decides which migrations are missing in a database with these.
  func pending(after applied: [Applied]) throws(MigrationError) -> [Migration] {
    for entry in applied {
      let ours = migrations.first { $0.version == entry.version }
      // The first migration is the baseline, which is never edited. If it differs, the database has another history.
      if let ours, entry.version == 1, ours.checksum != entry.checksum { throw .beforeBaseline }
      guard let ours else { throw .unknown(Migration(version: entry.version, name: entry.name, sql: "").title) }
      guard ours.checksum == entry.checksum else { throw .changed(ours.title) }
    }
    let last = applied.map(\.version).max() ?? 0
    let pending = migrations.filter { migration in !applied.contains { $0.version == migration.version } }
    if let skipped = pending.first(where: { $0.version < last }) { throw .skipped(skipped.title) }
    return pending
  }

  /// Decides which functions to apply: those whose text has changed, and the last file if there are any.
  ///
  /// Functions of a newer release also serve this one: during an update, old gateways keep running on the new schema,
  /// and may be restarted. So if a newer release has recorded any file, nothing is applied. Builds of the same release
  /// have no order: the one that migrates last wins.
  func pendingFunctions(after recorded: [Recorded]) -> [FunctionsFile] {
    if recorded.contains(where: { Self.isRelease($0.release, after: release) }) { return [] }
    let changed = functions.filter { file in
      !recorded.contains { $0.topic == file.topic && $0.checksum == file.checksum }
    }
    guard let last = functions.last, !changed.isEmpty, changed.last != last else { return changed }
    return changed + [last]
  }

  /// Whether a release is newer than another. Compares the numbers and ignores suffixes.
  private static func isRelease(_ release: String, after other: String) -> Bool {
    numbers(other).lexicographicallyPrecedes(numbers(release))
  }

  /// Whether a newer release is of the same or the next minor version, or the first one of the next major version.
  private static func isNext(_ release: String, after other: String) -> Bool {
    let (newer, older) = (numbers(release), numbers(other))
    guard newer.count >= 2, older.count >= 2 else { return false }
    return newer[0] == older[0] ? newer[1] <= older[1] + 1 : newer[0] == older[0] + 1 && newer[1] == 0
  }

  private static func numbers(_ release: String) -> [Int] {
    release.prefix { $0 != "-" && $0 != "+" }.split(separator: ".").map { Int($0) ?? 0 }
  }

  private func applyPending(
    _ connection: PostgresConnection, _ report: (String) -> Void, _ waits: (Obstacle) -> Void
  ) async throws {
    // Throws before anything is changed if the database is refused.
    _ = try await pending(on: connection)
    try await connection.script(Self.tables)
    for migration in try pending(after: try await applied(on: connection)) {
      try await withoutLocks(waits) { try await run(Self.script(migration), of: migration.title, on: connection) }
      report(migration.title)
    }
    let changed = pendingFunctions(after: try await recorded(on: connection))
    if !changed.isEmpty {
      try await withoutLocks(waits) { try await apply(changed, on: connection) }
      for file in changed { report(file.title) }
    }
    // A CHECK of a table with rows is replaced without being validated, because the locks of the functions are held until all are
    // applied. Validating it reads the table, but stops nobody who reads or writes.
    let constraints = try await connection.query(Self.unvalidated)
    for row in 0..<constraints.rowCount {
      try await withoutLocks(waits) {
        try await run(constraints.text(row, 1), of: constraints.text(row, 0), on: connection)
      }
    }
  }

  /// Executes a step, and tries it again while it meets a lock.
  private func withoutLocks(_ waits: (Obstacle) -> Void, _ step: () async throws -> Void) async throws {
    for tries in 1... {
      do {
        return try await step()
      } catch MigrationError.locked(let title) where tries < lockTriesMax {
        if tries == 1 { waits(.lock(title: title)) }
        try await Task.sleep(for: lockPause)
      }
    }
  }

  private func apply(_ changed: [FunctionsFile], on connection: PostgresConnection) async throws {
    // The body of a function may use what a later file creates, so bodies are checked only when everything exists.
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
      // lock_not_available, deadlock_detected
      if ["55P03", "40P01"].contains(where: { error.code == .server(sqlState: $0) }) { throw .locked(title) }
      throw .failed(title, reason: error.description)
    }
  }

  private func records(
    on connection: PostgresConnection, _ patience: Nanoseconds? = nil
  ) async throws -> ([Applied], [Recorded]) {
    _ = try await connection.query(Self.seeAll, patience: patience)
    let tables = try await connection.query(Self.exist, patience: patience)
    guard tables.text(0, 3) == "UTF8" else { throw MigrationError.encoding(tables.text(0, 3)) }
    let applied = tables.bool(0, 0) ? try await self.applied(on: connection, patience) : []
    let recorded = tables.bool(0, 1) ? try await self.recorded(on: connection, patience) : []
    if applied.isEmpty, tables.bool(0, 2) { throw MigrationError.unrecorded }
    return (applied, recorded)
  }

  private func applied(
    on connection: PostgresConnection, _ patience: Nanoseconds? = nil
  ) async throws -> [Applied] {
    let rows = try await connection.query(Self.listMigrations, patience: patience)
    return (0..<rows.rowCount).map {
      Applied(version: rows.int32($0, 0), name: rows.text($0, 1), checksum: rows.text($0, 2))
    }
  }

  private func recorded(
    on connection: PostgresConnection, _ patience: Nanoseconds? = nil
  ) async throws -> [Recorded] {
    let rows = try await connection.query(Self.listFunctions, patience: patience)
    return (0..<rows.rowCount).map {
      Recorded(topic: rows.text($0, 0), checksum: rows.text($0, 1), release: rows.text($0, 2))
    }
  }

  // MARK: - SQL

  /// The statements of one message are one transaction, so a migration and its row are committed together. A migration
  /// may drop functions and views, so all function files are applied again after it.
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

  /// Removes files that no longer exist. Their functions have moved to other files, or a migration has dropped them.
  private var forgetOthers: String {
    "delete from push.schema_functions where topic <> all ('{\(functions.map(\.topic).joined(separator: ","))}');"
  }

  /// The two keys are 'push' and 'sche' as numbers, and used only here.
  private static let lock = PostgresStatement(
    name: "migrate_lock", sql: "select pg_advisory_lock(1886745448, 1935894629)")
  private static let unlock = PostgresStatement(
    name: "migrate_unlock", sql: "select pg_advisory_unlock(1886745448, 1935894629)")
  /// Shared locks have several holders.
  private static let holder = PostgresStatement(
    name: "migrate_holder",
    sql: """
      select coalesce(string_agg(format('pid %s (application_name %L, login %I)', a.pid, a.application_name, a.usename), ', '
        order by a.pid), 'a session that has just ended')
      from pg_locks l
      join pg_stat_activity a using (pid)
      where l.locktype = 'advisory' and l.database = (select oid from pg_database where datname = current_database())
        and l.classid = 1886745448 and l.objid = 1935894629 and l.objsubid = 2 and l.granted
      """)
  private static let exist = PostgresStatement(
    name: "migrate_exist",
    sql: """
      select to_regclass('push.schema_migration') is not null, to_regclass('push.schema_functions') is not null,
        to_regclass('push.outbox') is not null, current_setting('server_encoding')
      """)
  /// What row-level security hides is then an error, and not an empty table.
  private static let seeAll = PostgresStatement(
    name: "migrate_see_all", sql: "select set_config('row_security', 'off', false)")
  private static let differences = PostgresStatement(
    name: "migrate_faults", sql: "select fault from push.schema_faults order by 1")

  /// A restore without data leaves it empty.
  private static let populate = """
    do $$ begin
      if exists (select from pg_class c where c.oid = to_regclass('push.schema_made') and not c.relispopulated) then
        refresh materialized view push.schema_made;
      end if;
    end $$;
    """

  /// What the database or the role may set, and the files rely on.
  private static let pins = """
    set standard_conforming_strings = on; set array_nulls = on; set statement_timeout = 0; set idle_session_timeout = 0;
    set idle_in_transaction_session_timeout = 0; set datestyle = 'ISO';
    set default_transaction_isolation = 'read committed'; set default_transaction_read_only = off;
    """
  private static let listMigrations = PostgresStatement(
    name: "migrate_list",
    sql: "select version, name, encode(checksum, 'hex') from push.schema_migration order by version")
  private static let listFunctions = PostgresStatement(
    name: "migrate_list_functions",
    sql: "select topic, encode(checksum, 'hex'), release from push.schema_functions order by topic")

  private static let unvalidated = PostgresStatement(
    name: "migrate_unvalidated",
    sql: """
      select format('constraint %s of %s', c.conname, c.conrelid::regclass),
        format('alter table %s validate constraint %I;', c.conrelid::regclass, c.conname)
      from pg_constraint c
      where c.connamespace = 'push'::regnamespace and c.contype = 'c' and not c.convalidated order by 1
      """)

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
