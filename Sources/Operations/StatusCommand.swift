// `push-gateway status`: what is owed, by which lanes and replicas, and what is wrong.

package import ArgumentParser
import Console

package struct StatusCommand: AsyncParsableCommand {
  package static let configuration = CommandConfiguration(
    commandName: "status",
    abstract: "Show what is owed, the lanes, the replicas, and what is not as it should be.",
    discussion: """
      Five tables: what is owed (push.summary), the lanes (push.lanes), the replicas that run or ended within the hour \
      (push.replicas), what is not ok (push.health), and deliveries that something should have happened to (push.stuck; the \
      ten oldest). In a terminal, long texts are shortened to its width; ids never are.

      --watch draws them again every 2 seconds, or as many as it is given, until Ctrl-C. In a terminal they are drawn in place, \
      else one after the other. A database that goes away meanwhile is waited for.

      --json prints one object: at, summary, lanes, replicas, health (all of it), stuck_count and stuck (the hundred oldest); \
      with --watch one a line.

      \(OperationsOptions.reference)
      """)

  @Option(
    defaultAsFlag: 2.0, help: ArgumentHelp("Show it again at this interval, until Ctrl-C.", valueName: "seconds"))
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
