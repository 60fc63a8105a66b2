// Calls whose ids repeat those of earlier calls, as after an asynchronous fail-over, a restore or a TRUNCATE.

import Queue
import Simulators
import TestSupport
import Testing

@Suite("Ids that repeat", .timeLimit(.minutes(10)))
struct ReusedIDsTests {
  private static let calls = 20

  private func enqueueAll(_ prefix: String, _ gateway: GatewayHarness) async throws {
    for number in 1...Self.calls { try await gateway.enqueue("\(prefix)-\(number)") }
  }

  /// Deletes all calls, enqueues others under the same ids, and checks that each of their phones rings.
  private func expectToRingAgain(_ gateway: GatewayHarness) async throws {
    let simulators = [gateway.simulators.apnsProduction, gateway.simulators.fcm, gateway.simulators.expo]
    let ids = "select string_agg(id::text, ' ' order by id) from push.outbox"
    let former = try await gateway.database.value(ids)
    try await gateway.database.execute("truncate push.outbox restart identity cascade")
    for simulator in simulators { await simulator.forgetAccepted() }
    try await enqueueAll("new", gateway)
    #expect(try await gateway.database.value(ids) == former)
    try await gateway.settled()
    for simulator in simulators { #expect(await simulator.accepted.count >= Self.calls) }
    let history = try await gateway.database.value(
      "select string_agg(distinct concat_ws(' ', call_id, outcome), ',') from push.delivery_history where call_id like 'new-7'"
    )
    #expect(history == "new-7 delivered")
  }

  @Test("a new call rings although its id is that of a call that was delivered a moment ago")
  func afterSettlements() async throws {
    try await GatewayHarness.with { gateway in
      try await enqueueAll("old", gateway)
      try await gateway.settled()
      try await expectToRingAgain(gateway)
    }
  }

  @Test("a new call rings although its id is that of a call whose pushes are in flight")
  func inFlight() async throws {
    var configuration = GatewayHarness.strict
    configuration.faults = FaultPlan([FaultRule(provider: .fcm, fault: Fault(.hang), count: 3)])
    try await GatewayHarness.with(simulators: configuration) { gateway in
      try await enqueueAll("old", gateway)
      _ = try await gateway.simulators.apnsProduction.waitForAccepted(Self.calls)
      _ = try await gateway.simulators.expo.waitForAccepted(Self.calls)
      _ = try await gateway.simulators.fcm.waitForAccepted(Self.calls - 3)
      try await expectToRingAgain(gateway)
    }
  }
}
