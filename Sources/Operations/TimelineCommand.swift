// `push-gateway timeline CALL_ID`: the events of one call.

package import ArgumentParser
import Queue

package struct TimelineCommand: AsyncParsableCommand {
  package static let configuration = CommandConfiguration(
    commandName: "timeline",
    abstract: "Show what happened to a call, device by device.",
    discussion: """
      Prints the events of push.timeline in order: enqueued, sent, and the outcome for each device. MS is the number of milliseconds \
      since the call was enqueued. Exits with 1 if there is no such call.

      --json prints an array: at, ms, event, provider, kind, user_id, attempt, status, reason, device, trace_id.

      \(OperationsOptions.reference)
      """)

  @OptionGroup var call: CallArguments
  @OptionGroup var options: OperationsOptions

  package init() {}

  package func run() async throws {
    try await options.withConnection { connection in
      try await call.check(on: connection)
      try await options.show(.timeline, parameters, on: connection)
    }
  }

  private var parameters: PostgresParameters {
    var parameters = PostgresParameters()
    parameters.append(call.callID)
    parameters.append(call.app)
    return parameters
  }
}
