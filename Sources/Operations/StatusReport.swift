// The state of the whole gateway at one moment.

internal import Console
internal import Queue
internal import Settings

/// The output of `push-gateway status`.
struct StatusReport: Sendable {
  struct Section: Sendable {
    var title: String
    var table: TextTable
    /// Printed if there are no rows.
    var nothing: String
    /// Printed below the rows.
    var remark: String?
  }

  /// The version and the time.
  var heading: String
  var sections: [Section]

  /// Maximum number of overdue deliveries that are listed, as text of rows of equal ones. The others are only counted.
  private static let stuckMax = (text: 10, json: 100)

  static func fetch(on connection: PostgresConnection) async throws(PostgresError) -> StatusReport {
    let moment = try await connection.query(moment)
    let stuck = try await OperationsView.stuckGroups(max: stuckMax.text).table(on: connection)
    let more = Int(moment.int64(0, 1)) - stuck.rows.reduce(0) { $0 + (Int($1[0].text) ?? 0) }
    return StatusReport(
      heading: "push-gateway \(GatewayVersion.current), \(moment.text(0, 0)) UTC",
      sections: [
        Section(title: "OWED", table: try await OperationsView.summary.table(on: connection), nothing: "nothing"),
        Section(
          title: "LANES", table: try await OperationsView.lanes.table(on: connection),
          nothing: "none yet; push-gateway serve registers them"),
        Section(
          title: "REPLICAS", table: try await OperationsView.replicas.table(on: connection),
          nothing: "none is running: nothing is sent until push-gateway serve is started"),
        Section(title: "QUOTAS", table: try await OperationsView.quotas.table(on: connection), nothing: "none"),
        Section(title: "HEALTH", table: try await OperationsView.troubles.table(on: connection), nothing: "ok"),
        Section(title: "STUCK", table: stuck, nothing: "nothing", remark: more > 0 ? "and \(more) more" : nil),
      ])
  }

  /// The same as a JSON object in one line, with every item of push.health.
  static func json(on connection: PostgresConnection) async throws(PostgresError) -> String {
    let text = try await connection.query(document).text(0, 0)
    // Line breaks occur only between values, because JSON escapes them within texts.
    return text.replacing("\n", with: "")
  }

  /// - Parameters: as those of `TextTable.lines`.
  func lines(width: Int? = nil, isColored: Bool = false) -> [String] {
    var lines = [heading]
    for section in sections {
      lines.append("")
      if section.table.rows.isEmpty {
        lines.append("\(section.title): \(section.nothing)")
      } else {
        lines.append(section.title)
        lines += section.table.lines(width: width.map { $0 - Self.indent.count }, isColored: isColored)
          .map { Self.indent + $0 }
        if let remark = section.remark { lines.append(Self.indent + remark) }
      }
    }
    return lines
  }

  private static let indent = "  "

  private static let moment = PostgresStatement(
    name: "status_moment",
    sql: """
      select to_char(now() at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS'), (select count(*) from push.stuck)
      """)

  private static let document = PostgresStatement(
    name: "status_json",
    text: """
      select json_build_object('at', now(), 'summary', \(OperationsView.summary.asJSON),
        'lanes', \(OperationsView.lanes.asJSON), 'replicas', \(OperationsView.replicas.asJSON),
        'quotas', \(OperationsView.quotas.asJSON), 'health', (select coalesce(json_agg(h), '[]') from push.health h),
        'stuck_count', (select count(*) from push.stuck),
        'stuck', \(OperationsView.stuck(max: stuckMax.json).asJSON))::text
      """)
}
