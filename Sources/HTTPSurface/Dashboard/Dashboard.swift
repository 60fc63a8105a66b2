// The dashboard, for the person on call: whether calls ring, and if not, where the problem is.

import Hummingbird
package import Logging
import Queue
import Runtime
import ServiceLifecycle

/// Serves the dashboard's files at `/` and its requests below `/ui/` on `http.listen`, over connections to Postgres of
/// its own. Users with an ops key or with an identity from the proxy may pause and resume lanes. Other users on this
/// machine can only read.
package struct Dashboard: Service, OpsRoutes {
  /// The value of `push.audit.via` for changes made here.
  static let applicationName = "push-gateway dashboard"
  private static let connectionsMax = 2
  private static let timeoutSeconds = 5

  private let loop: EventLoop
  private let database: PostgresPool
  private let responder: DashboardResponder

  package init(gate: OpsGate, databaseURL: String, logger: Logger) {
    loop = EventLoop(name: "dashboard")
    database = PostgresPool(
      url: databaseURL, loop: loop, timeoutSeconds: Self.timeoutSeconds, logger: logger,
      applicationName: Self.applicationName, connectionsMax: Self.connectionsMax)
    responder = DashboardResponder(
      gate: gate, state: DashboardState(database: database), database: database, logger: logger)
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
    await database.close()
    loop.stop()
  }
}
