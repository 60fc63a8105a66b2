// `push-gateway calls`: finds calls of which no id is known.

package import ArgumentParser
import Console
import Queue
import Runtime

package struct CallsCommand: AsyncParsableCommand {
  /// `push.calls.outcome`.
  enum Outcome: String, CaseIterable, ExpressibleByArgument { case ringing, answered, ended, missed }

  /// How long before now, in seconds.
  struct Span: ExpressibleByArgument, CustomStringConvertible {
    let seconds: Int64

    init?(argument: String) {
      guard let seconds = HumanDuration.seconds(argument) else { return nil }
      self.seconds = seconds
    }

    var description: String { "\(seconds)s" }
  }

  package static let configuration = CommandConfiguration(
    commandName: "calls",
    abstract: "Find calls by user, app, outcome, or the first characters of their id.",
    discussion: """
      Prints calls of push.calls, the newest first: those that fulfil every condition that is given. PUSHES says what became of their \
      invites; a call without any had no device. `push-gateway timeline CALL_ID` then tells the whole story of one.

      Example:
        push-gateway calls --user ana --since 1h --outcome missed

      The time that it takes grows with the number of calls since --since. With --id alone it does not, in a database whose collation \
      is C.

      --json prints an array: id, app, call_id, kind, created_at, outcome, end_reason, ended_at, answered_by, users, pushes.

      \(OperationsOptions.reference)
      """)

  @Option(help: "A user id that is among the recipients.")
  var user: String?

  @Option(help: "The app of the calls.")
  var app: String?

  @Option(help: "How they stand or ended: ringing, answered, ended or missed.")
  var outcome: Outcome?

  @Option(name: .customLong("id"), help: ArgumentHelp("The first characters of the callId.", valueName: "prefix"))
  var prefix: String?

  @Option(
    help: ArgumentHelp(
      "Only calls that were enqueued within this time: 90s, 30m, 1h, 2d. Default: 1d, and any time with --id.",
      valueName: "time"))
  var since: Span?

  @Option(help: "Maximum number of calls, 1 to 1000.")
  var limit = 20

  @OptionGroup var options: OperationsOptions

  package init() {}

  package func validate() throws {
    guard 1...1000 ~= limit else { throw ValidationError("--limit must be from 1 to 1000") }
  }

  package func run() async throws {
    let (view, parameters) = search
    try await options.withConnection { connection in
      try await checkApp(on: connection)
      try await options.show(
        view, parameters, on: connection, nothing: "no call was found; an earlier one may be with a longer --since")
    }
  }

  /// - Throws: `CommandFailure` if no gateway has ever served the app, so that none of its calls can have been enqueued.
  private func checkApp(on connection: PostgresConnection) async throws {
    guard let app else { return }
    let rows = try await connection.query(Self.apps)
    let apps = (0..<rows.rowCount).map { rows.text($0, 0) }
    guard !apps.contains(app) else { return }
    throw CommandFailure(
      "there is no app \(app)" + Suggestion.text(for: app, among: apps)
        + (apps.isEmpty ? ": no gateway has served any yet" : " (push-gateway lanes lists them)"))
  }

  private static let apps = PostgresStatement(name: "apps_of_lanes", sql: "select distinct app from push.lanes")

  /// The view, and the parameters of its conditions.
  private var search: (OperationsView, PostgresParameters) {
    var (conditions, parameters) = ([String](), PostgresParameters())
    func add(_ value: String?, _ condition: (String) -> String) {
      guard let value else { return }
      parameters.append(value)
      conditions.append(condition("$\(parameters.count)"))
    }
    add(user) { "\($0) = any (users)" }
    add(app) { "app = \($0)" }
    add(outcome?.rawValue) { "outcome = \($0)" }
    add(prefix) { "call_id ^@ \($0)" }
    add(since?.description ?? (prefix == nil ? "1d" : nil)) { "created_at > now() - \($0)::text::interval" }
    parameters.append(Int64(limit))
    return (.calls(where: conditions.joined(separator: " and "), limit: "$\(parameters.count)"), parameters)
  }
}
