// `push-gateway migrate`: the schema, brought up to date.

import ArgumentParser
import Console
import Queue

struct MigrateCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "migrate",
    abstract: "Create or update the schema push in the database.",
    discussion: """
      Applies the migrations this binary carries and the database lacks, in order, each in a transaction of its own, and then \
      the functions that have changed, all in one. Safe to run from several machines at once and as often as you like: one \
      works, the others wait and then find nothing to do. Nothing is ever undone.

      Gateways and backends may go on meanwhile. A transaction that holds a lock on what is to be changed is waited for, for ten \
      minutes at most; calls are enqueued meanwhile.

      It refuses a database whose migrations are not those of this binary (a newer version's, or edited ones).

      Needs the database and nothing else: DATABASE_URL, or the key database of the configuration. The role must own the \
      schema push, or be allowed to create it.
      """)

  @OptionGroup var configuration: ConfigurationOptions

  @Flag(help: "Only say what would be applied; exit 1 if that is anything.")
  var check = false

  func run() async throws {
    let connection = try await configuration.connect(as: "migrate")
    let migrator = Migrator()
    if check {
      let pending = try await migrator.pending(on: connection)
      await connection.close()
      for title in pending.titles { StandardOutput.write("pending \(title)") }
      if !pending.isEmpty { throw ExitCode.failure }
    } else {
      try await migrator.migrate(connection) {
        StandardOutput.write("applied \($0)")
      } waits: {
        StandardError.write(
          "\($0) waits for another transaction, and lets calls pass meanwhile: see the oldest xact_start in pg_stat_activity"
        )
      }
      await connection.close()
    }
    StandardOutput.write("the schema is up to date")
  }
}
