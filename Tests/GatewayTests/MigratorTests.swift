// Migrations: the decision what to apply, and the application to a real Postgres.

import Foundation
import Queue
import Runtime
import Settings
import TestSupport
import Testing

@testable import Gateway

@Suite(.timeLimit(.minutes(10))) struct MigratorTests {
  private static let one = Migration(version: 1, name: "one", sql: "create table push.one (id int);")
  private static let two = Migration(version: 2, name: "two", sql: "create table push.two (id int);")
  private static let three = Migration(version: 3, name: "three", sql: "create table push.three (id int);")
  private static let digit = FunctionsFile(topic: "digit", sql: function("digit", "1"))
  private static let roles = FunctionsFile(topic: "roles", sql: "comment on schema push is 'granted';")

  private static func function(_ name: String, _ body: String) -> String {
    "create or replace function push.\(name)() returns int language sql as 'select \(body)';"
  }

  private static let everything = Migration.embedded.map(\.title) + FunctionsFile.embedded.map(\.title)

  private func applied(_ migration: Migration) -> Migrator.Applied {
    Migrator.Applied(version: migration.version, name: migration.name, checksum: migration.checksum)
  }

  private func recorded(_ file: FunctionsFile, by release: String = "1.2.3") -> Migrator.Recorded {
    Migrator.Recorded(topic: file.topic, checksum: file.checksum, release: release)
  }

  /// A migrator, without functions unless they are tested.
  private func migrator(_ migrations: [Migration], _ functions: [FunctionsFile] = []) -> Migrator {
    Migrator(migrations: migrations, functions: functions, release: "1.2.3")
  }

  // MARK: The decision

  @Test func `migrations that were not applied are pending, in order`() throws {
    let migrator = migrator([Self.one, Self.two, Self.three])
    #expect(try migrator.pending(after: []) == [Self.one, Self.two, Self.three])
    #expect(try migrator.pending(after: [applied(Self.one)]) == [Self.two, Self.three])
    #expect(try migrator.pending(after: [Self.one, Self.two, Self.three].map(applied)) == [])
  }

  @Test func `an edited migration is refused`() {
    var edited = Self.two
    edited.sql += " "
    #expect(throws: MigrationError.changed("0002_two")) {
      try migrator([Self.one, edited]).pending(after: [Self.one, Self.two].map(applied))
    }
  }

  @Test func `a database with another first migration was made before the baseline`() {
    let old = Migration(version: 1, name: "schema", sql: "create table push.old (id int);")
    let error = #expect(throws: MigrationError.self) {
      try migrator([Self.one]).pending(after: [old, Self.two].map(applied))
    }
    #expect(error == .beforeBaseline)
    #expect(error?.description.contains("create an empty database") == true)
  }

  @Test func `a newer version's database is refused`() {
    #expect(throws: MigrationError.unknown("0003_three")) {
      try migrator([Self.one, Self.two]).pending(after: [Self.one, Self.two, Self.three].map(applied))
    }
  }

  @Test func `a gap is refused`() {
    #expect(throws: MigrationError.skipped("0001_one")) {
      try migrator([Self.one, Self.two]).pending(after: [applied(Self.two)])
    }
  }

  @Test func `the files of functions that changed are applied again, together with the last file`() {
    let other = FunctionsFile(topic: "other", sql: "")
    let migrator = migrator([], [Self.digit, other, Self.roles])
    #expect(migrator.pendingFunctions(after: []) == [Self.digit, other, Self.roles])
    #expect(migrator.pendingFunctions(after: [Self.digit, other, Self.roles].map { recorded($0) }) == [])
    var edited = Self.digit
    edited.sql += " "
    #expect(
      migrator.pendingFunctions(after: [edited, other, Self.roles].map { recorded($0) }) == [Self.digit, Self.roles])
    #expect(migrator.pendingFunctions(after: [recorded(Self.digit), recorded(other)]) == [Self.roles])
  }

  @Test(arguments: [
    ("1.2.3", true), ("1.2.2", true), ("0.9.10", true), ("1.2.3-rc.1", true), ("1.2.4", false), ("1.10.0", false),
    ("2.0.0", false),
  ])
  func
    `functions of an older release, or of another build of this one, are applied again, and those of a newer one are kept`(
      release: String, isDue: Bool
    )
  {
    var other = Self.digit
    other.sql += " "
    let migrator = migrator([], [Self.digit, Self.roles])
    // Nor files that the newer release does not have, because it may have moved their functions.
    #expect(migrator.pendingFunctions(after: [recorded(other, by: release)]).isEmpty == !isDue)
  }

  // MARK: Whether a gateway can serve

  @Test(arguments: ["1.2.4", "1.3.0", "1.3.7", "2.0.0", "2.0.1"])
  func `a gateway serves the schema of the next minor release`(release: String) throws {
    let migrator = migrator([Self.one], [Self.digit, Self.roles])
    let files = [recorded(Self.digit), recorded(Self.roles, by: release)]
    #expect(try migrator.readiness(after: [Self.one, Self.two].map(applied), files) == .isNewer(release: release))
    #expect(try migrator.readiness(after: [applied(Self.one)], files) == .isNewer(release: release))
  }

  @Test(arguments: ["1.4.0", "2.1.0", "3.0.0"])
  func `a gateway does not serve the schema of a later release`(release: String) throws {
    let files = [recorded(Self.digit), recorded(Self.roles, by: release)]
    for applied in [[Self.one], [Self.one, Self.two]].map({ $0.map(applied) }) {
      let error = #expect(throws: MigrationError.self) {
        try migrator([Self.one], [Self.digit, Self.roles]).readiness(after: applied, files)
      }
      #expect(error == .tooNew(release: release))
      #expect(error?.description.contains("use push-gateway \(release)") == true)
    }
  }

  @Test func `a migration that no newer release has recorded is refused`() {
    let files = [Self.digit, Self.roles].map { recorded($0) }
    #expect(throws: MigrationError.unknown("0002_two")) {
      try migrator([Self.one], [Self.digit, Self.roles]).readiness(after: [Self.one, Self.two].map(applied), files)
    }
  }

  @Test func `a newer schema without one of this release's migrations is refused`() {
    #expect(throws: MigrationError.skipped("0002_two")) {
      try migrator([Self.one, Self.two]).readiness(
        after: [Self.one, Self.three].map(applied), [recorded(Self.roles, by: "1.3.0")])
    }
  }

  @Test func `between its migrations and its functions, a newer release is waited for`() throws {
    let migrator = migrator([Self.one], [Self.digit, Self.roles])
    #expect(try migrator.readiness(after: [Self.one, Self.two].map(applied), []) == .isBeingMigrated)
    #expect(
      try migrator.readiness(after: [applied(Self.one)], [])
        == .lacks(Migrator.Pending(functions: [Self.digit, Self.roles])))
  }

  // MARK: What the binary carries

  @Test func `the binary carries migrations/ as it is`() throws {
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
    let topics = folder.appendingPathComponent("functions")
    let names = try FileManager.default.contentsOfDirectory(atPath: topics.path).filter { $0.hasSuffix(".sql") }
    #expect(
      FunctionsFile.embedded.map { $0.topic + ".sql" } == names.filter { $0 != "roles.sql" }.sorted() + ["roles.sql"])
    for file in FunctionsFile.embedded {
      let text = try String(contentsOf: topics.appendingPathComponent(file.topic + ".sql"), encoding: .utf8)
      #expect(file.sql == text, "\(file.title)")
    }
  }

  // MARK: Against Postgres

  @Test func `the shipped schema applies to an empty database, and then there is nothing to do`() async throws {
    try await TestDatabase.with(.empty) { database in
      let connection = try await database.connect()
      let migrator = Migrator()
      let all = Migrator.Pending(migrations: Migration.embedded, functions: FunctionsFile.embedded)
      #expect(try await migrator.pending(on: connection) == all)
      var titles: [String] = []
      try await migrator.migrate(connection) { titles.append($0) }
      #expect(titles == Self.everything)
      #expect(try await migrator.pending(on: connection).isEmpty)
      titles = []
      try await migrator.migrate(connection) { titles.append($0) }
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

  @Test func `several replicas at once apply each file exactly once`() async throws {
    try await TestDatabase.with(.empty) { database in
      let titles = try await withThrowingTaskGroup(of: [String].self) { group in
        for _ in 0..<6 {
          group.addTask {
            let connection = try await database.connect()
            var titles: [String] = []
            try await Migrator().migrate(connection) { titles.append($0) }
            await connection.close()
            return titles
          }
        }
        return try await group.reduce([]) { $0 + $1 }
      }
      #expect(titles == Self.everything)
    }
  }

  @Test func `a schema that was restored without data is compared again after migrate`() async throws {
    try await TestDatabase.with(.migrated) { database in
      try await database.execute("refresh materialized view push.schema_made with no data")
      let state = "select value from push.health where item = 'schema'"
      #expect(try await database.value(state) == "not compared")
      let connection = try await database.connect()
      try await Migrator().migrate(connection)
      #expect(try await database.value(state) == "complete")
      await connection.close()
    }
  }

  @Test func `a migration that fails is rolled back, and those before it stay`() async throws {
    try await TestDatabase.with(.empty) { database in
      let connection = try await database.connect()
      let broken = Migration(version: 2, name: "two", sql: "create table push.two (id int); select 1 / 0;")
      let error = await #expect(throws: MigrationError.self) {
        try await migrator([Self.one, broken]).migrate(connection)
      }
      #expect(error?.description.contains("0002_two") == true)
      let rows = try await connection.query(
        PostgresStatement(
          name: "t",
          sql:
            "select to_regclass('push.one') is not null, to_regclass('push.two') is null, count(*) from push.schema_migration"
        ))
      #expect(rows.bool(0, 0) && rows.bool(0, 1) && rows.int64(0, 2) == 1)
      // The lock was released: another connection gets it, and applies the corrected files.
      let other = try await database.connect()
      try await migrator([Self.one, Self.two]).migrate(other)
      #expect(try await migrator([Self.one, Self.two]).pending(on: other).isEmpty)
      await other.close()
      await connection.close()
    }
  }

  @Test func `a database that was migrated with other content is refused and not changed`() async throws {
    try await TestDatabase.with(.empty) { database in
      let connection = try await database.connect()
      try await migrator([Self.one, Self.two]).migrate(connection)
      var edited = Self.two
      edited.sql += "\n"
      await #expect(throws: MigrationError.changed("0002_two")) {
        try await migrator([Self.one, edited, Self.three]).migrate(connection)
      }
      await #expect(throws: MigrationError.unknown("0002_two")) {
        try await migrator([Self.one]).migrate(connection)
      }
      let rows = try await connection.query(
        PostgresStatement(name: "t", sql: "select to_regclass('push.three') is null"))
      #expect(rows.bool(0, 0))
      await connection.close()
    }
  }

  @Test func `a database from before the baseline is refused with the remedy, and not changed`() async throws {
    try await TestDatabase.with(.empty) { database in
      let connection = try await database.connect()
      try await migrator(
        [Self.two, Self.three].enumerated().map { Migration(version: Int32($0 + 1), name: $1.name, sql: $1.sql) }
      )
      .migrate(connection)
      try await connection.script("drop table push.schema_functions;")
      await #expect(throws: MigrationError.beforeBaseline) { try await Migrator().migrate(connection) }
      await #expect(throws: MigrationError.beforeBaseline) { _ = try await Migrator().pending(on: connection) }
      let rows = try await connection.query(
        PostgresStatement(
          name: "t", sql: "select to_regclass('push.schema_functions') is null, to_regclass('push.outbox') is null"))
      #expect(rows.bool(0, 0) && rows.bool(0, 1))
      // The advice is to begin with an empty database.
      try await connection.script("set client_min_messages = warning; drop schema push cascade;")
      try await Migrator().migrate(connection)
      await connection.close()
    }
  }

  @Test func `a schema that psql applied is refused with the remedy, and not changed`() async throws {
    try await TestDatabase.with { database in
      let connection = try await database.connect()
      await #expect(throws: MigrationError.unrecorded) { try await Migrator().migrate(connection) }
      await #expect(throws: MigrationError.unrecorded) { _ = try await Migrator().pending(on: connection) }
      #expect(MigrationError.unrecorded.description.contains("create an empty database"))
      try await connection.script("set client_min_messages = warning; drop schema push cascade;")
      try await Migrator().migrate(connection)
      // A first migration that failed leaves the empty table behind.
      try await connection.script("delete from push.schema_migration; delete from push.schema_functions;")
      await #expect(throws: MigrationError.unrecorded) { try await Migrator().migrate(connection) }
      await connection.close()
    }
  }

  @Test func `a database of another encoding is refused, and not changed`() async throws {
    try await TestDatabase.with(.empty) { database in
      let admin = try await database.connect()
      let name = "\(database.name)_ascii"
      try await admin.script(
        "create database \(name) encoding 'SQL_ASCII' template template0 lc_collate 'C' lc_ctype 'C'")
      let other = TestDatabase(url: database.url.replacing(database.name, with: name), loop: database.loop)
      let connection = try await other.connect()
      await #expect(throws: MigrationError.encoding("SQL_ASCII")) { try await Migrator().migrate(connection) }
      await #expect(throws: MigrationError.encoding("SQL_ASCII")) { _ = try await Migrator().readiness(on: connection) }
      await connection.close()
      let schema = try await other.value("select to_regnamespace('push') is null")
      try await admin.script("drop database \(name) with (force)")
      await admin.close()
      #expect(schema == "true")
    }
  }

  @Test func `settings of the role do not matter, and what differs afterwards is named`() async throws {
    try await TestDatabase.with(.empty) { database in
      let connection = try await database.connect()
      try await connection.script(
        "set standard_conforming_strings = off; set array_nulls = off; set statement_timeout = '10min'; set row_security = on;"
      )
      try await Migrator().migrate(connection)
      let settings = try await connection.query(
        PostgresStatement(
          name: "t", sql: "select current_setting('statement_timeout'), current_setting('row_security')"))
      #expect(settings.text(0, 0) == "0" && settings.text(0, 1) == "off")
      #expect(try await Migrator().faults(on: connection) == [])
      try await connection.script(
        "drop trigger fan_out on push.outbox; revoke execute on function push.settle from push_gateway;")
      #expect(
        try await Migrator().faults(on: connection) == [
          "push_gateway may not execute push.settle", "trigger fan_out of push.outbox is missing",
        ])
      await connection.close()
    }
  }

  @Test func `a changed file of functions is applied again, with the last one, and nothing else`() async throws {
    try await TestDatabase.with(.empty) { database in
      let connection = try await database.connect()
      let other = FunctionsFile(topic: "other", sql: Self.function("other", "2"))
      try await migrator([Self.one], [Self.digit, other, Self.roles]).migrate(connection)
      try await connection.script("comment on schema push is 'forgotten';")
      let edited = FunctionsFile(topic: "digit", sql: Self.function("digit", "7"))
      let newer = migrator([Self.one], [edited, other, Self.roles])
      #expect(try await newer.pending(on: connection) == Migrator.Pending(functions: [edited, Self.roles]))
      var titles: [String] = []
      try await newer.migrate(connection) { titles.append($0) }
      #expect(titles == ["functions/digit", "functions/roles"])
      #expect(try await newer.pending(on: connection).isEmpty)
      let rows = try await connection.query(
        PostgresStatement(
          name: "t", sql: "select push.digit() = 7, obj_description('push'::regnamespace) = 'granted'"))
      #expect(rows.bool(0, 0) && rows.bool(0, 1))
      await connection.close()
    }
  }

  @Test func `after a migration all functions are applied again, and removed files are forgotten`() async throws {
    try await TestDatabase.with(.empty) { database in
      let connection = try await database.connect()
      let other = FunctionsFile(topic: "other", sql: Self.function("other", "2"))
      try await migrator([Self.one], [Self.digit, other, Self.roles]).migrate(connection)
      let drop = Migration(version: 2, name: "drop", sql: "drop function push.digit(), push.other();")
      let newer = migrator([Self.one, drop], [Self.digit, Self.roles])
      #expect(
        try await newer.pending(on: connection)
          == Migrator.Pending(migrations: [drop], functions: [Self.digit, Self.roles]))
      try await newer.migrate(connection)
      let rows = try await connection.query(
        PostgresStatement(
          name: "t", sql: "select push.digit() = 1, string_agg(topic, ' ' order by topic) from push.schema_functions"))
      #expect(rows.bool(0, 0) && rows.text(0, 1) == "digit roles")
      await connection.close()
    }
  }

  @Test func `if one file of functions fails, none is applied`() async throws {
    try await TestDatabase.with(.empty) { database in
      let connection = try await database.connect()
      let broken = FunctionsFile(topic: "other", sql: Self.function("other", "2") + " select 1 / 0;")
      let error = await #expect(throws: MigrationError.self) {
        try await migrator([Self.one], [Self.digit, broken, Self.roles]).migrate(connection)
      }
      #expect(error?.description.contains("functions/other") == true)
      let rows = try await connection.query(
        PostgresStatement(
          name: "t", sql: "select to_regproc('push.digit') is null, count(*) from push.schema_functions"))
      #expect(rows.bool(0, 0) && rows.int64(0, 1) == 0)
      // The same connection can be used again, because the transaction was rolled back.
      try await migrator([Self.one], [Self.digit, Self.roles]).migrate(connection)
      await connection.close()
    }
  }

  /// A trigger on a table into which another transaction has written.
  private static let trigger = FunctionsFile(
    topic: "other",
    sql: """
      create or replace function push.other() returns trigger language plpgsql as 'begin return new; end';
      create or replace trigger other before insert on push.one for each row execute function push.other();
      """)

  @Test func `writes do not wait behind a migration that waits for a lock`() async throws {
    try await TestDatabase.with(.empty) { database in
      let connection = try await database.connect()
      let functions = [Self.digit, Self.trigger, Self.roles]
      try await migrator([Self.one]).migrate(connection)
      let long = try await database.connect()
      try await long.script("begin; insert into push.one values (1);")
      let (waits, isWaiting) = AsyncStream.makeStream(of: Migrator.Obstacle.self)
      let migration = Task {
        let connection = try await database.connect()
        try await Migrator(
          migrations: [Self.one], functions: functions, release: "1.2.3", lockPause: .milliseconds(700)
        )
        .migrate(connection, waits: { isWaiting.yield($0) })
        await connection.close()
      }
      var waiting = waits.makeAsyncIterator()
      #expect(await waiting.next() == .lock(title: "functions/other"))
      // At every try.
      let other = try await database.connect()
      for _ in 0..<3 { try await other.script("set statement_timeout = '60s'; insert into push.one values (2);") }
      try await long.script("commit;")
      try await migration.value
      #expect(try await migrator([Self.one], functions).pending(on: connection).isEmpty)
      for each in [connection, long, other] { await each.close() }
    }
  }

  @Test func `a CHECK that lists providers is replaced while devices are there, and validated afterwards`() async throws
  {
    try await TestDatabase.with(.empty) { database in
      let connection = try await database.connect()
      // The CHECKs of release 0.1.0, on a table with rows.
      try await Migrator(functions: []).migrate(connection)
      try await connection.script(
        "insert into push.devices (user_id, app, provider, token) values ('u', 'porteiro', 'fcm', repeat('token', 5))")
      let reader = try await database.connect()
      try await reader.script("begin; select from push.devices;")
      await #expect(throws: MigrationError.self) {
        try await Migrator(lockTriesMax: 1, lockPause: .milliseconds(1)).migrate(connection)
      }
      try await reader.script("commit;")
      try await Migrator().migrate(connection)
      let checks = try await connection.query(
        PostgresStatement(
          name: "checks",
          sql: """
            select pg_get_constraintdef(oid) from pg_constraint
            where conrelid = 'push.devices'::regclass and conname = 'devices_provider_known'
            """))
      #expect(checks.text(0, 0).hasSuffix("channels())))"), "it would end with NOT VALID")
      for each in [connection, reader] { await each.close() }
    }
  }

  /// The tables before migration 16, and functions that functions/upgrade.sql drops.
  private static func makeFormerSchema(_ connection: PostgresConnection) async throws {
    try await Migrator(migrations: Migration.embedded.filter { $0.version < 16 }, functions: []).migrate(connection)
    try await connection.script(
      """
      create function push.plan_escalation() returns trigger language plpgsql as 'begin return null; end';
      create function push.recipient_token(jsonb, text) returns text language sql as 'select null::text';
      """)
  }

  @Test func `what functions of the former release use is dropped by the run after`() async throws {
    try await TestDatabase.with(.empty) { database in
      let connection = try await database.connect()
      try await Self.makeFormerSchema(connection)
      let there = PostgresStatement(
        name: "there",
        sql: """
          select to_regprocedure('push.plan_escalation()') is not null,
            to_regprocedure('push.recipient_token(jsonb, text)') is not null and to_regclass('push.ends_unchecked') is not null,
            to_regprocedure('push.recipient_token(jsonb, text)') is null and to_regclass('push.ends_unchecked') is null
          """)
      let backend = try await database.connect()
      try await backend.script("begin; lock table push.outbox in row exclusive mode;")
      await #expect(throws: MigrationError.self) {
        try await Migrator(lockTriesMax: 1, lockPause: .milliseconds(1)).migrate(connection)
      }
      #expect(try await Migrator().pending(on: connection).migrations.isEmpty)
      #expect(try await connection.query(there).bool(0, 0), "a trigger went before the functions were replaced")
      try await backend.script("commit;")
      try await Migrator().migrate(connection)
      let first = try await connection.query(there)
      #expect(!first.bool(0, 0) && first.bool(0, 1), "the first run leaves what functions use")
      // The next release.
      try await connection.script("delete from push.schema_functions where topic = 'upgrade';")
      try await Migrator().migrate(connection)
      #expect(try await connection.query(there).bool(0, 2), "the next run drops it")
      for each in [connection, backend] { await each.close() }
    }
  }

  @Test func `apps whose calls were accepted without lanes get lanes`() async throws {
    try await TestDatabase.with(.empty) { database in
      let connection = try await database.connect()
      try await Self.makeFormerSchema(connection)
      try await connection.script(
        """
        insert into push.app_grant (role, app) values ('tenant', 'granted');
        insert into push.lane (id, app, provider) overriding system value values (-32767, 'unserved', 'fcm');
        insert into push.apps (app, ring_seconds, providers) values ('served', 60, '{apns,expo}');
        """)
      try await Migrator().migrate(connection)
      let lanes = try await connection.query(
        PostgresStatement(
          name: "lanes",
          sql: """
            select string_agg(t.text, ' ' order by t.text)
            from (select l.app || ':' || string_agg(l.provider, ',' order by l.provider) as text from push.lane l group by l.app) t
            """))
      #expect(lanes.text(0, 0) == "granted:apns,expo,fcm served:apns,expo unserved:apns,expo,fcm")
      await connection.close()
    }
  }

  @Test func `a migration that does not get its lock gives up, reports why, and leaves nothing behind`() async throws {
    try await TestDatabase.with(.empty) { database in
      let connection = try await database.connect()
      try await migrator([Self.one]).migrate(connection)
      let long = try await database.connect()
      try await long.script("begin; insert into push.one values (1);")
      var told: [Migrator.Obstacle] = []
      let error = await #expect(throws: MigrationError.self) {
        try await Migrator(
          migrations: [Self.one], functions: [Self.digit, Self.trigger, Self.roles], release: "1.2.3", lockTriesMax: 3,
          lockPause: .milliseconds(1)
        )
        .migrate(connection, waits: { told.append($0) })
      }
      #expect(error == .locked("functions/other"))
      #expect(error?.description.contains("pg_stat_activity") == true)
      #expect(told == [.lock(title: "functions/other")])
      let rows = try await connection.query(
        PostgresStatement(
          name: "t", sql: "select to_regproc('push.digit') is null, current_setting('lock_timeout') = '0'"))
      #expect(rows.bool(0, 0) && rows.bool(0, 1))
      await long.close()
      await connection.close()
    }
  }

  @Test func `a migration whose turn does not come names who has it, gives up, and is done once it comes`() async throws
  {
    try await TestDatabase.with(.empty) { database in
      let connection = try await database.connect()
      let other = try await database.connect()
      try await other.script("select pg_advisory_lock(1886745448, 1935894629)")
      let pid = try await other.query(PostgresStatement(name: "pid", sql: "select pg_backend_pid()")).int32(0, 0)
      var told: [Migrator.Obstacle] = []
      let error = await #expect(throws: MigrationError.self) {
        try await Migrator(migrations: [Self.one], functions: [], lockTriesMax: 3, lockPause: .milliseconds(1))
          .migrate(connection, waits: { told.append($0) })
      }
      let holder = "pid \(pid) (application_name 'tests', login push)"
      #expect(error == .occupied(holder: holder))
      #expect(
        error?.description.contains(holder) == true && error?.description.contains("pg_terminate_backend") == true)
      #expect(told == [.turn(holder: holder)])
      let rows = try await connection.query(
        PostgresStatement(
          name: "t", sql: "select to_regnamespace('push') is null, current_setting('lock_timeout') = '0'"))
      #expect(rows.bool(0, 0) && rows.bool(0, 1))
      // It gets its turn during a try.
      let (waits, isWaiting) = AsyncStream.makeStream(of: Migrator.Obstacle.self)
      let migration = Task {
        try await Migrator(migrations: [Self.one], functions: [], lockPause: .milliseconds(50))
          .migrate(connection, waits: { isWaiting.yield($0) })
      }
      var waiting = waits.makeAsyncIterator()
      #expect(await waiting.next() == .turn(holder: holder))
      await other.close()
      try await migration.value
      #expect(try await migrator([Self.one]).pending(on: connection).isEmpty)
      await connection.close()
    }
  }

  @Test func `before it serves, a gateway accepts the next release's schema, and refuses a later one's`() async throws {
    try await TestDatabase.with(.empty) { database in
      let connection = try await database.connect()
      await #expect(throws: SchemaCheck.Failure.self) { try await SchemaCheck.refuse(database.url) }
      try await Migrator().migrate(connection)
      try await SchemaCheck.refuse(database.url)
      let numbers = try #require(GatewayVersion.current.split(separator: ".").compactMap { Int($0) } as [Int]?)
      func record(_ release: String) async throws {
        try await connection.script("update push.schema_functions set release = '\(release)';")
      }
      try await connection.script(
        "insert into push.schema_migration values (9999, 'next', sha256('next'), clock_timestamp(), 1);")
      await #expect(throws: MigrationError.unknown("9999_next")) { try await SchemaCheck.refuse(database.url) }
      try await record("\(numbers[0]).\(numbers[1] + 1).0")
      try await SchemaCheck.refuse(database.url)
      await #expect(throws: MigrationError.unknown("9999_next")) { try await Migrator().migrate(connection) }
      try await record("\(numbers[0]).\(numbers[1] + 2).0")
      await #expect(throws: MigrationError.tooNew(release: "\(numbers[0]).\(numbers[1] + 2).0")) {
        try await SchemaCheck.refuse(database.url)
      }
      await connection.close()
    }
  }
}
