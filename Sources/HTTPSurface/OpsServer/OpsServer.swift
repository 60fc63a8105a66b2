// The HTTP server for operators: health checks, metrics and dashboard.

import Hummingbird
import HummingbirdCore
package import Logging
import ServiceLifecycle
package import Settings

/// Serves the given routes on `http.listen`, on threads of its own, so that it cannot slow down the sending of pushes.
package struct OpsServer: Service {
  /// No valid request to this listener is larger.
  private static let limits = HTTPConnectionGuard.Limits(bodyMaxBytes: 65_536, request: .seconds(10))

  private static let key = "http.listen"

  private let listener: GatewayConfiguration.Listener
  private let application: Application<RouterResponder<OpsRequestContext>>

  /// - Parameters:
  ///   - listener: the address; with port 0 the system chooses a free port.
  ///   - connectionsMax: maximum number of connections; above it, waiting connections are evicted by new ones.
  ///   - credentials: certificate and key for TLS; nil: clear text.
  ///   - routes: the routes to serve; no two may have the same path.
  ///   - onListening: called with the port once the server accepts requests.
  package init(
    listener: GatewayConfiguration.Listener, connectionsMax: Int = 128, logger: Logger,
    credentials: ListenerCredentials? = nil, routes: [any OpsRoutes],
    onListening: @escaping @Sendable (Int) async -> Void = { _ in }
  ) {
    self.listener = listener
    let router = OpsRouter(context: OpsRequestContext.self)
    for part in routes { part.add(to: router) }
    let connections = HTTPConnectionCount(max: connectionsMax, listener: Self.key, logger: logger)
    application = Application(
      router: router,
      server: .http1(
        configuration: HTTP1Channel.Configuration(
          additionalChannelHandlers: [HTTPConnectionGuard(limits: Self.limits, connections: connections)]),
        credentials: credentials, logger: logger),
      configuration: ApplicationConfiguration(
        address: .hostname(listener.host, port: Int(listener.port)), serverName: nil, backlog: 1_024,
        availableConnectionsDelegate: MaximumAvailableConnections(
          HTTPConnectionCount.acceptedMax(connectionsMax), logger: logger)),
      onServerRunning: { channel in
        await HTTPListenerGuard.add(to: channel, listener: Self.key, logger: logger)
        await onListening(channel.localAddress?.port ?? Int(listener.port))
      },
      logger: logger)
  }

  /// Runs until the service group shuts down gracefully or the task is cancelled.
  package func run() async throws {
    try await listener.named(Self.key) { try await application.run() }
  }
}
