// One gateway that serves several databases over the same connections to the providers.

import Foundation
import HTTPSurfaceTestSupport
import Queue
import Simulators
import TestSupport
import TestTime
import Testing

@testable import Gateway
@testable import HTTPSurface
@testable import Settings

@Suite("Several databases", .timeLimit(.minutes(10))) struct SeveralDatabasesTests {
  /// A gateway that serves `north`, the database of the harness, and `south`.
  ///
  /// - Parameter isMigrated: whether `south` has the schema when the gateway starts.
  private static func with(
    isMigrated: Bool = true, _ body: (GatewayHarness, _ south: TestDatabase) async throws -> Void
  ) async throws {
    try await TestDatabase.with(isMigrated ? .migrated : .empty) { south in
      try await TestDatabase.with(.migrated) { north in
        try await GatewayHarness.with(on: north) { settings in
          settings.databases = [.init(name: "north", url: north.url), .init(name: "south", url: south.url)]
        } _: { gateway in
          // The gateway is ready when it serves one of them.
          try await serves(north)
          try await body(gateway, south)
        }
      }
    }
  }

  private static func enqueue(_ callID: String, in database: TestDatabase) async throws {
    _ = try await database.value(
      """
      select deliveries from push.enqueue_call(
        '\(GatewayHarness.baseCallData(callID))', '\(GatewayHarness.residents)', 'porteiro')
      """)
  }

  private static func outcomes(of database: TestDatabase) async throws -> String {
    try await database.value(
      "select coalesce(string_agg(concat_ws(' ', outcome, n), ',' order by outcome), '') from "
        + "(select outcome, count(*) n from push.delivery_history group by outcome) t")
  }

  /// Waits until the gateway claims in this database.
  private static func serves(_ database: TestDatabase) async throws {
    try await database.wait(for: "select exists (select from push.gateways where alive)")
  }

  /// The values of push_gateway_database_ready.
  private static func areReady(_ gateway: GatewayHarness) async -> [Substring: Substring] {
    let metrics = String(decoding: await gateway.metrics.exposition(.prometheus, readiness: .ready), as: UTF8.self)
    let samples = metrics.matches(of: /push_gateway_database_ready\{database="(.*)"\} (.*)/)
    return Dictionary(uniqueKeysWithValues: samples.map { ($0.1, $0.2) })
  }

  @Test("calls of both ring, over one connection to each provider, and each database has its own outcomes")
  func both() async throws {
    try await Self.with { gateway, south in
      try await Self.serves(south)
      try await gateway.enqueue("of-north")
      for call in 1...20 { try await Self.enqueue("of-south-\(call)", in: south) }
      _ = try await gateway.simulators.fcm.waitForAccepted(21)
      _ = try await gateway.simulators.apnsProduction.waitForAccepted(21)
      try await gateway.settled()
      try await eventually("all calls of south are delivered") { try await Self.outcomes(of: south) == "delivered 60" }
      #expect(try await Self.outcomes(of: gateway.database) == "delivered 3")
      #expect(await gateway.simulators.fcm.counters.connections <= 4, "the connections of one account")
      // A busy machine may answer so late that a connection is doubted and replaced.
      let exposition = try MetricsExposition(await gateway.metrics.exposition(.prometheus, readiness: .ready), false)
      let replaced = exposition.sum("push_gateway_connections_replaced_total", ["provider": "apns"])
      #expect(await gateway.simulators.apnsProduction.counters.connections <= 1 + Int(replaced))
      #expect(await gateway.refusals() == [:])
      let metrics = String(
        decoding: await gateway.metrics.exposition(.prometheus, readiness: .ready), as: UTF8.self)
      for (database, count) in [("north", 1), ("south", 20)] {
        let line =
          "push_gateway_deliveries_total{database=\"\(database)\",app=\"porteiro\",provider=\"fcm\",kind=\"invite\","
          + "outcome=\"delivered\",reason=\"\"} \(count)"
        #expect(metrics.contains(line), "\(line)")
      }
      #expect(metrics.contains("push_gateway_connections{app=\"porteiro\",provider=\"apns\",state=\"open\"} "))
      #expect(metrics.components(separatedBy: "# TYPE push_gateway_deliveries_total").count == 2)
    }
  }

  @Test("while one database executes nothing, calls of the other one ring, and its own ring afterwards")
  func blocked() async throws {
    try await Self.with { gateway, south in
      try await Self.serves(south)
      let ops = try await south.connect()
      // Neither heartbeats nor claims go through: the lease in this database lapses.
      try await ops.script("begin; lock table push.gateways in access exclusive mode")
      try await eventually("south is not ready") { await Self.areReady(gateway) == ["north": "1", "south": "0"] }
      for call in 1...10 { try await gateway.enqueue("of-north-\(call)") }
      _ = try await gateway.simulators.fcm.waitForAccepted(10)
      try await eventually("the gateway is ready") { await gateway.service.readiness() == .ready }
      #expect(await gateway.service.remarks().contains { $0.hasPrefix("database south: ") })
      try await ops.script("rollback")
      await ops.close()
      try await Self.enqueue("of-south", in: south)
      _ = try await gateway.simulators.fcm.waitForAccepted(11)
      try await gateway.settled()
      #expect(try await Self.outcomes(of: gateway.database) == "delivered 30")
    }
  }

  @Test("a database without the schema does not keep the other one waiting, and is served as soon as it has it")
  func unmigrated() async throws {
    try await Self.with(isMigrated: false) { gateway, south in
      try await gateway.enqueue("of-north")
      _ = try await gateway.simulators.fcm.waitForAccepted(1)
      #expect(await gateway.service.remarks().contains("database south: it has not been served yet"))
      try await eventually("north is ready") { await Self.areReady(gateway) == ["north": "1", "south": "0"] }
      try await south.migrateAsGateway()
      try await eventually("both are ready") { await Self.areReady(gateway) == ["north": "1", "south": "1"] }
      try await Self.enqueue("of-south", in: south)
      _ = try await gateway.simulators.fcm.waitForAccepted(2)
    }
  }

  @Test("a key that a provider refuses stops the lane in both databases, and an answer that it accepts starts both")
  func circuit() async throws {
    try await Self.with { gateway, south in
      try await Self.serves(south)
      await gateway.simulators.apnsProduction.setFaults(
        FaultPlan([FaultRule(provider: .apns, fault: .reason("InvalidProviderToken"), count: 1_000)]))
      try await gateway.database.execute(GatewayHarness.bulk(2))
      try await eventually("the circuits of both are open") {
        let metrics = String(
          decoding: await gateway.metrics.exposition(.prometheus, readiness: .ready), as: UTF8.self)
        return ["north", "south"].allSatisfy {
          metrics.contains(
            "push_gateway_lane_circuit{database=\"\($0)\",app=\"porteiro\",provider=\"apns\",state=\"open\"} 1")
        }
      }
      await gateway.simulators.apnsProduction.setFaults(FaultPlan([]))
      try await Self.enqueue("rings", in: south)
      _ = try await gateway.simulators.apnsProduction.waitForAccepted(3)
    }
  }
}
