// How every command finds its configuration.

package import ArgumentParser
import Foundation
package import Queue
package import Runtime
package import Settings

/// `--config`, and the environment behind it.
package struct ConfigurationOptions: ParsableArguments {
  @Option(
    name: .long,
    help: ArgumentHelp(
      "The configuration (YAML); else PUSH_GATEWAY_CONFIG. Environment variables go before it.", valueName: "file"))
  package var config: String?

  package init() {}

  private var environment: [String: String] { ProcessInfo.processInfo.environment }

  private var file: String? {
    config ?? environment["PUSH_GATEWAY_CONFIG"].flatMap { $0.isEmpty ? nil : $0 }
  }

  /// Where it comes from.
  package var source: ConfigurationFile { ConfigurationFile(path: file, environment: environment) }

  /// The whole configuration.
  package func load() throws(ConfigurationError) -> GatewayConfiguration { try source.load() }

  /// A connection to the outbox, for a command that needs nothing else.
  ///
  /// - Parameter loop: of a command that connects more than once.
  package func connect(
    as command: String, on loop: EventLoop = EventLoop(name: "postgres")
  ) async throws(CommandFailure) -> PostgresConnection {
    let url: String
    do throws(ConfigurationError) {
      url = try GatewayConfiguration.loadDatabaseURL(file: file, environment: environment)
    } catch {
      throw CommandFailure(error)
    }
    do throws(PostgresError) {
      return try await PostgresConnection.connect(to: url, applicationName: "push-gateway \(command)", on: loop)
    } catch {
      throw CommandFailure(error)
    }
  }

  /// What `--help` says about keys and variables.
  package static let reference = """
    CONFIGURATION. A YAML file with these keys:

    \(ConfigurationKey.reference)

    Files named in it are looked for beside it. Every key has an environment variable that goes before it: PUSH_GATEWAY_ and the path in \
    capitals, as in PUSH_GATEWAY_HTTP_LISTEN or PUSH_GATEWAY_APPS_PORTEIRO_APNS_KEY_FILE. DATABASE_URL goes before everything \
    for the database.
    """
}
