// `push-gateway status`: pending deliveries, lanes, replicas, and problems.

package import ArgumentParser
import Console

package struct StatusCommand: AsyncParsableCommand {
  package static let configuration = CommandConfiguration(
    commandName: "status",
    abstract: "Show pending deliveries, lanes, replicas, health warnings and overdue deliveries.",
    discussion: """
      Five tables: pending deliveries (push.summary), lanes (push.lanes), replicas that run or ended within the hour \
      (push.replicas), what is not ok (push.health), and overdue deliveries (push.stuck; ten rows, equal ones as one, invites first). In a \
      terminal, long texts are shortened to fit its width, but ids are not.

      --watch repeats them every 2 seconds, or at the given interval, until Ctrl-C. In a terminal they are drawn in place, \
      otherwise one after the other. If the database goes away, the command waits for it.

      --json prints one object: at, summary, lanes, replicas, health (all items), stuck_count and stuck (a hundred, invites first); \
      with --watch one object a line.

      \(OperationsOptions.reference)
      """)

  @Option(
    defaultAsFlag: 2.0, help: ArgumentHelp("Repeat at this interval, until Ctrl-C.", valueName: "seconds"))
  var watch: Double?

  @OptionGroup var options: OperationsOptions

  package func validate() throws {
    guard let watch else { return }
    guard 0.1...86_400 ~= watch else { throw ValidationError("--watch must be from 0.1 to 86400 seconds") }
  }

  package init() {}

  package func run() async throws {
    if let watch {
      return try await StatusWatch(options: options, interval: .seconds(watch)).run()
    }
    try await options.withConnection { connection in
      if options.json {
        StandardOutput.write(try await StatusReport.json(on: connection))
      } else {
        let lines = try await StatusReport.fetch(on: connection)
          .lines(width: Terminal.size?.columns, isColored: Terminal.isColored)
        StandardOutput.write(lines.joined(separator: "\n"))
      }
    }
  }
}
