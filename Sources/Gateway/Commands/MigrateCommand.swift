// `push-gateway migrate`: creates or updates the schema.

import ArgumentParser
import Console
import Queue
import Settings

struct MigrateCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "migrate",
    abstract: "Create or update the schema push in the database.",
    discussion: """
      Applies the missing migrations in order, each in a transaction of its own, and then the functions that have \
      changed, in one transaction. It may run on several machines at once and any number of times: one applies, the others wait and \
      then find nothing to do. There is no downgrade.

      Gateways and backends may keep running. If another session holds a lock that is needed, the command says so, and waits for \
      at most ten minutes; calls can be enqueued meanwhile.

      It refuses a database with other migrations than this binary's, such as those of a newer version, or edited ones.

      With several databases, it migrates one after the other, or the one that --database names. One that cannot be migrated stops it.

      Needs only the database: DATABASE_URL, or the key database or databases of the configuration. The role must own the \
      schema push, or be allowed to create it.
      """)

  @OptionGroup var database: DatabaseOptions

  @Flag(help: "Only list what would be applied, or differs from what was; exit with 1 if anything is listed.")
  var check = false

  func run() async throws {
    var isUpToDate = true
    do {
      for database in try database.databases() where try await !migrate(database) { isUpToDate = false }
    } catch let error as PostgresError where error.code == .server(sqlState: "42501") {
      throw CommandFailure("\(error.message): migrate requires ownership of the schema push, or the right to create it")
    }
    if !isUpToDate { throw ExitCode.failure }
  }

  /// Migrates or checks a database. Returns whether it is up to date.
  private func migrate(_ database: GatewayConfiguration.Database) async throws -> Bool {
    let prefix = database.name.map { "\($0): " } ?? ""
    let connection = try await DatabaseOptions.connect(to: database, as: "migrate")
    let migrator = Migrator()
    if check {
      let pending = try await migrator.pending(on: connection)
      let faults = pending.isEmpty ? try await migrator.faults(on: connection) : []
      await connection.close()
      for title in pending.titles { StandardOutput.write("\(prefix)pending \(title)") }
      for fault in faults { StandardOutput.write("\(prefix)\(fault)") }
      guard pending.isEmpty, faults.isEmpty else { return false }
    } else {
      // What is applied is taken for right afterwards.
      let former = (try? await migrator.faults(on: connection)) ?? []
      try await migrator.migrate(connection) {
        StandardOutput.write("\(prefix)applied \($0)")
      } waits: { obstacle in
        switch obstacle {
        case .turn(let holder):
          StandardError.write(
            "\(prefix)waits for \(holder), which holds the lock of push-gateway migrate: if it is something else, end it with "
              + "`select pg_terminate_backend(pid)`, as a role in pg_signal_backend, or a superuser")
        case .lock(let title):
          StandardError.write(
            "\(prefix)\(title) waits for a lock of another transaction, and retries: see the oldest xact_start in pg_stat_activity"
          )
        }
      }
      let faults = try await migrator.faults(on: connection)
      await connection.close()
      for fault in faults + former.filter({ !faults.contains($0) }).map({ "before this, \($0)" }) {
        StandardError.write("\(prefix)warning: \(fault); see docs/operations/nothing-is-delivered.md")
      }
    }
    StandardOutput.write("\(prefix)the schema is up to date")
    return true
  }
}
