// The HTTP server for whoever runs the gateway. What it answers, its parts say: health, metrics, dashboard.

import Hummingbird
import HummingbirdCore
package import Logging
import ServiceLifecycle
package import Settings

/// Serves the routes of its parts on `http.listen`, on threads of its own, away from the hot path.
package struct OpsServer: Service {
  /// Nothing that is sent to it is longer.
  private static let limits = HTTPConnectionGuard.Limits(bodyMaxBytes: 65_536, request: .seconds(10))

  private static let key = "http.listen"

  private let listener: GatewayConfiguration.Listener
  private let application: Application<RouterResponder<OpsRequestContext>>

  /// - Parameters:
  ///   - listener: port 0 takes a free one.
  ///   - connectionsMax: at a time; beyond that, connections that wait give way to new ones.
  ///   - credentials: of its TLS; nil: clear text.
  ///   - routes: the parts; no two may claim the same path.
  ///   - onListening: told the port once requests are answered.
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
