// The HTTP server for whoever runs the gateway: is it alive, is it ready.

import Hummingbird
import Logging
import ServiceLifecycle

/// Whether work can be done now.
enum Readiness: Equatable, Sendable {
  case ready
  /// One sentence a reason; no secrets, for anybody may ask.
  case notReady([String])
}

/// Serves `GET /livez` and `GET /readyz` on `http.listen`, on threads of its own, away from the hot path.
///
/// - `/livez`: 200 while the process answers at all. For what restarts it.
/// - `/readyz`: 200 while it takes calls from the outbox, else 503 with the reasons, one a line. For what routes to it or rolls it out.
struct OpsServer: Service {
  private let application: Application<RouterResponder<BasicRequestContext>>

  /// - Parameters:
  ///   - listener: port 0 takes a free one.
  ///   - readiness: asked at each request; must answer soon.
  ///   - onListening: told the port once requests are answered.
  init(
    listener: GatewayConfiguration.Listener, logger: Logger, readiness: @escaping @Sendable () async -> Readiness,
    onListening: @escaping @Sendable (Int) async -> Void = { _ in }
  ) {
    let router = Router()
    router.get("livez") { _, _ in Self.answer(.ok, ["alive"]) }
    router.get("readyz") { _, _ in
      switch await readiness() {
      case .ready: Self.answer(.ok, ["ready"])
      case .notReady(let reasons): Self.answer(.serviceUnavailable, reasons)
      }
    }
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

  private static func answer(_ status: HTTPResponse.Status, _ lines: [String]) -> Response {
    Response(
      status: status, headers: [.contentType: "text/plain; charset=utf-8", .cacheControl: "no-store"],
      body: ResponseBody(byteBuffer: ByteBuffer(string: lines.joined(separator: "\n") + "\n")))
  }
}
