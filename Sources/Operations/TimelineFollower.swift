// The timeline of a call while it grows.

internal import Console
package import Queue

/// Prints the events of a call that have not been printed, with the columns of `push-gateway timeline`.
package struct TimelineFollower {
  private let parameters: PostgresParameters
  private var printed: Set<[String]> = []
  private var heading = ""

  package init(callID: String, app: String) {
    var parameters = PostgresParameters()
    parameters.append(callID)
    parameters.append(app)
    self.parameters = parameters
  }

  /// The lines of the events since the last call, below a heading if the columns are other ones than before. What only describes a push that is not finished yet (ready, claimed, waiting) is left
  /// out, because it disappears.
  package mutating func news(on connection: PostgresConnection) async throws(PostgresError) -> [String] {
    var table = try await OperationsView.timeline.table(on: connection, parameters)
    let event = OperationsView.timeline.columns.firstIndex { $0.name == "event" } ?? 0
    table.rows.removeAll { ["ready", "claimed", "waiting"].contains($0[event].text) }
    let lines = table.lines(isColored: Terminal.isColored)
    let new = zip(table.rows, lines.dropFirst()).filter { printed.insert($0.0.map(\.text)).inserted }.map(\.1)
    guard !new.isEmpty, lines[0] != heading else { return new }
    heading = lines[0]
    return [heading] + new
  }
}
