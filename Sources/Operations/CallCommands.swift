// `push-gateway requeue` and `push-gateway void`: try a call again, or end it.

package import ArgumentParser
import Queue

package struct RequeueCommand: AsyncParsableCommand {
  package static let configuration = CommandConfiguration(
    commandName: "requeue",
    abstract: "Try a call again that still rings.",
    discussion: """
      Creates a new invite for each device whose last invite failed (dead or expired) and whose token is not known to be dead. \
      Invites that wait for their next try are sent now. Invites in flight or delivered are not changed, nor is a call that no longer \
      rings, so repeating it does no harm. push.audit records it.

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
    abstract: "End a ringing call without missed-call notifications.",
    discussion: """
      Unsent invites become void, phones that may ring are told to stop, and no missed call is shown. A call that has ended is \
      not changed, so repeating it does no harm. push.audit records it.

      --json prints one object: voided (invites that were not sent), message.

      \(OperationsOptions.reference)
      """)

  @Option(help: "The reason, 1 to 64 characters; stored as the call's end_reason.")
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
