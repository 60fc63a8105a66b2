// The page for the person on call: are calls ringing, and if not, where does it hurt?

import Hummingbird
package import Logging
import Queue
import Runtime
import ServiceLifecycle

/// Serves the dashboard at `/` and what it asks for below `/ui/` on `http.listen`, over connections to Postgres of its
/// own. Whoever has an ops key, or is vouched for by a proxy, may pause and resume lanes; anybody else on this machine only looks.
package struct Dashboard: Service, OpsRoutes {
  /// What `push.audit.via` says of what is done here.
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

  /// Keeps its connections until the service group shuts down.
  package func run() async throws {
    try? await gracefulShutdown()
    await database.close()
    loop.stop()
  }
}
