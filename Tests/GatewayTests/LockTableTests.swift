import HTTPSurfaceTestSupport
import Queue
import Runtime
import Simulators
import TestSupport
import TestTime
import Testing

@testable import HTTPSurface

@Suite("Postgres's table of locks is full", .timeLimit(.minutes(10)))
struct LockTableTests {
  /// Takes advisory locks until there is no room for another, including the room that other transactions release
  /// meanwhile.
  private static func fill(_ connection: PostgresConnection) async throws {
    var (taken, step) = (0, 8_192)
    while step > 0 {
      do {
        try await connection.script(
          "select pg_advisory_lock(1, g) from generate_series(\(taken), \(taken + step - 1)) g")
        taken += step
      } catch {
        guard error.code == .server(sqlState: "53200") else { throw error }
        step /= 2
      }
    }
  }

  @Test("calls are refused, nothing that was sent is lost, and once there is room everything rings once")
  func fullTable() async throws {
    try await TestCluster.with { cluster in
      let database = TestDatabase(url: cluster.url, loop: EventLoop(name: "test"))
      defer { database.loop.stop() }
      try await database.migrateAsGateway()
      var simulators = GatewayHarness.strict
      simulators.faults = FaultPlan([FaultRule(provider: .fcm, fault: Fault(.accept, delay: .seconds(2)), count: 1)])
      try await GatewayHarness.with(simulators: simulators, on: database, patience: nil) { gateway in
        let (filler, backend) = (try await database.connect(), try await database.connect())
        try await gateway.enqueue("before")
        _ = try await gateway.simulators.apnsProduction.waitForAccepted(1)
        _ = await gateway.metrics.exposition(.openMetrics, readiness: .ready)
        // FCM has not answered yet.
        try await Self.fill(filler)
        #expect(try await filler.query(Self.used).double(0, 0) > 1)
        let refused = await Self.failure(of: Self.call("refused"), backend)
        #expect(refused?.code == .server(sqlState: "53200"))
        #expect(refused?.hint?.contains("pg_locks") == true)
        #expect(refused.map(APIProblem.init)?.detail == "the database's table of locks is full; try again")
        // Seen when nothing else is; what was seen before is still told for a second, or for as long as a scrape waits.
        try await eventually("the metric shows it") { try await Self.shownRatio(gateway) > 1 }
        _ = try await gateway.simulators.fcm.waitForAccepted(1)
        await filler.close()
        try await eventually("a call is accepted") { await Self.failure(of: Self.call("after"), backend) == nil }
        try await gateway.settled()
        let calls = try await database.value("select string_agg(call_id, ' ' order by call_id) from push.outbox")
        #expect(calls == "after before")
        try await gateway.expectOutcomes("apns delivered 2,expo delivered 2,fcm delivered 2")
        // The one that had no answer for 1.2 s was handed on, and may have been sent again.
        let pushes = await gateway.pushesByToken().values.sorted()
        #expect(pushes == [2, 2, 2] || pushes == [2, 2, 3], "each token once for each call")
        await backend.close()
      }
    }
  }

  private static func shownRatio(_ gateway: GatewayHarness) async throws -> Double {
    let exposition = await gateway.metrics.exposition(.openMetrics, readiness: .ready)
    return try MetricsExposition(exposition, true).sum("push_gateway_lock_table_used_ratio", [:])
  }

  private static func failure(of script: String, _ connection: PostgresConnection) async -> PostgresError? {
    do {
      try await connection.script(script)
      return nil
    } catch {
      return error
    }
  }

  private static let used = PostgresStatement(name: "used", sql: "select push.lock_table_used()")

  private static func call(_ callID: String) -> String {
    "select push.enqueue_call('\(GatewayHarness.baseCallData(callID))', '\(GatewayHarness.residents)', 'porteiro')"
  }
}
