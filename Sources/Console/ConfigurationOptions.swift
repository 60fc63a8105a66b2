// How commands find the configuration.

package import ArgumentParser
import Foundation
package import Queue
package import Runtime
package import Settings

/// `--config` and the environment.
package struct ConfigurationOptions: ParsableArguments {
  @Option(
    name: .long,
    help: ArgumentHelp(
      "The configuration file (YAML); default PUSH_GATEWAY_CONFIG. Environment variables override it.",
      valueName: "file"))
  package var config: String?

  package init() {}

  private var environment: [String: String] { ProcessInfo.processInfo.environment }

  private var file: String? {
    config ?? environment["PUSH_GATEWAY_CONFIG"].flatMap { $0.isEmpty ? nil : $0 }
  }

  /// The sources of the configuration.
  package var source: ConfigurationFile { ConfigurationFile(path: file, environment: environment) }

  /// The whole configuration.
  package func load() throws(ConfigurationError) -> GatewayConfiguration { try source.load() }

  /// Connects to the outbox, for a command that needs only the database.
  ///
  /// - Parameter loop: the event loop of a command that connects more than once; nil: a new one.
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

  /// The part of `--help` about keys and variables.
  package static let reference = """
    CONFIGURATION. A YAML file with these keys:

    \(ConfigurationKey.reference)

    Paths in the file are relative to the file. Environment variables override it: the name is PUSH_GATEWAY_ and the path of the key in \
    capitals, as in PUSH_GATEWAY_HTTP_LISTEN or PUSH_GATEWAY_APPS_PORTEIRO_APNS_KEY_FILE. DATABASE_URL overrides every other \
    setting of the database.
    """
}
