// `push-gateway serve`: the gateway.

import ArgumentParser
import Foundation
import Logging
import Runtime
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

      Credentials and certificates are read again when their files or the configuration change, and on SIGHUP: new keys are used without a restart, \
      and without a failed push. log.level changes at the same moments. Other changes of the configuration take a restart.

      http.listen answers GET /livez and GET /readyz; with api.enabled, api.listen answers the HTTP API of openapi.yaml. Logs go to \
      standard error: one JSON object a line, or text where that is a terminal (docs/logging.md).

      Under systemd it says when it is ready and when it stops; with WatchdogSec= it is restarted when an event loop hangs.

      \(ConfigurationOptions.reference)
      """)

  @OptionGroup var configuration: ConfigurationOptions

  @Option(
    name: .long,
    help: """
      json or text; else log.format of the configuration, else text if standard error is a terminal and json if not.
      """)
  var logFormat: LogFormat?

  func run() async throws {
    ProcessMemory.makePrivate()
    let source = configuration.source
    let configuration = try source.load()
    let threshold = LogThreshold(configuration.logLevel)
    let logs = GatewayLogHandler.Sink.standardError(
      logFormat ?? configuration.logFormat ?? .ofStandardError, threshold)
    defer { logs.output.close() }
    LoggingSystem.bootstrap { _ in GatewayLogHandler(logs) }
    let logger = Logger(label: "push-gateway")
    if let limit = DescriptorLimit.raise(), let fault = DescriptorLimit.fault(of: configuration, under: limit) {
      logger.warning("Connections may run out of descriptors", metadata: ["reason": "\(fault)"])
    }
    let httpCredentials = try configuration.httpTLS.map {
      try ListenerCredentials("http", $0, privacy: configuration.secretPrivacy, logger: logger)
    }
    let apiCredentials = try configuration.api?.tls.map {
      try ListenerCredentials("api", $0, privacy: configuration.secretPrivacy, logger: logger)
    }
    let certificates = ListenerCredentialsWatcher(credentials: [httpCredentials, apiCredentials].compactMap(\.self))
    let heartbeat = Heartbeat()
    let gateway = GatewayService(
      configuration: configuration, source: source, logger: logger, threshold: threshold, heartbeat: heartbeat)
    gateway.metrics.watch(certificates.credentials)
    let dashboard = configuration.dashboard.map {
      Dashboard(
        settings: $0, listener: configuration.http, databaseURL: configuration.databaseURL, logger: logger,
        privacy: configuration.secretPrivacy)
    }
    let routes: [(any OpsRoutes)?] = [
      HealthRoutes(
        readiness: { await gateway.readiness() }, remarks: { await gateway.remarks() },
        silentLoops: { await heartbeat.silentLoops() }),
      MetricsRoutes(metrics: gateway.metrics, readiness: { await gateway.readiness() }), dashboard,
    ]
    let ops = OpsServer(
      listener: configuration.http, connectionsMax: configuration.httpConnectionsMax, logger: logger,
      credentials: httpCredentials, routes: routes.compactMap { $0 })
    let api = configuration.api.map {
      APIServer(
        settings: $0, databaseURL: configuration.databaseURL, logger: logger, credentials: apiCredentials,
        heartbeat: heartbeat)
    }
    let watchdog = Watchdog(heartbeat, logger: logger)
    var groupLogger = logger
    groupLogger.logLevel = max(logger.logLevel, .warning)
    // The last of the services is the first to be shut down: the gateway drains while /readyz still says so, and while
    // the API still answers.
    let attendants: [(any Service)?] = [
      watchdog, dashboard, ops, api, certificates,
      HangUpService {
        certificates.reload()
        await gateway.reloadCredentials()
      },
    ]
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
