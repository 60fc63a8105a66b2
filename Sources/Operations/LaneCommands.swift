// `push-gateway lanes`, and the changes to a lane: `pause`, `resume`, `resume-invalidation`.

package import ArgumentParser
import Console
internal import Providers
import Queue
import Runtime

/// A provider, or one of several services behind it: `apns`, `webpush/google`.
struct ChannelArgument: ExpressibleByArgument, CustomStringConvertible {
  let description: String

  init?(argument: String) {
    let channels = ProviderKind.allCases.flatMap { kind in
      [kind.rawValue] + kind.services.compactMap { $0.map { "\(kind.rawValue)/\($0.rawValue)" } }
    }
    guard channels.contains(argument) else { return nil }
    description = argument
  }

  static var allValueStrings: [String] { ProviderKind.allCases.map(\.rawValue) }
}

/// The arguments that name a lane.
struct LaneArguments: ParsableArguments {
  @Argument(help: "Name of the app.")
  var app: String

  @Argument(help: "Name of the provider; webpush/google is one push service of browsers.")
  var provider: ChannelArgument

  /// An intervention in this lane.
  ///
  /// - Parameter parameters: appends the arguments after app and provider.
  func intervention(
    _ function: String, _ parameters: (inout PostgresParameters) -> Void = { _ in }
  ) -> Intervention {
    Intervention(function) {
      $0.append(app)
      $0.append(provider.description)
      parameters(&$0)
    } diagnose: { connection in
      let rows = try await connection.query(Self.names)
      throw missing(among: (0..<rows.rowCount).map { rows.text($0, 0) })
    }
  }

  private func missing(among lanes: [String]) -> CommandFailure {
    let lane = "\(app)/\(provider)"
    return CommandFailure(
      "there is no lane \(lane)" + Suggestion.text(for: lane, among: lanes)
        + (lanes.isEmpty
          ? ": there are none until push-gateway serve registers them" : " (push-gateway lanes lists them)"))
  }

  private static let names = PostgresStatement(
    name: "lane_names", sql: "select distinct app || '/' || unnest(array[provider, channel]) from push.lanes order by 1"
  )
}

package struct LanesCommand: AsyncParsableCommand {
  package static let configuration = CommandConfiguration(
    commandName: "lanes",
    abstract: "Show the lanes: one for each app and provider.",
    discussion: """
      Shows for each lane whether it is paused, its circuit, requests in flight and their maximum, requests in the last second, and \
      its pending deliveries (the view push.lanes). Empty columns are left out. A lane without a circuit is served by no replica.

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
    abstract: "Pause a lane: claim nothing more from it.",
    discussion: """
      Deliveries that a replica has claimed are still sent. The others wait, and expire at their deadline, which for a call is the \
      end of its ring window. Repeating it does no harm. push.audit records it. push-gateway resume ends the pause.

      --json prints one object: changed, message.

      \(OperationsOptions.reference)
      """)

  @OptionGroup var lane: LaneArguments

  @Option(help: "The reason, for other operators; without it an earlier note is kept.")
  var note: String?

  @OptionGroup var options: OperationsOptions

  var intervention: Intervention { lane.intervention("pause_lane") { $0.append(note) } }

  package init() {}

  package func run() async throws { try await intervention.run(options) }
}

package struct ResumeCommand: AsyncParsableCommand {
  package static let configuration = CommandConfiguration(
    commandName: "resume",
    abstract: "Resume a paused lane.",
    discussion: """
      Takes effect at once, and removes the note of the pause. Repeating it does no harm. push.audit records it.

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
    abstract: "End the quarantine of a lane's dead tokens.",
    discussion: """
      If a provider suddenly rejects too many tokens as dead, the lane's invalidation is put on hold: the tokens are quarantined, \
      and still used. If the reason was a wrong key, topic or project, correct it and run this command: the tokens are kept. If the \
      tokens are really dead, --apply invalidates them, except those that were registered again since. Repeating it does no harm. \
      push.audit records it.

      --json prints one object: lane, was_held, invalidated, forgotten, message.

      \(OperationsOptions.reference)
      """)

  @OptionGroup var lane: LaneArguments

  @Flag(help: "Invalidate the quarantined tokens.")
  var apply = false

  @OptionGroup var options: OperationsOptions

  var intervention: Intervention { lane.intervention("resume_invalidation") { $0.append(apply) } }

  package init() {}

  package func run() async throws { try await intervention.run(options) }
}
