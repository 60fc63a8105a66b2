// The HTTP server for whoever runs the gateway. What it answers, its parts say: health, metrics, dashboard.

import Hummingbird
import Logging
import ServiceLifecycle

/// Serves the routes of its parts on `http.listen`, on threads of its own, away from the hot path.
struct OpsServer: Service {
  private let application: Application<RouterResponder<BasicRequestContext>>

  /// - Parameters:
  ///   - listener: port 0 takes a free one.
  ///   - routes: the parts; no two may claim the same path.
  ///   - onListening: told the port once requests are answered.
  init(
    listener: GatewayConfiguration.Listener, logger: Logger, routes: [any OpsRoutes],
    onListening: @escaping @Sendable (Int) async -> Void = { _ in }
  ) {
    let router = OpsRouter()
    for part in routes { part.add(to: router) }
    application = Application(
      router: router,
      configuration: ApplicationConfiguration(
        address: .hostname(listener.host, port: Int(listener.port)), serverName: nil),
      onServerRunning: { channel in await onListening(channel.localAddress?.port ?? Int(listener.port)) },
      logger: logger)
  }

  /// Runs until the service group shuts down gracefully or the task is cancelled.
  func run() async throws {
    try await application.run()
  }
}
