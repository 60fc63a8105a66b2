// `push-gateway requeue` and `push-gateway void`: one call tried again, or taken back.

package import ArgumentParser
import Queue

package struct RequeueCommand: AsyncParsableCommand {
  package static let configuration = CommandConfiguration(
    commandName: "requeue",
    abstract: "Try a call again that still rings.",
    discussion: """
      A new invite for each device whose last one failed (dead or expired) and whose token is not known to be dead; invites that \
      wait for their next try are ready now. What is owed or was delivered is left alone, and so is a call that rings no more: \
      running it twice is harmless. It is written down in push.audit.

      --json prints one object: requeued, message.

      \(OperationsOptions.reference)
      """)

  @OptionGroup var call: CallArguments
  @OptionGroup var options: OperationsOptions

  var intervention: Intervention {
    call.intervention("requeue") {
      $0.append(call.callID)
      $0.append(call.app)
    }
  }

  package init() {}

  package func run() async throws { try await intervention.run(options) }
}

package struct VoidCommand: AsyncParsableCommand {
  package static let configuration = CommandConfiguration(
    commandName: "void",
    abstract: "End a ringing call as if it had never been.",
    discussion: """
      Invites that were not sent are void, phones that may ring are told to stop, and nobody is told of a missed call. A call that \
      has ended is left alone: running it twice is harmless. It is written down in push.audit.

      --json prints one object: voided (invites taken back unsent), message.

      \(OperationsOptions.reference)
      """)

  @Option(help: "Why, 1 to 64 characters; kept as the call's end_reason.")
  var reason = "voided"

  @OptionGroup var call: CallArguments
  @OptionGroup var options: OperationsOptions

  package func validate() throws {
    guard 1...64 ~= reason.unicodeScalars.count else { throw ValidationError("--reason must have 1 to 64 characters") }
  }

  var intervention: Intervention {
    call.intervention("void_call") {
      $0.append(call.callID)
      $0.append(reason)
      $0.append(call.app)
    }
  }

  package init() {}

  package func run() async throws { try await intervention.run(options) }
}
