// The HTTP API for backends that cannot use SQL. openapi.yaml describes its requests and answers.

import Hummingbird
import HummingbirdCore
package import Logging
import NIOPosix
import Queue
package import Runtime
import ServiceLifecycle
package import Settings

/// Serves the API on `api.listen`. It has threads, connections to Postgres and limits of its own, so that it cannot
/// slow down the sending of pushes.
package struct APIServer: Service {
  /// They end with the process: NIO's channels may still use their loop when the server has ended.
  private static let threads = MultiThreadedEventLoopGroup(numberOfThreads: 2)
  private static let headMaxBytes = 16_384
  private static let fieldMaxBytes = 8_192
  private static let fieldsMax = 64
  private static let key = "api.listen"

  private let settings: GatewayConfiguration.API
  private let databaseURL: String
  private let logger: Logger
  private let counters: APICounters
  private let credentials: ListenerCredentials?
  private let heartbeat: Heartbeat?
  private let lockPatience: Nanoseconds
  private let apiApps: APIApps
  private let onListening: @Sendable (Int) async -> Void

  /// - Parameters:
  ///   - counters: the API's counters, which the metrics show.
  ///   - credentials: certificate and key for TLS; nil: clear text.
  ///   - heartbeat: watches the API's event loop.
  ///   - lockPatience: longest wait for a lock of another transaction.
  ///   - apiApps: what the configuration says of apps.
  ///   - onListening: called with the port once the server accepts requests.
  package init(
    settings: GatewayConfiguration.API, logger: Logger, counters: APICounters = APICounters(),
    credentials: ListenerCredentials? = nil,
    heartbeat: Heartbeat? = nil, lockPatience: Nanoseconds = PostgresPool.lockPatience,
    apiApps: APIApps = APIApps(),
    onListening: @escaping @Sendable (Int) async -> Void = { _ in }
  ) {
    self.settings = settings
    databaseURL = settings.database.url
    self.logger = logger
    self.counters = counters
    self.credentials = credentials
    self.heartbeat = heartbeat
    self.lockPatience = lockPatience
    self.apiApps = apiApps
    self.onListening = onListening
  }

  /// Runs until the service group shuts down gracefully. Requests that have arrived by then are answered.
  package func run() async throws {
    let loop = EventLoop(name: "api")
    heartbeat?.watch(loop)
    defer {
      heartbeat?.unwatch(loop)
      loop.stop()
    }
    let database = PostgresPool(
      url: databaseURL, loop: loop, timeoutSeconds: settings.requestTimeoutSeconds, logger: logger,
      lockPatience: lockPatience)
    // A connection of its own: look-ups of keys do not wait for requests, and wrong keys do not delay requests.
    let keys = APIKeys(url: databaseURL, loop: loop, timeoutSeconds: settings.requestTimeoutSeconds, logger: logger)
    let keeping = Task { await keys.keep() }
    let result: Result<Void, any Error>
    do {
      let application = application(database, keys)
      result = .success(try await settings.listener.named(Self.key) { try await application.run() })
    } catch {
      result = .failure(error)
    }
    keeping.cancel()
    await keeping.value
    await database.close()
    try result.get()
  }

  private func application(_ database: PostgresPool, _ keys: APIKeys) -> Application<APIResponder> {
    let enqueuer = APIEnqueuer(database: database)
    let backlog = APIBacklog(database: database, limitSeconds: settings.busyAfterSeconds)
    let fronts = APIFronts(settings, database: database, enqueuer: enqueuer, backlog: backlog, apps: apiApps)
    let responder = APIResponder(
      keyring: keys.keyring,
      traffic: APITraffic(perSecond: settings.ratePerSecond),
      operations: APIOperations(database: database, enqueuer: enqueuer, backlog: backlog, apps: apiApps),
      fronts: fronts,
      bodyMaxBytes: settings.bodyMaxBytes, logger: logger, proxies: TrustedProxies(settings.trustedProxies),
      audit: keys.audit, counters: counters, uses: keys.uses)
    let limits = HTTPConnectionGuard.Limits(
      bodyMaxBytes: fronts.bodyMaxBytes(
        settings.matrixNetworks == nil ? .pushGorush : .notifyMatrix, otherwise: settings.bodyMaxBytes),
      request: .seconds(Int64(settings.requestTimeoutSeconds)))
    let connections = HTTPConnectionCount(max: settings.connectionsMax, listener: Self.key, logger: logger)
    // At lower levels, the server would log every connection that breaks.
    var serverLogger = logger
    serverLogger.logLevel = max(logger.logLevel, .warning)
    return Application(
      responder: responder,
      server: .http1(
        configuration: HTTP1Channel.Configuration(
          additionalChannelHandlers: [
            HTTPConnectionGuard(
              limits: limits, connections: connections, operationAtPath: { APIFronts.operation(at: $0) })
          ],
          httpDecoderConfiguration: HTTP1Channel.Configuration.DecoderConfiguration(
            maxHeaderFieldSize: Self.fieldMaxBytes, maxHeaderListSize: Self.headMaxBytes,
            maxHeaderFieldCount: Self.fieldsMax)),
        credentials: credentials, logger: logger),
      configuration: ApplicationConfiguration(
        address: .hostname(settings.listener.host, port: Int(settings.listener.port)), serverName: nil,
        backlog: 1_024,
        availableConnectionsDelegate: MaximumAvailableConnections(
          HTTPConnectionCount.acceptedMax(settings.connectionsMax), logger: serverLogger)),
      onServerRunning: { [onListening, logger, listener = settings.listener] channel in
        await HTTPListenerGuard.add(to: channel, listener: Self.key, logger: logger)
        let port = channel.localAddress?.port ?? Int(listener.port)
        logger.notice("The API listens", metadata: ["address": "\(listener.host):\(port)"])
        await onListening(port)
      },
      eventLoopGroupProvider: .shared(Self.threads), logger: serverLogger)
  }
}
