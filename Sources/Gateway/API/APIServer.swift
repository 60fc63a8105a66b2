// The HTTP API for backends that do not speak SQL: openapi.yaml says what it takes and answers.

internal import Hummingbird
internal import HummingbirdCore
internal import Logging
internal import NIOPosix
internal import Queue
internal import Runtime
internal import ServiceLifecycle

/// Serves the API on `api.listen`: with threads, connections to Postgres and limits of its own, away from the hot path.
struct APIServer: Service {
  private static let threads = 2
  private static let headMaxBytes = 16_384
  private static let fieldMaxBytes = 8_192
  private static let fieldsMax = 64

  private let settings: GatewayConfiguration.API
  private let databaseURL: String
  private let logger: Logger
  private let credentials: ListenerCredentials?
  private let heartbeat: Heartbeat?
  private let onListening: @Sendable (Int) async -> Void

  /// - Parameters:
  ///   - credentials: of its TLS; nil: clear text.
  ///   - heartbeat: has an eye on the event loop.
  ///   - onListening: told the port once requests are answered.
  init(
    settings: GatewayConfiguration.API, databaseURL: String, logger: Logger, credentials: ListenerCredentials? = nil,
    heartbeat: Heartbeat? = nil,
    onListening: @escaping @Sendable (Int) async -> Void = { _ in }
  ) {
    self.settings = settings
    self.databaseURL = databaseURL
    self.logger = logger
    self.credentials = credentials
    self.heartbeat = heartbeat
    self.onListening = onListening
  }

  /// Runs until the service group shuts down gracefully, and answers what has been asked by then.
  func run() async throws {
    let loop = EventLoop(name: "api")
    heartbeat?.watch(loop)
    defer {
      heartbeat?.unwatch(loop)
      loop.stop()
    }
    let threads = MultiThreadedEventLoopGroup(numberOfThreads: Self.threads)
    let database = APIDatabase(
      url: databaseURL, loop: loop, timeoutSeconds: settings.requestTimeoutSeconds, logger: logger)
    do {
      try await application(database, threads).run()
    } catch {
      await database.close()
      try? await threads.shutdownGracefully()
      throw error
    }
    await database.close()
    try await threads.shutdownGracefully()
  }

  private func application(
    _ database: APIDatabase, _ threads: MultiThreadedEventLoopGroup
  ) -> Application<APIResponder> {
    let responder = APIResponder(
      keyring: APIKeyring { id async throws(APIProblem) in try await Self.find(id, database) },
      traffic: APITraffic(perSecond: settings.ratePerSecond),
      operations: APIOperations(
        database: database, backlog: APIBacklog(database: database, limitSeconds: settings.busyAfterSeconds)),
      bodyMaxBytes: settings.bodyMaxBytes, logger: logger)
    let limits = HTTPConnectionGuard.Limits(
      bodyMaxBytes: settings.bodyMaxBytes, request: .seconds(Int64(settings.requestTimeoutSeconds)))
    let connections = HTTPConnectionCount(max: settings.connectionsMax)
    // Its own lines would name every connection that breaks.
    var serverLogger = logger
    serverLogger.logLevel = max(logger.logLevel, .warning)
    return Application(
      responder: responder,
      server: .http1(
        configuration: HTTP1Channel.Configuration(
          additionalChannelHandlers: [HTTPConnectionGuard(limits: limits, connections: connections)],
          httpDecoderConfiguration: HTTP1Channel.Configuration.DecoderConfiguration(
            maxHeaderFieldSize: Self.fieldMaxBytes, maxHeaderListSize: Self.headMaxBytes,
            maxHeaderFieldCount: Self.fieldsMax)),
        credentials: credentials, logger: logger),
      configuration: ApplicationConfiguration(
        address: .hostname(settings.listener.host, port: Int(settings.listener.port)), serverName: nil,
        backlog: 1_024),
      onServerRunning: { [onListening, logger, listener = settings.listener] channel in
        let port = channel.localAddress?.port ?? Int(listener.port)
        logger.notice("The API listens", metadata: ["address": "\(listener.host):\(port)"])
        await onListening(port)
      },
      eventLoopGroupProvider: .shared(threads), logger: serverLogger)
  }

  private static func find(_ id: Int32, _ database: APIDatabase) async throws(APIProblem) -> KnownAPIKey? {
    var parameters = PostgresParameters()
    parameters.append(id)
    let result = try await database.query(APIStatements.findKey, parameters)
    guard result.rowCount == 1 else { return nil }
    return KnownAPIKey(
      app: result.text(0, 0), scopes: Set(result.text(0, 1).split(separator: " ").map(String.init)),
      hash: result.bytes(0, 2))
  }
}
