// The command `push-gateway`: its subcommands and nothing else.

import ArgumentParser

@main
struct PushGateway: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "push-gateway",
    abstract: "Makes phones ring: calls from a Postgres outbox to APNs, FCM and Expo.",
    discussion: """
      A backend writes a call to the table push.outbox in its own transaction; the gateway rings the right phones before the ring \
      window ends, and Postgres says what became of each.

      A first run, with DATABASE_URL set:
        push-gateway migrate
        push-gateway check-config --config gateway.yaml
        push-gateway serve --config gateway.yaml
        push-gateway enqueue calls.jsonl
        push-gateway status
        push-gateway timeline CALL_ID

      Exit codes: 0 done, 1 failed, 64 wrong usage, 78 wrong configuration.
      """,
    version: GatewayVersion.current,
    subcommands: [
      ServeCommand.self, MigrateCommand.self, EnqueueCommand.self, CheckConfigCommand.self, SimulateCommand.self,
      LoadTestCommand.self,
    ],
    groupedSubcommands: [
      CommandGroup(
        name: "Operations",
        subcommands: [
          StatusCommand.self, TimelineCommand.self, LanesCommand.self, PauseCommand.self, ResumeCommand.self,
          RequeueCommand.self, VoidCommand.self, ResumeInvalidationCommand.self, EraseUserCommand.self,
          APIKeyCommand.self,
        ])
    ])

  /// EX_CONFIG of sysexits.h: trying again does not help.
  static let wrongConfiguration = ExitCode(78)

  static func main() async {
    do {
      var command = try parseAsRoot()
      if var command = command as? any AsyncParsableCommand {
        try await command.run()
      } else {
        try command.run()
      }
    } catch let error as ConfigurationError {
      StandardError.write("Error: \(error)")
      exit(withError: wrongConfiguration)
    } catch let failure as CommandFailure where failure.isConfiguration {
      StandardError.write("Error: \(failure)")
      exit(withError: wrongConfiguration)
    } catch {
      exit(withError: error)
    }
  }
}
