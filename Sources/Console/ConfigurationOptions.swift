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

  fileprivate var environment: [String: String] { ProcessInfo.processInfo.environment }

  fileprivate var file: String? {
    config ?? environment["PUSH_GATEWAY_CONFIG"].flatMap { $0.isEmpty ? nil : $0 }
  }

  /// The sources of the configuration.
  package var source: ConfigurationFile { ConfigurationFile(path: file, environment: environment) }

  /// The whole configuration.
  package func load() throws(ConfigurationError) -> GatewayConfiguration { try source.load() }

  /// The part of `--help` about keys and variables.
  package static let reference = """
    CONFIGURATION. A YAML file with these keys:

    \(ConfigurationKey.reference)

    Paths in the file are relative to the file. Environment variables override it: the name is PUSH_GATEWAY_ and the path of the key in \
    capitals, as in PUSH_GATEWAY_HTTP_LISTEN or PUSH_GATEWAY_APPS_PORTEIRO_APNS_KEY_FILE. DATABASE_URL overrides every other \
    setting of the database.
    """
}

/// `--database` and `--config`, for commands that need only a database.
package struct DatabaseOptions: ParsableArguments {
  @Option(
    name: .long,
    help: ArgumentHelp("The database, if the configuration has several: its name in databases.", valueName: "name"))
  package var database: String?

  @OptionGroup package var configuration: ConfigurationOptions

  package init() {}

  /// The database that was named, or all databases if none was.
  package func databases() throws(CommandFailure) -> [GatewayConfiguration.Database] {
    let all: [GatewayConfiguration.Database]
    do throws(ConfigurationError) {
      all = try GatewayConfiguration.loadDatabases(
        file: configuration.file, mustBeReadable: configuration.config != nil, environment: configuration.environment)
    } catch {
      throw CommandFailure(error)
    }
    guard let database else { return all }
    if let found = all.first(where: { $0.name == database }) { return [found] }
    let names = all.compactMap(\.name)
    throw CommandFailure(
      names.isEmpty
        ? "--database: the configuration has only one database, without a name: leave the option out"
        : "--database: there is no database \(database); it must be one of \(names.joined(separator: ", "))")
  }

  /// Connects to the outbox.
  ///
  /// - Parameter loop: the event loop of a command that connects more than once; nil: a new one.
  package func connect(
    as command: String, on loop: EventLoop = EventLoop(name: "postgres")
  ) async throws(CommandFailure) -> PostgresConnection {
    let databases = try databases()
    guard databases.count == 1 else {
      throw CommandFailure(
        "there are several databases: name one with --database: \(databases.compactMap(\.name).joined(separator: ", "))"
      )
    }
    return try await Self.connect(to: databases[0], as: command, on: loop)
  }

  /// Connects to one of `databases()`.
  package static func connect(
    to database: GatewayConfiguration.Database, as command: String, on loop: EventLoop = EventLoop(name: "postgres")
  ) async throws(CommandFailure) -> PostgresConnection {
    do throws(PostgresError) {
      return try await PostgresConnection.connect(
        to: database.url, applicationName: "push-gateway \(command)", on: loop)
    } catch {
      throw CommandFailure(error)
    }
  }
}
