// Runs only the dashboard for a test: a database, an ops server in this process, and a client that can send any bytes.

import Foundation
import HTTP2TestSupport
import Logging
import ServiceLifecycle
import TestSupport

@testable import HTTPSurface
@testable import Settings

/// A running dashboard.
package struct DashboardHarness {
  package static let key = "an-ops-key-of-more-than-thirty-two-characters"

  package let database: TestDatabase
  package let port: Int
  /// The file that contains the key.
  package let keyFile: String

  /// A browser's session: its cookie and token.
  package struct Visitor {
    package var cookie: String
    package var token: String

    package init(cookie: String, token: String) {
      self.cookie = cookie
      self.token = token
    }

    /// - Parameter answer: the answer to a login.
    package init(_ answer: APIAnswer) {
      cookie = answer.headers["set-cookie"]?.split(separator: ";").first.map(String.init) ?? ""
      token = answer.json["token"] as? String ?? ""
    }
  }

  /// Starts the dashboard, runs `body`, and stops the dashboard.
  ///
  /// - Parameters:
  ///   - hasKey: whether there is an ops key, named `ops`.
  ///   - listen: `0.0.0.0` for a listener that other machines could reach. Requests use the loopback address in any
  ///     case.
  ///   - access: the other settings.
  ///   - south: a second database; the first one is then called `north`.
  package static func with(
    hasKey: Bool = true, hosts: [String] = [], listen: String = "127.0.0.1",
    access: GatewayConfiguration.OpsAccess = .init(), isTLS: Bool = false,
    readiness: Readiness = .ready, south: TestDatabase? = nil, _ body: (DashboardHarness) async throws -> Void
  ) async throws {
    let keyFile = FileManager.default.temporaryDirectory.appending(path: "ops-key-\(UUID().uuidString)").path
    try SecretFixture.write(key + "\n", to: keyFile)
    defer { try? FileManager.default.removeItem(atPath: keyFile) }
    var access = access
    if hasKey { access.opsKeys.append(OpsKey(name: "ops", file: keyFile)) }
    access.hosts += hosts
    try await TestDatabase.with { database in
      var logger = Logger(label: "dashboard", factory: { StreamLogHandler.standardError(label: $0) })
      logger.logLevel = .critical
      let listener = GatewayConfiguration.Listener(host: listen, port: 0)
      let gate = OpsGate(access: access, listener: listener, isTLS: isTLS, logger: logger)
      let dashboard = Dashboard(
        gate: gate,
        databases: south.map { [.init(name: "north", url: database.url), .init(name: "south", url: $0.url)] }
          ?? [.init(url: database.url)], logger: logger)
      let (ports, listening) = AsyncStream.makeStream(of: Int.self)
      let server = OpsServer(
        listener: listener, logger: logger,
        routes: [
          OpsHostCheck(hosts: gate.hosts),
          HealthRoutes(readiness: { readiness }, remarks: { ["porteiro/fcm: a remark"] }, gate: gate),
          MetricsRoutes(metrics: Metrics(lanes: []), readiness: { readiness }, gate: gate), dashboard,
        ],
        onListening: { listening.yield($0) })
      let group = ServiceGroup(services: [dashboard, server], logger: logger)
      try await withThrowingTaskGroup(of: Void.self) { tasks in
        tasks.addTask {
          defer { listening.finish() }
          try await group.run()
        }
        guard let port = await ports.first(where: { _ in true }) else { return try await tasks.waitForAll() }
        do {
          try await body(DashboardHarness(database: database, port: port, keyFile: keyFile))
        } catch {
          await group.triggerGracefulShutdown()
          throw error
        }
        await group.triggerGracefulShutdown()
        try await tasks.waitForAll()
      }
    }
  }

  /// Sends a request as the dashboard's page does: with `Host`, and for a POST with `Origin`.
  ///
  /// - Parameters:
  ///   - host: nil: the listener's own.
  ///   - headers: additional header lines.
  package func send(
    _ method: String, _ path: String, _ body: String? = nil, host: String? = nil, origin: String? = nil,
    headers: [String] = []
  ) async throws -> APIAnswer {
    let host = host ?? "127.0.0.1:\(port)"
    var lines = ["\(method) \(path) HTTP/1.1", "Host: \(host)", "Connection: close"] + headers
    if method == "POST" { lines.append("Origin: \(origin ?? "http://\(host)")") }
    if let body { lines += ["Content-Type: application/json", "Content-Length: \(body.utf8.count)"] }
    let socket = try TestSocket(port: port)
    defer { socket.close() }
    return APIAnswer(await socket.exchange(Array((lines.joined(separator: "\r\n") + "\r\n\r\n" + (body ?? "")).utf8)))
  }

  package func get(_ path: String, headers: [String] = []) async throws -> APIAnswer {
    try await send("GET", path, headers: headers)
  }

  /// Logs in with the key.
  package func logIn(_ key: String = Self.key, headers: [String] = []) async throws -> Visitor {
    Visitor(try await send("POST", "/ui/session", #"{"key": "\#(key)"}"#, headers: headers))
  }

  /// Pauses or resumes FCM of the app `porteiro`.
  package func switchLane(
    _ visitor: Visitor?, paused: Bool = true, note: String = "why", origin: String? = nil, token: String? = nil,
    headers: [String] = []
  ) async throws -> APIAnswer {
    var headers = headers
    if let visitor { headers += ["Cookie: other=1; \(visitor.cookie)", "X-CSRF-Token: \(token ?? visitor.token)"] }
    return try await send(
      "POST", "/ui/lanes", #"{"app": "porteiro", "provider": "fcm", "paused": \#(paused), "note": "\#(note)"}"#,
      origin: origin, headers: headers)
  }
}
