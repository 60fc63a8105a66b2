// A hedged invite through the whole gateway: what the provider, the history and the metrics show.

import Foundation
import Simulators
import TestSupport
import Testing

@testable import HTTPSurface

@Suite("Hedged deliveries", .timeLimit(.minutes(10)))
struct HedgedDeliveryTests {
  private static let phone = #"[{"userId": "u", "fcmToken": "\#(PhoneToken.fcm("phone"))", "platform": "android"}]"#

  private static func unanswered(_ fault: Fault) -> SimulatorSuite.Configuration {
    var configuration = SimulatorSuite.Configuration()
    configuration.faults = FaultPlan([FaultRule(provider: .fcm, tokenPrefix: "fcm-", fault: fault, count: 1)])
    return configuration
  }

  @Test(
    "a single call whose request is not answered rings by its hedge, which is one attempt, and history and metrics show it"
  )
  func loneCall() async throws {
    try await GatewayHarness.with(simulators: Self.unanswered(Fault(.lose)), hedges: true) { gateway in
      try await gateway.ring(GatewayHarness.baseCallData("h1"), Self.phone)
      try await gateway.settled()
      #expect(
        try await gateway.database.value(
          "select concat_ws(' ', outcome, reason, attempts, failures is null) from push.delivery_history")
          == "delivered Hedged 1 t")
      #expect(
        try await gateway.database.value(
          "select reason from push.timeline('h1') where event = 'delivered'") == "Hedged")
      // The simulator accepted both requests of the push.
      let pushes = await gateway.simulators.fcm.accepted
      #expect(pushes.count == 2)
      #expect(Set(pushes.map { $0.payload }).count == 1 && Set(pushes.map { $0.detail("collapse_key") }).count == 1)
      let metrics = String(decoding: await gateway.metrics.exposition(.prometheus, readiness: .ready), as: UTF8.self)
      #expect(metrics.contains(#"push_gateway_hedged_total{app="porteiro",provider="fcm"} 1"#))
      #expect(metrics.contains(#"push_gateway_unanswered_seconds{app="porteiro",provider="fcm"} 0.0"#))
      #expect(
        metrics.contains(#"push_gateway_connections_replaced_total{app="porteiro",provider="fcm",reason="silent"} 0"#))
    }
  }

  @Test("without hedging, the call waits until the connection is found to be broken")
  func off() async throws {
    try await GatewayHarness.with(simulators: Self.unanswered(Fault(.hang))) { gateway in
      try await gateway.ring(GatewayHarness.baseCallData("h2"), Self.phone)
      try await gateway.settled()
      #expect(
        try await gateway.database.value(
          "select concat_ws(' ', outcome, reason, attempts) from push.delivery_history") == "delivered 2")
    }
  }
}
