// `push-gateway serve`: runs the gateway.

import ArgumentParser
import Console
import Foundation
import HTTPSurface
import Logging
import NIOCore
import Queue
import Runtime
import ServiceLifecycle
import Settings
import UnixSignals

struct ServeCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "serve",
    abstract: "Send pushes from the outbox until SIGTERM or SIGINT.",
    discussion: """
      Claims deliveries of every configured app and provider from the outbox, sends them, and records the outcome of each. \
      Any number of replicas may share one database.

      The schema must be up to date: run `push-gateway migrate` first. If the database is down, serve waits for it. If a key or \
      certificate file cannot be used, serve exits with 78 and the message of check-config.

      At SIGTERM or SIGINT, serve claims nothing more, and waits at most shutdown.drain_seconds for pushes in flight. Then it returns \
      the other deliveries to the outbox without counting a try, writes all results, and exits with 0.

      The configuration, credentials and certificates are read again when their files change, and on SIGHUP. Apps are added, changed \
      and removed without a restart, and new keys are used without a failed push. A new log.level takes effect as well. Any other \
      change needs a restart.

      With several databases, each is served as if it were the only one: one that is down or slow delays no other. They share the \
      connections to the providers.

      http.listen serves GET /livez, GET /readyz, the metrics and the dashboard; with api.enabled, api.listen serves the HTTP API of \
      openapi.yaml. Logs go to standard error: one JSON object a line, or text if it is a terminal (docs/logging.md).

      Under systemd, serve reports when it is ready and when it stops; with WatchdogSec= it is restarted if an event loop hangs.

      \(ConfigurationOptions.reference)
      """)

  @OptionGroup var configuration: ConfigurationOptions

  @Option(
    name: .long,
    help: """
      json or text; default log.format of the configuration, or else text if standard error is a terminal, otherwise json.
      """)
  var logFormat: LogFormat?

  func run() async throws {
    ProcessMemory.makePrivate()
    let source = configuration.source
    var configuration = try source.load()
    try CredentialCheck.require(configuration, from: source)
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
      configuration.hasDashboard ? Dashboard(gate: gate, databases: configuration.databases, logger: logger) : nil
    // The check of the host name must come before the other routes.
    let routes: [(any OpsRoutes)?] = [
      OpsHostCheck(hosts: gate.hosts),
      HealthRoutes(
        readiness: { await gateway.readiness() }, remarks: { await gateway.remarks() },
        silentLoops: { await heartbeat.silentLoops() }, gate: gate),
      MetricsRoutes(metrics: gateway.metrics, readiness: { await gateway.readiness() }, gate: gate), dashboard,
      APIPathRoutes(api: configuration.api),
    ]
    let ops = OpsServer(
      listener: configuration.http, connectionsMax: configuration.httpConnectionsMax, logger: logger,
      credentials: httpCredentials, routes: routes.compactMap { $0 })
    let api = configuration.api.map {
      APIServer(
        settings: $0, logger: logger, counters: gateway.metrics.api,
        credentials: apiCredentials,
        heartbeat: heartbeat, apiApps: gateway.apiApps)
    }
    let watchdog = Watchdog(heartbeat, logger: logger)
    var groupLogger = logger
    groupLogger.logLevel = max(logger.logLevel, .warning)
    // Services are shut down in reverse order. So while the gateway drains, /readyz and the API still answer.
    let services: [(any Service)?] = [
      watchdog, dashboard, ops, api, certificates,
      ReloadSignalService {
        certificates.reload()
        await gateway.reload()
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
    // One of several databases with another schema must not stop the others: it is tried again and again.
    if configuration.databases.count == 1 {
      do {
        try await SchemaCheck.refuse(configuration.databases[0].url)
      } catch let error as PostgresError {
        throw CommandFailure(error, requires: "push_gateway")
      }
    }
    try await group.run()
  }

  /// Raises the limit of open files as far as the system allows, and lowers the limits of connections to fit.
  private func fit(_ configuration: inout GatewayConfiguration, _ logger: Logger) throws {
    // Each loop takes three descriptors, and NIO would start one for each core.
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
