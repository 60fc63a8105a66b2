// The dashboard, for the person on call: whether calls ring, and if not, where the problem is.

import Hummingbird
package import Logging
import Queue
import Runtime
import ServiceLifecycle
package import Settings

/// Serves the dashboard's files at `/` and its requests below `/ui/` on `http.listen`, over connections to Postgres of
/// its own. With several databases, the page shows one at a time. Users with an ops key or with an identity from the proxy may
/// pause and resume lanes, and requeue and end calls. Other users on this machine can only read.
package struct Dashboard: Service, OpsRoutes {
  /// The value of `push.audit.via` for changes made here.
  static let applicationName = "push-gateway dashboard"
  private static let connectionsMax = 2
  private static let timeoutSeconds = 5

  private let loop: EventLoop
  private let databases: [DashboardDatabase]
  private let responder: DashboardResponder

  package init(gate: OpsGate, databases: [GatewayConfiguration.Database], logger: Logger) {
    let loop = EventLoop(name: "dashboard")
    self.loop = loop
    let names = databases.compactMap(\.name)
    self.databases = databases.map { database in
      let pool = PostgresPool(
        url: database.url, loop: loop, timeoutSeconds: Self.timeoutSeconds, logger: logger,
        applicationName: Self.applicationName, connectionsMax: Self.connectionsMax)
      return DashboardDatabase(
        name: database.name, pool: pool, state: DashboardState(database: pool, name: database.name, names: names))
    }
    responder = DashboardResponder(gate: gate, databases: self.databases, logger: logger)
  }

  package func add(to router: OpsRouter) {
    for method: HTTPRequest.Method in [.get, .head, .post] {
      for path: RouterPath in ["/", "/ui/**"] {
        router.on(path, method: method) { [responder] request, context in
          await responder.respond(to: request, context)
        }
      }
    }
  }

  /// Keeps the connections to Postgres open until the service group shuts down.
  package func run() async throws {
    try? await gracefulShutdown()
    for database in databases { await database.pool.close() }
    loop.stop()
  }
}
