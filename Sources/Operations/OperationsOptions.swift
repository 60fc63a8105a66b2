// What the operators' commands share: the connection to the database, their output, and their errors.

import ArgumentParser
import Console
import Queue

struct OperationsOptions: ParsableArguments {
  @Flag(help: "Print JSON instead of text.")
  var json = false

  @OptionGroup var database: DatabaseOptions

  /// The application name in push.audit and pg_stat_activity, for every command.
  static let applicationName = "cli"

  /// Connects, executes `body`, and closes the connection. An error of the database becomes a sentence with its remedy.
  ///
  /// - Parameter role: the role that the command requires.
  func withConnection<Result>(
    requires role: String = "push_ops", _ body: (PostgresConnection) async throws -> Result
  ) async throws -> Result {
    let connection = try await database.connect(as: Self.applicationName)
    do {
      let result = try await body(connection)
      await connection.close()
      return result
    } catch {
      await connection.close()
      if let error = error as? PostgresError { throw CommandFailure(error, requires: role) }
      throw error
    }
  }

  /// Prints a view's rows, as a table or as JSON.
  ///
  /// - Parameter nothing: printed in place of a table without rows.
  func show(
    _ view: OperationsView, _ parameters: PostgresParameters = PostgresParameters(), on connection: PostgresConnection,
    nothing: String = ""
  ) async throws(PostgresError) {
    if json { return StandardOutput.write(try await view.json(on: connection, parameters)) }
    let table = try await view.table(on: connection, parameters)
    let lines = table.rows.isEmpty ? [nothing] : table.lines(isColored: Terminal.isColored)
    StandardOutput.write(lines.joined(separator: "\n"))
  }

  /// The part of `--help` that these commands share.
  static let reference = """
    In JSON, fields have the names of the view's or function's columns (snake_case), durations are in seconds, times in ISO 8601. \
    Tokens are always masked.

    Needs only the database: DATABASE_URL, or the key database of the configuration, or one of databases. The role must be a member of \
    push_ops (for api-key: of push_keys), or own the schema push.
    """
}
