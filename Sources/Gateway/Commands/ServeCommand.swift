// `push-gateway serve`: the gateway.

import ArgumentParser
import Foundation
import Logging
import ServiceLifecycle
import UnixSignals

struct ServeCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "serve",
    abstract: "Send what the outbox holds, until told to stop.",
    discussion: """
      Claims deliveries of every configured app and provider from the outbox, sends them, and writes down what became of each. \
      Any number of replicas may serve one database.

      The schema must be there: run `push-gateway migrate` first. A database that is not up yet is waited for.

      SIGTERM or SIGINT: no new claims, pushes in flight get shutdown.drain_seconds to finish, the rest goes back to the outbox \
      uncounted, results are written, exit 0.

      Credentials are read again when their files or the configuration change, and on SIGHUP: new keys are used without a restart, \
      and without a failed push. Other changes of the configuration take a restart.

      http.listen answers GET /livez and GET /readyz; with api.enabled, api.listen answers the HTTP API of openapi.yaml. Logs go to standard error.

      \(ConfigurationOptions.reference)
      """)

  @OptionGroup var configuration: ConfigurationOptions

  func run() async throws {
    let source = configuration.source
    let configuration = try source.load()
    LoggingSystem.bootstrap { StreamLogHandler.standardError(label: $0) }
    var logger = Logger(label: "push-gateway")
    logger.logLevel = configuration.logLevel
    let gateway = GatewayService(configuration: configuration, source: source, logger: logger)
    let ops = OpsServer(
      listener: configuration.http, logger: logger, routes: [HealthRoutes { await gateway.readiness() }])
    let api = configuration.api.map { APIServer(settings: $0, databaseURL: configuration.databaseURL, logger: logger) }
    var groupLogger = logger
    groupLogger.logLevel = max(logger.logLevel, .warning)
    // The last of the services is the first to be shut down: the gateway drains while /readyz still says so, and while
    // the API still answers.
    let attendants: [(any Service)?] = [ops, api, HangUpService { await gateway.reloadCredentials() }]
    let group = ServiceGroup(
      configuration: ServiceGroupConfiguration(
        services: attendants.compactMap { $0.map { ServiceGroupConfiguration.ServiceConfiguration(service: $0) } } + [
          ServiceGroupConfiguration.ServiceConfiguration(
            service: gateway, successTerminationBehavior: .gracefullyShutdownGroup,
            failureTerminationBehavior: .gracefullyShutdownGroup)
        ],
        gracefulShutdownSignals: [.sigterm, .sigint], logger: groupLogger))
    try await group.run()
  }
}
