// How a gateway starts while the database is down or busy.

import Foundation
import HTTP2TestSupport
import Logging
import Queue
import Runtime
import ServiceLifecycle
import Simulators
import Synchronization
import TestSupport
import TestTime
import Testing

@testable import Gateway
@testable import HTTPSurface
@testable import Settings

/// Counts the log lines with one message.
private final class LineCounter: Sendable {
  private let message: String
  private let found = Mutex(0)

  init(_ message: String) { self.message = message }

  var count: Int { found.withLock { $0 } }
  var logger: Logger { Logger(label: "start") { _ in Handler(counter: self) } }

  private struct Handler: LogHandler {
    let counter: LineCounter
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.info

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
      get { metadata[key] }
      set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
      if "\(event.message)" == counter.message { counter.found.withLock { $0 += 1 } }
    }
  }
}

@Suite(.timeLimit(.minutes(10))) struct GatewayStartTests {
  /// A gateway that starts with these databases.
  ///
  /// - Parameters:
  ///   - watchesFiles: whether it takes over changes of its configuration file.
  ///   - body: gets the gateway and the path of the file.
  private func with(
    databases: [String: String], logger: Logger, watchesFiles: Bool = false,
    _ body: (GatewayService, _ file: String) async throws -> Void
  ) async throws {
    let simulators = try await SimulatorSuite.start(SimulatorSuite.Configuration(), material: SimulatorMaterial())
    let source = ConfigurationFile(
      path: simulators.material.configurationFile, environment: ["DATABASE_URL": "postgres://127.0.0.1/unused"])
    var settings = try source.load()
    settings.databases = databases.sorted { $0.key < $1.key }.map { .init(name: $0.key, url: $0.value) }
    let service = GatewayService(configuration: settings, source: watchesFiles ? source : nil, logger: logger)
    let group = ServiceGroup(services: [service], logger: logger)
    async let running: Void = group.run()
    try await body(service, simulators.material.configurationFile)
    await group.triggerGracefulShutdown()
    try await running
    await simulators.stop()
  }

  /// A relay to a database that is silent at first, and the database's URL through it.
  private func silent(_ database: TestDatabase) throws -> (relay: TCPRelay, url: String) {
    let parts = database.url.split(separator: "/")
    let port = try #require(parts.dropFirst().first?.split(separator: ":").last.flatMap { UInt16($0) })
    let relay = try TCPRelay(to: port)
    relay.fallSilent()
    return (relay, "postgres://push@127.0.0.1:\(relay.port)/\(database.name)?connect_timeout=1")
  }

  private func isReady(_ service: GatewayService) async throws {
    try await eventually("the gateway is ready") { await service.readiness() == .ready }
  }

  private func with(
    _ databaseURL: String, logger: Logger = Logger(label: "start", factory: { _ in SwiftLogNoOpLogHandler() }),
    _ body: (GatewayService, _ stop: () async throws -> Void) async throws -> Void
  ) async throws {
    let simulators = try await SimulatorSuite.start(SimulatorSuite.Configuration(), material: SimulatorMaterial())
    var settings = try GatewayConfiguration.load(
      file: simulators.material.configurationFile, environment: ["DATABASE_URL": databaseURL])
    settings.databases = [GatewayConfiguration.Database(url: databaseURL)]
    let service = GatewayService(configuration: settings, logger: logger)
    let group = ServiceGroup(services: [service], logger: logger)
    async let running: Void = group.run()
    try await body(service) { await group.triggerGracefulShutdown() }
    await group.triggerGracefulShutdown()
    try await running
    await simulators.stop()
  }

  @Test func `a gateway that is stopped while it waits for the database ends without an error`() async throws {
    let waits = LineCounter("The database cannot be reached; waiting for it")
    // Nothing listens on this port.
    try await with("postgres://push@127.0.0.1:1/push?connect_timeout=1", logger: waits.logger) { _, stop in
      try await eventually("it waits for the database") { waits.count > 0 }
      try await stop()
    }
  }

  @Test func `a database without the schema does not end a gateway that waits for another one`() async throws {
    try await TestDatabase.with(.empty) { south in
      try await TestDatabase.with(.migrated) { north in
        let (relay, url) = try silent(north)
        defer { relay.stop() }
        let refusals = LineCounter("The database cannot be served; it is tried again")
        try await with(databases: ["north": url, "south": south.url], logger: refusals.logger) { service, _ in
          // More refusals than there are databases.
          try await eventually("three refusals") { refusals.count >= 3 }
          relay.speakAgain()
          try await isReady(service)
        }
      }
    }
  }

  @Test func `an app that is added while no database answers is served when one does`() async throws {
    try await TestDatabase.with(.migrated) { database in
      let (relay, url) = try silent(database)
      defer { relay.stop() }
      let waits = LineCounter("The database cannot be reached; waiting for it")
      try await with(databases: ["north": url], logger: waits.logger, watchesFiles: true) { service, file in
        try await eventually("it waits for the database") { waits.count > 0 }
        let text = try String(contentsOfFile: file, encoding: .utf8)
        let added = "  zelador:\n    expo: { url: \"https://127.0.0.1:4\" }\n"
        try SecretFixture.write(text.replacing("apps:\n", with: "apps:\n" + added), to: file)
        relay.speakAgain()
        try await isReady(service)
        try await database.wait(for: "select count(*) from push.apps", toBe: "2")
      }
    }
  }

  @Test func `a gateway waits for a lock on the apps, and then starts`() async throws {
    try await TestDatabase.with(.migrated) { database in
      let ops = try await database.connect()
      try await ops.script("begin; lock table push.apps in exclusive mode")
      try await with(database.url) { service, _ in
        // Longer than the lock timeout of a gateway's session.
        try await database.wait(
          for: """
            select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
              and clock_timestamp() - backend_start > interval '1.5 s')
            """)
        #expect(await service.readiness() != .ready)
        try await ops.script("commit")
        try await isReady(service)
      }
      await ops.close()
    }
  }

  @Test func `a pooler in transaction mode is refused`() async throws {
    try await TestDatabase.with(.migrated) { database in
      let pooler = try PgBouncer(before: database.url)
      let failure = await #expect(throws: SchemaCheck.Failure.self) {
        try await SchemaCheck.wait(
          for: pooler.url, database.loop, Logger(label: "start") { _ in SwiftLogNoOpLogHandler() })
      }
      #expect("\(String(describing: failure))".contains("a pooler in transaction mode answers"))
    }
  }

  @Test func `a gateway that lacks a right is not ready, says which, and is ready again when it has it`() async throws {
    try await TestDatabase.with(.migrated) { database in
      let role = "gateway_\(UUID().uuidString.prefix(8).lowercased())"
      try await database.execute("create role \(role) login in role push_gateway")
      var parts = try #require(URLComponents(string: database.url))
      parts.user = role
      do {
        try await with(try #require(parts.string)) { service, _ in
          func isRefused(_ reason: String) async throws {
            try await eventually("not ready: \(reason)") {
              if case .notReady(let reasons) = await service.readiness() {
                reasons.contains { $0.contains(reason) }
              } else {
                false
              }
            }
          }
          try await isReady(service)
          // Nobody calls, so it is not noticed by a push.
          try await database.execute("revoke execute on function push.settle from push_gateway")
          try await isRefused("execute push.settle")
          try await database.execute("select push.grant_roles()")
          try await isReady(service)
          try await database.execute("revoke execute on function push.claim from push_gateway")
          try await isRefused("the database refuses claim: ")
          try await database.execute("select push.grant_roles()")
          try await isReady(service)
          try await database.execute("revoke push_gateway from \(role)")
          try await isRefused("the database refuses beat: ")
          try await database.wait(
            for: "select value ~ '\(role) may not execute' from push.health where item = 'schema'")
          try await database.execute("grant push_gateway to \(role)")
          try await isReady(service)
        }
      } catch {
        try? await database.execute("drop owned by \(role); drop role \(role)")
        throw error
      }
      try await database.execute("drop owned by \(role); drop role \(role)")
    }
  }
}
