// `push-gateway lanes`, and what can be done to a lane: `pause`, `resume`, `resume-invalidation`.

public import ArgumentParser
import Console
internal import Providers
import Queue
import Runtime

extension ProviderKind: ExpressibleByArgument {}  // as public as ProviderKind is, hence the imports

/// Which lane a command is about.
struct LaneArguments: ParsableArguments {
  @Argument(help: "Name of the app.")
  var app: String

  @Argument(help: "Whose lane of this app.")
  var provider: ProviderKind

  /// What is done to the lane by a function.
  ///
  /// - Parameter parameters: appends what follows app and provider.
  func intervention(
    _ function: String, _ parameters: (inout PostgresParameters) -> Void = { _ in }
  ) -> Intervention {
    Intervention(function) {
      $0.append(app)
      $0.append(provider.rawValue)
      parameters(&$0)
    } diagnose: { connection in
      let rows = try await connection.query(Self.names)
      throw missing(among: (0..<rows.rowCount).map { rows.text($0, 0) })
    }
  }

  private func missing(among lanes: [String]) -> CommandFailure {
    let lane = "\(app)/\(provider.rawValue)"
    return CommandFailure(
      "there is no lane \(lane)" + Suggestion.text(for: lane, among: lanes)
        + (lanes.isEmpty
          ? ": there are none until push-gateway serve registers them" : " (push-gateway lanes lists them)"))
  }

  private static let names = PostgresStatement(
    name: "lane_names", sql: "select app || '/' || provider from push.lanes order by 1")
}

package struct LanesCommand: AsyncParsableCommand {
  package static let configuration = CommandConfiguration(
    commandName: "lanes",
    abstract: "Show the lanes: an app and a provider each.",
    discussion: """
      For each: whether it is paused, its circuit, requests in flight and how many may be, requests in the last second, and what is \
      owed (the view push.lanes). Columns without any value are left out. A lane without a circuit is served by no replica.

      --json prints an array with all columns of the view.

      \(OperationsOptions.reference)
      """)

  @OptionGroup var options: OperationsOptions

  package init() {}

  package func run() async throws {
    try await options.withConnection {
      try await options.show(.lanes, on: $0, nothing: "there are no lanes yet: push-gateway serve registers them")
    }
  }
}

package struct PauseCommand: AsyncParsableCommand {
  package static let configuration = CommandConfiguration(
    commandName: "pause",
    abstract: "Claim nothing more from a lane.",
    discussion: """
      What a replica holds is still sent; the rest waits, and expires at its deadline: for a call that is its ring window. Running it \
      twice is harmless. It is written down in push.audit; push-gateway resume ends it.

      --json prints one object: changed, message.

      \(OperationsOptions.reference)
      """)

  @OptionGroup var lane: LaneArguments

  @Option(help: "Why, for whoever sees the pause; without it an earlier note stays.")
  var note: String?

  @OptionGroup var options: OperationsOptions

  var intervention: Intervention { lane.intervention("pause_lane") { $0.append(note) } }

  package init() {}

  package func run() async throws { try await intervention.run(options) }
}

package struct ResumeCommand: AsyncParsableCommand {
  package static let configuration = CommandConfiguration(
    commandName: "resume",
    abstract: "Let a paused lane send again.",
    discussion: """
      At once, and the note of the pause is removed. Running it twice is harmless. It is written down in push.audit.

      --json prints one object: changed, message.

      \(OperationsOptions.reference)
      """)

  @OptionGroup var lane: LaneArguments
  @OptionGroup var options: OperationsOptions

  var intervention: Intervention { lane.intervention("resume_lane") }

  package init() {}

  package func run() async throws { try await intervention.run(options) }
}

package struct ResumeInvalidationCommand: AsyncParsableCommand {
  package static let configuration = CommandConfiguration(
    commandName: "resume-invalidation",
    abstract: "End the hold of a lane's token invalidation.",
    discussion: """
      When a provider calls too many tokens dead at once, the lane's invalidation is put on hold: the tokens are quarantined and used \
      on. If a wrong key, topic or project was the reason, mend it and run this: the tokens live on. If they are really dead, \
      --apply invalidates them, those aside that were registered since. Running it twice is harmless. It is written down in push.audit.

      --json prints one object: lane, was_held, invalidated, forgotten, message.

      \(OperationsOptions.reference)
      """)

  @OptionGroup var lane: LaneArguments

  @Flag(help: "Invalidate the quarantined tokens after all.")
  var apply = false

  @OptionGroup var options: OperationsOptions

  var intervention: Intervention { lane.intervention("resume_invalidation") { $0.append(apply) } }

  package init() {}

  package func run() async throws { try await intervention.run(options) }
}
