// Runs only the API for a test: a database, a server in this process, and a client that can send any bytes.

import Foundation
import Logging
import Queue
import Runtime
import ServiceLifecycle
import TestSupport
import TestTime

@testable import HTTPSurface
@testable import Settings

/// A running API.
package struct APIHarness {
  package let database: TestDatabase
  package let port: Int
  /// The port of the ops server that runs beside the API.
  package let opsPort: Int
  /// A key of the app `porteiro` with all scopes.
  package let key: String
  package let counters: APICounters

  /// Starts the API, runs `body`, and stops the API.
  ///
  /// - Parameters:
  ///   - lockPatience: how long a statement waits for a lock: longer than in a real API, so that none is refused because
  ///     another is slow.
  ///   - given: a database whose apps are registered; nil: one of its own, with the apps `porteiro` and `other`.
  package static func with(
    adjust: (inout GatewayConfiguration.API) -> Void = { _ in }, credentials: ListenerCredentials? = nil,
    lockPatience: Nanoseconds = .seconds(30), apiApps: APIApps = APIApps(),
    on given: TestDatabase? = nil, _ body: (APIHarness) async throws -> Void
  ) async throws {
    guard let database = given else {
      return try await TestDatabase.with {
        try await $0.execute("select push.register_app(app, 60) from unnest('{porteiro,other}'::text[]) app")
        try await with(
          adjust: adjust, credentials: credentials, lockPatience: lockPatience, apiApps: apiApps, on: $0, body)
      }
    }
    var settings = GatewayConfiguration.API(
      listener: GatewayConfiguration.Listener(host: "127.0.0.1", port: 0), bodyMaxBytes: 65_536,
      requestTimeoutSeconds: 60, busyAfterSeconds: 600, ratePerSecond: 100_000, connectionsMax: 512,
      database: GatewayConfiguration.Database(url: database.url))
    adjust(&settings)
    var logger = Logger(label: "api", factory: { StreamLogHandler.standardError(label: $0) })
    logger.logLevel = .critical
    let counters = APICounters()
    let (ports, listening) = AsyncStream.makeStream(of: Int.self)
    let (opsPorts, opsListening) = AsyncStream.makeStream(of: Int.self)
    let server = APIServer(
      settings: settings, logger: logger, counters: counters,
      credentials: credentials, lockPatience: lockPatience, apiApps: apiApps,
      onListening: { listening.yield($0) })
    let ops = OpsServer(
      listener: settings.listener, logger: logger, routes: [HealthRoutes { .ready }],
      onListening: { opsListening.yield($0) })
    let group = ServiceGroup(services: [ops, server], logger: logger)
    try await withThrowingTaskGroup(of: Void.self) { tasks in
      tasks.addTask {
        defer {
          listening.finish()
          opsListening.finish()
        }
        try await group.run()
      }
      guard let port = await ports.first(where: { _ in true }),
        let opsPort = await opsPorts.first(where: { _ in true })
      else { return try await tasks.waitForAll() }
      let harness = APIHarness(
        database: database, port: port, opsPort: opsPort, key: try await createKey(database, app: "porteiro"),
        counters: counters)
      do {
        try await body(harness)
      } catch {
        await group.triggerGracefulShutdown()
        throw error
      }
      await group.triggerGracefulShutdown()
      try await tasks.waitForAll()
    }
  }

  package static func createKey(
    _ database: TestDatabase, app: String, scopes: String = "enqueue,device,read", addresses: String? = nil
  ) async throws -> String {
    let networks = addresses.map { "'{\($0)}'" } ?? "null"
    return try await database.value(
      "select key from push.create_api_key('\(app)', 'test', '{\(scopes)}', addresses => \(networks))")
  }

  /// - Parameter addresses: networks separated by commas; nil: any.
  package func createKey(
    app: String = "porteiro", scopes: String = "enqueue,device,read", addresses: String? = nil
  ) async throws -> String {
    try await Self.createKey(database, app: app, scopes: scopes, addresses: addresses)
  }

  /// Sends one request on a connection of its own.
  ///
  /// - Parameters:
  ///   - key: nil: the harness's own; empty: none.
  ///   - headers: additional header lines.
  ///   - host: the address to connect from.
  package func send(
    _ method: String, _ path: String, _ body: String? = nil, key: String? = nil,
    type: String = "application/json", headers: [String] = [], from host: String = "127.0.0.1"
  ) async throws -> APIAnswer {
    var lines = ["\(method) \(path) HTTP/1.1", "Host: api", "Connection: close"] + headers
    let key = key ?? self.key
    if !key.isEmpty { lines.append("Authorization: Bearer \(key)") }
    if let body { lines += ["Content-Type: \(type)", "Content-Length: \(body.utf8.count)"] }
    return try await send(
      raw: Array((lines.joined(separator: "\r\n") + "\r\n\r\n" + (body ?? "")).utf8), from: host)
  }

  /// Sends the bytes unchanged, and reads until the server closes.
  package func send(raw bytes: [UInt8], from host: String = "127.0.0.1") async throws -> APIAnswer {
    let socket = try TestSocket(port: port, from: host)
    defer { socket.close() }
    return APIAnswer(await socket.exchange(bytes))
  }

  /// Repeats a request until its answer meets a condition, and returns that answer. Used where an answer is cached for a moment.
  package func eventually(
    _ ask: () async throws -> APIAnswer, until isRight: (APIAnswer) -> Bool
  ) async throws -> APIAnswer {
    var answer = try await ask()
    try await TestTime.eventually("another answer than \(answer)", every: .milliseconds(50)) {
      if isRight(answer) { return true }
      answer = try await ask()
      return isRight(answer)
    }
    return answer
  }

  package static let call = """
    {"payload": {"callId": "c1", "from": "doorman"}, "recipients": [{"userId": "ana", "fcmToken": "fcm-token-of-anas-phone"}]}
    """

  package static func call(_ callID: String) -> String { call.replacingOccurrences(of: "c1", with: callID) }
}

/// An answer of the server.
package struct APIAnswer: CustomStringConvertible {
  package var status = 0
  /// Names in lower case.
  package var headers: [String: String] = [:]
  package var body = ""

  /// - Parameter bytes: everything that was received on a connection. Interim answers are left out; no bytes have
  ///   status 0.
  package init(_ bytes: [UInt8]) {
    var rest = String(decoding: bytes, as: UTF8.self)[...]
    while true {
      guard let end = rest.firstRange(of: "\r\n\r\n") else { return }
      let lines = rest[..<end.lowerBound].split(separator: "\r\n")
      rest = rest[end.upperBound...]
      status = lines.first.flatMap { Int($0.split(separator: " ").dropFirst().first ?? "") } ?? 0
      guard status >= 200 else { continue }
      for line in lines.dropFirst() {
        let parts = line.split(separator: ":", maxSplits: 1)
        headers[parts[0].lowercased()] = String(parts[1].drop { $0 == " " })
      }
      body = String(rest)
      return
    }
  }

  package var json: [String: Any] {
    (try? JSONSerialization.jsonObject(with: Data(body.utf8))) as? [String: Any] ?? [:]
  }

  package var field: String? { json["field"] as? String }
  package var problem: String? {
    (json["type"] as? String).map { $0.replacingOccurrences(of: "urn:push-gateway:problem:", with: "") }
  }
  package var description: String { "\(status) \(body)" }
}
