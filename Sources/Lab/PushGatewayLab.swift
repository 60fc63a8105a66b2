// The command `push-gateway-lab` and its subcommands.

import ArgumentParser
import Console
import Settings

@main
struct PushGatewayLab: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "push-gateway-lab",
    abstract: "Try push-gateway: a demo, stand-ins for APNs, FCM, Expo and web push, and a load test.",
    discussion: """
      Production needs push-gateway alone, not this program.

      Exit codes: 0 done or verdict GOOD, 1 failed or verdict BAD, 2 verdict INCOMPLETE, 64 wrong usage, 78 wrong configuration.
      """,
    version: GatewayVersion.current,
    subcommands: [DemoCommand.self, SimulateCommand.self, LoadTestCommand.self])

  static func main() async { await runAsProgram() }
}
