// `push-gateway serve`: the gateway.

import ArgumentParser
import Console
import Foundation
import HTTPSurface
import Logging
import NIOCore
import Runtime
import ServiceLifecycle
import Settings
import UnixSignals

struct ServeCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "serve",
    abstract: "Send what the outbox holds, until told to stop.",
    discussion: """
      Claims deliveries of every configured app and provider from the outbox, sends them, and writes down what became of each. \
      Any number of replicas may serve one database.

      The schema must be there: run `push-gateway migrate` first. A database that is not up yet is waited for. Files of keys and \
      certificates that cannot be used are refused with exit code 78, in the words of check-config.

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
    var configuration = try source.load()
    try CredentialCheck.require(configuration, file: source.path)
    let threshold = LogThreshold(configuration.logLevel)
    let logs = GatewayLogHandler.Sink.standardError(
      logFormat ?? configuration.logFormat ?? .ofStandardError, threshold)
    defer { logs.output.close() }
    LoggingSystem.bootstrap { _ in GatewayLogHandler(logs) }
    let logger = Logger(label: "push-gateway")
    try fit(&configuration, logger)
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
    let gate = OpsGate(
      access: configuration.opsAccess, listener: configuration.http, isTLS: configuration.httpTLS != nil,
      logger: logger)
    let dashboard =
      configuration.hasDashboard ? Dashboard(gate: gate, databaseURL: configuration.databaseURL, logger: logger) : nil
    // The check of hosts stands before the routes that come after it.
    let routes: [(any OpsRoutes)?] = [
      OpsHostCheck(hosts: gate.hosts),
      HealthRoutes(
        readiness: { await gateway.readiness() }, remarks: { await gateway.remarks() },
        silentLoops: { await heartbeat.silentLoops() }, gate: gate),
      MetricsRoutes(metrics: gateway.metrics, readiness: { await gateway.readiness() }, gate: gate), dashboard,
    ]
    let ops = OpsServer(
      listener: configuration.http, connectionsMax: configuration.httpConnectionsMax, logger: logger,
      credentials: httpCredentials, routes: routes.compactMap { $0 })
    let api = configuration.api.map {
      APIServer(
        settings: $0, databaseURL: configuration.databaseURL, logger: logger, counters: gateway.metrics.api,
        credentials: apiCredentials,
        heartbeat: heartbeat)
    }
    let watchdog = Watchdog(heartbeat, logger: logger)
    var groupLogger = logger
    groupLogger.logLevel = max(logger.logLevel, .warning)
    // The last of the services is the first to be shut down: the gateway drains while /readyz still says so, and while
    // the API still answers.
    let services: [(any Service)?] = [
      watchdog, dashboard, ops, api, certificates,
      ReloadSignalService {
        certificates.reload()
        await gateway.reloadCredentials()
      },
    ]
    let group = ServiceGroup(
      configuration: ServiceGroupConfiguration(
        services: services.compactMap { $0.map { ServiceGroupConfiguration.ServiceConfiguration(service: $0) } } + [
          ServiceGroupConfiguration.ServiceConfiguration(
            service: gateway, successTerminationBehavior: .gracefullyShutdownGroup,
            failureTerminationBehavior: .gracefullyShutdownGroup)
        ],
        gracefulShutdownSignals: [.sigterm, .sigint], logger: groupLogger))
    try await GatewayService.refuseOldSchema(of: configuration.databaseURL)
    try await group.run()
  }

  /// Makes room for as many descriptors as the system allows, and lowers the limits of connections to those.
  private func fit(_ configuration: inout GatewayConfiguration, _ logger: Logger) throws {
    // Each loop takes three descriptors; on a large machine NIO would start one for each core.
    NIOSingletons.groupLoopCountSuggestion = 2
    guard let limit = DescriptorLimit.raise(),
      let fault = DescriptorLimit.fault(of: configuration, under: limit)
    else { return }
    guard let fitted = DescriptorLimit.fitted(configuration, under: limit) else {
      logger.critical("The limit of open files is too low to start", metadata: ["reason": "\(fault)"])
      throw ExitCode(78)
    }
    configuration = fitted
    logger.warning(
      "Fewer connections are accepted than configured",
      metadata: [
        "http_connections_max": .stringConvertible(fitted.httpConnectionsMax),
        "api_connections_max": fitted.api.map { .stringConvertible($0.connectionsMax) }, "reason": "\(fault)",
      ].compactMapValues(\.self))
  }
}
