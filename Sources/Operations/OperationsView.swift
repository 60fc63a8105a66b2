// A view of the schema push, as a table for people and as JSON for programs.

internal import Console
internal import Queue

/// The rows of a view or of a set-returning function, and how its columns are shown.
struct OperationsView: Sendable {
  struct Column: Sendable {
    enum Form: Sendable {
      case text
      /// A text that people copy. It is never shortened.
      case id
      case number
      /// An interval: `5.2 s`; in JSON, seconds.
      case duration
      /// In UTC, to the second.
      case time
      /// Time of day in UTC, to the millisecond.
      case clock
      /// `yes`, or empty.
      case flag
      /// An array of words.
      case list
    }

    /// The name in the database and in JSON.
    var name: String
    /// The heading in the table; nil: the column is only in JSON.
    var heading: String?
    var form: Form
    /// Whether the column is left out if the terminal is too narrow.
    var isSpare: Bool

    init(_ name: String, _ heading: String?, _ form: Form = .text, isSpare: Bool = false) {
      self.name = name
      self.heading = heading
      self.form = form
      self.isSpare = isSpare
    }
  }

  /// A name that is unique among views, because the prepared statements have it.
  var name: String
  /// The part after `from`: the view with conditions and order, and parameters as `$1`….
  var source: String
  var columns: [Column]

  /// The rows as a table.
  func table(
    on connection: PostgresConnection, _ parameters: PostgresParameters = PostgresParameters()
  ) async throws(PostgresError) -> TextTable {
    let shown = columns.compactMap { column in column.heading.map { (heading: $0, column: column) } }
    let rows = try await connection.query(
      PostgresStatement(
        name: "\(name)_text",
        // The alias keeps the column's own name free. Otherwise `order by` would sort the texts: 1, 10, 2.
        text: "select \(shown.map { "\($0.column.text) as shown" }.joined(separator: ", ")) from \(source)"), parameters
    )
    return TextTable(
      columns: shown.map { heading, column in
        .init(
          heading: heading, alignment: column.form.alignment, mayBeShortened: column.form.mayBeShortened,
          mayBeLeftOut: column.isSpare)
      },
      rows: (0..<rows.rowCount).map { row in
        shown.indices.map { shown[$0].column.cell(rows.text(row, $0), isNull: rows.isNull(row, $0)) }
      })
  }

  /// The rows as a JSON array.
  func json(
    on connection: PostgresConnection, _ parameters: PostgresParameters = PostgresParameters()
  ) async throws(PostgresError) -> String {
    try await connection.query(PostgresStatement(name: "\(name)_json", text: "select \(asJSON)::text"), parameters)
      .text(0, 0)
  }

  /// An SQL expression of type json that contains the rows.
  var asJSON: String {
    "(select coalesce(json_agg(v), '[]') from (select \(columns.map(\.json).joined(separator: ", ")) from \(source)) v)"
  }
}

extension OperationsView.Column {
  /// Quoted, because a name may be an SQL keyword.
  private var quoted: String { "\"\(name)\"" }

  /// An SQL expression of type text, in the form that `cell` reads.
  fileprivate var text: String {
    switch form {
    case .text, .id, .number, .flag: "\(quoted)::text"
    case .duration: "extract(epoch from \(quoted))::text"
    case .time: "to_char(\(quoted) at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS')"
    case .clock: "to_char(\(quoted) at time zone 'UTC', 'HH24:MI:SS.MS')"
    case .list: "array_to_string(\(quoted), ',')"
    }
  }

  /// An SQL expression with the column's name.
  fileprivate var json: String {
    form == .duration ? "round(extract(epoch from \(quoted)), 3) as \(quoted)" : quoted
  }

  fileprivate func cell(_ text: String, isNull: Bool) -> TextTable.Cell {
    if isNull { return .init("") }
    switch form {
    case .text: return .init(text, Self.emphasis[text] ?? .none)
    case .id, .number, .time, .clock, .list: return .init(text)
    case .duration:
      return .init(HumanDuration.text(seconds: Double(text) ?? .nan), text.hasPrefix("-") ? .alarm : .none)
    case .flag: return text == "true" ? .init("yes", .warning) : .init("")
    }
  }

  /// Words that mean a problem, in every view.
  private static let emphasis: [String: TextTable.Emphasis] = [
    "bad": .alarm, "open": .alarm, "silent": .alarm, "dead": .alarm,
    "warn": .warning, "half_open": .warning, "expired": .warning, "delivered_late": .warning,
  ]
}

extension OperationsView.Column.Form {
  fileprivate var alignment: TextTable.Alignment {
    switch self {
    case .number, .duration: .right
    case .text, .id, .time, .clock, .flag, .list: .left
    }
  }

  /// Numbers and times must not be shortened, because a part of one would be a wrong value.
  fileprivate var mayBeShortened: Bool {
    switch self {
    case .text, .list: true
    case .id, .number, .duration, .time, .clock, .flag: false
    }
  }
}
