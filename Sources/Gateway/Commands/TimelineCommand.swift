// `push-gateway timeline CALL_ID`: the story of one call.

import ArgumentParser
import Queue

struct TimelineCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "timeline",
    abstract: "Tell what became of a call, device by device.",
    discussion: """
      Prints the events of push.timeline in order: enqueued, sent, and the outcome at each device. Times are milliseconds since \
      the call was enqueued. Tokens are masked.

      Needs the database and nothing else: DATABASE_URL, or the key database of the configuration. Exit code 1 if there is no \
      such call.
      """)

  @Argument(help: "The callId of the payload.")
  var callID: String

  @Flag(help: "Print a JSON array of the events instead of a table.")
  var json = false

  @OptionGroup var configuration: ConfigurationOptions

  func run() async throws {
    let connection = try await configuration.connect(as: "timeline")
    var parameters = PostgresParameters()
    parameters.append(callID)
    let rows = try await connection.query(json ? Self.asJSON : Self.asText, parameters)
    await connection.close()
    guard rows.rowCount > 0 else { throw CommandFailure("there is no call \(callID)") }
    if json {
      StandardOutput.write("[" + (0..<rows.rowCount).map { rows.text($0, 0) }.joined(separator: ",\n ") + "]")
    } else {
      let table = (0..<rows.rowCount).map { row in (0..<rows.columnCount).map { rows.text(row, $0) } }
      for line in TextTable.lines(Self.columns, table) { StandardOutput.write(line) }
    }
  }

  private static let columns = [
    "AT", "MS", "EVENT", "PROVIDER", "KIND", "USER", "ATTEMPT", "STATUS", "REASON", "DEVICE",
  ]

  private static let asText = PostgresStatement(
    name: "timeline_text",
    sql: """
      select to_char(at at time zone 'UTC', 'HH24:MI:SS.MS'), ms::text, event, provider, kind, user_id, attempt::text,
        status::text, reason, device
      from push.timeline($1)
      """)

  private static let asJSON = PostgresStatement(
    name: "timeline_json", sql: "select row_to_json(t)::text from push.timeline($1) t")
}

/// Columns as wide as they need to be.
enum TextTable {
  /// - Parameters:
  ///   - header: one word a column; a column without any value is left out.
  ///   - rows: as many texts a row as there are columns.
  static func lines(_ header: [String], _ rows: [[String]]) -> [String] {
    let used = header.indices.filter { column in rows.contains { !$0[column].isEmpty } }
    let widths = used.map { column in ([header] + rows).map { $0[column].count }.max() ?? 0 }
    return ([header] + rows).map { row in
      let cells = zip(used, widths).map { column, width in
        row[column] + String(repeating: " ", count: width - row[column].count)
      }
      var line = cells.joined(separator: "  ")
      while line.last == " " { line.removeLast() }
      return line
    }
  }
}
