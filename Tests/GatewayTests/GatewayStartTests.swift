// How a gateway starts while the database is down or busy.

import Logging
import Queue
import Runtime
import ServiceLifecycle
import Simulators
import TestSupport
import Testing

@testable import Gateway
@testable import HTTPSurface
@testable import Settings

@Suite(.timeLimit(.minutes(10))) struct GatewayStartTests {
  private func with(
    _ databaseURL: String, _ body: (GatewayService, _ stop: () async throws -> Void) async throws -> Void
  ) async throws {
    let simulators = try await SimulatorSuite.start(SimulatorSuite.Configuration(), material: SimulatorMaterial())
    var settings = try GatewayConfiguration.load(
      file: simulators.material.configurationFile, environment: ["DATABASE_URL": databaseURL])
    settings.databases = [GatewayConfiguration.Database(url: databaseURL)]
    let logger = Logger(label: "start", factory: { _ in SwiftLogNoOpLogHandler() })
    let service = GatewayService(configuration: settings, logger: logger)
    let group = ServiceGroup(services: [service], logger: logger)
    async let running: Void = group.run()
    try await body(service) { await group.triggerGracefulShutdown() }
    await group.triggerGracefulShutdown()
    try await running
    await simulators.stop()
  }

  @Test func `a gateway that is stopped while it waits for the database ends without an error`() async throws {
    // Nothing listens on this port.
    try await with("postgres://push@127.0.0.1:1/push?connect_timeout=1") { _, stop in
      try await Task.sleep(for: .milliseconds(100))
      try await stop()
    }
  }

  @Test func `a gateway waits for a lock on the apps, and then starts`() async throws {
    try await TestDatabase.with(isMigrated: false) { database in
      let ops = try await database.connect()
      try await Migrator().migrate(ops)
      try await ops.script("begin; lock table push.apps in exclusive mode")
      try await with(database.url) { service, _ in
        // Longer than the lock timeout of a gateway's session.
        try await Task.sleep(for: .milliseconds(1_500))
        #expect(await service.readiness() != .ready)
        try await ops.script("commit")
        while await service.readiness() != .ready { try await Task.sleep(for: .milliseconds(5)) }
      }
      await ops.close()
    }
  }
}
