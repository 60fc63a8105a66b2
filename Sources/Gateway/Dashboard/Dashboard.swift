// The page for the person on call: are calls ringing, and if not, where does it hurt?

internal import Hummingbird
internal import Logging
internal import Runtime
internal import ServiceLifecycle

/// Serves the dashboard at `/` and what it asks for below `/ui/` on `http.listen`, over connections to Postgres of its
/// own. Whoever has the ops key may pause and resume lanes; anybody else only looks.
struct Dashboard: Service, OpsRoutes {
  /// What `push.audit.via` says of what is done here.
  static let applicationName = "push-gateway dashboard"
  private static let connectionsMax = 2
  private static let timeoutSeconds = 5

  private let loop: EventLoop
  private let database: APIDatabase
  private let responder: DashboardResponder

  /// - Parameters:
  ///   - listener: where it is served; says which names of hosts are its own, and whether cookies need TLS.
  ///   - privacy: what is asked of the ops key's file.
  init(
    settings: GatewayConfiguration.Dashboard, listener: GatewayConfiguration.Listener, databaseURL: String,
    logger: Logger, privacy: SecretFile.Privacy = .required
  ) {
    loop = EventLoop(name: "dashboard")
    database = APIDatabase(
      url: databaseURL, loop: loop, timeoutSeconds: Self.timeoutSeconds, logger: logger,
      applicationName: Self.applicationName, connectionsMax: Self.connectionsMax)
    let hosts = DashboardHosts(listener: listener, names: settings.hosts)
    responder = DashboardResponder(
      hosts: hosts, state: DashboardState(database: database), database: database,
      login: settings.opsKeyFile.map { DashboardLogin(key: DashboardKey(file: $0, privacy: privacy), logger: logger) },
      cookie: DashboardCookie(isSecure: !hosts.isLoopback))
  }

  func add(to router: OpsRouter) {
    for method: HTTPRequest.Method in [.get, .head, .post] {
      for path: RouterPath in ["/", "/ui/**"] {
        router.on(path, method: method) { [responder] request, _ in await responder.respond(to: request) }
      }
    }
  }

  /// Keeps its connections until the service group shuts down.
  func run() async throws {
    try? await gracefulShutdown()
    await database.close()
    loop.stop()
  }
}
