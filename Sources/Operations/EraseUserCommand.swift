// `push-gateway erase-user`: removes or masks everything stored about one user in one app.

package import ArgumentParser
import Console
import Queue

package struct EraseUserCommand: AsyncParsableCommand {
  package static let configuration = CommandConfiguration(
    commandName: "erase-user",
    abstract: "Remove or mask everything stored about one user in one app.",
    discussion: """
      Devices, tokens, dead and quarantined tokens and receipts are removed; calls, history and push.audit are masked. A call that \
      rings is declined in the user's name, and the user's phones are told to stop. A gateway masks what is still in flight \
      within a quarter of an hour. Remove the user from the backend first: a later call to the user is stored again. \
      Repeating it does no harm. push.audit records it with a digest of the user's id.

      --json prints an array with one element per table: place, removed, masked, waiting, is_complete.

      \(OperationsOptions.reference)
      """)

  @Argument(help: "The user's id, as in the recipients of calls and in push.register_device.")
  var user: String

  @Option(help: "The user's app.")
  var app: String

  @OptionGroup var options: OperationsOptions

  package func validate() throws {
    guard 1...256 ~= user.unicodeScalars.count else {
      throw ValidationError("the user's id must have 1 to 256 characters")
    }
  }

  package init() {}

  package func run() async throws {
    try await options.withConnection { connection in
      let report = try await erase(on: connection)
      StandardOutput.write(options.json ? report.json : report.text)
    }
  }

  /// Erases in steps, each in a transaction of its own, until nothing is left.
  func erase(on connection: PostgresConnection) async throws(PostgresError) -> (text: String, json: String) {
    var parameters = PostgresParameters()
    parameters.append(user)
    parameters.append(app)
    while true {
      let row = try await connection.query(Self.erase, parameters)
      if row.text(0, 0) == "true" { return (Terminal.printable(row.text(0, 1)), row.text(0, 2)) }
    }
  }

  /// One step: whether it was the last, a sentence, and the result as JSON. The sentence does not name the user.
  private static let erase = PostgresStatement(
    name: "erase_user",
    sql: """
      select bool_and(e.is_complete)::text,
        coalesce(string_agg(format('%s: %s', e.place, concat_ws(', ',
            case when e.removed > 0 then e.removed || ' removed' end, case when e.masked > 0 then e.masked || ' masked' end)), '; ')
          filter (where e.removed + e.masked > 0), 'nothing was found')
        || case when sum(e.waiting) > 0 then format('. %s still wait: a gateway goes on with them', sum(e.waiting)) else '' end,
        json_agg(e)::text
      from push.erase_user($1, $2) e
      """)
}
