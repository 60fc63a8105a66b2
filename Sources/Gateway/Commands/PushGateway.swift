// The command `push-gateway` and its subcommands.

import ArgumentParser
import Console
import Operations
import Settings

@main
struct PushGateway: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "push-gateway",
    abstract: "Sends calls from a Postgres outbox to phones over APNs, FCM and Expo, and to browsers over web push.",
    discussion: """
      A backend writes a call to the table push.outbox in its own transaction. The gateway sends it to the user's phones before the \
      ring window ends, and records the outcome for each device in Postgres.

      A first run, with DATABASE_URL set:
        push-gateway migrate
        push-gateway check-config --config gateway.yaml
        push-gateway serve --config gateway.yaml
        push-gateway enqueue calls.jsonl
        push-gateway ring --app APP --user USER --wait
        push-gateway status
        push-gateway timeline CALL_ID

      Exit codes: 0 done, 1 failed, 64 wrong usage, 69 no answer (check-config --connect), 78 wrong configuration.
      """,
    version: GatewayVersion.current,
    subcommands: [
      ServeCommand.self, MigrateCommand.self, EnqueueCommand.self, RingCommand.self, CheckConfigCommand.self,
      AppCommand.self,
      MovedToLab.Simulate.self, MovedToLab.LoadTest.self,
    ],
    groupedSubcommands: [
      CommandGroup(
        name: "Operations",
        subcommands: [
          StatusCommand.self, CallsCommand.self, TimelineCommand.self, LanesCommand.self, PauseCommand.self,
          ResumeCommand.self,
          RequeueCommand.self, VoidCommand.self, ResumeInvalidationCommand.self, EraseUserCommand.self,
          APIKeyCommand.self,
        ])
    ])

  static func main() async { await runAsProgram() }
}
