// A provider that accepts requests and answers none must not slow the other lanes.

import Foundation
import Simulators
import TestSupport
import TestTime
import Testing

extension SoakTests {
  @Suite struct HangSoakTests {
    private static let callsPerSecond = 20

    @Test("a provider that hangs does not slow other lanes", arguments: [SimulatedProvider.apns, .fcm, .expo])
    func hang(provider: SimulatedProvider) async throws {
      try await GatewayHarness.with { gateway in
        try await ring(gateway, "warm", seconds: 1)
        try await ring(gateway, "before", seconds: max(SoakSettings.hangSeconds / 3, 1))
        await gateway.simulators.setFaults(FaultPlan([FaultRule(provider: provider, fault: Fault(.hang))]))
        try await ring(gateway, "during", seconds: SoakSettings.hangSeconds)
        let others = ["apns", "fcm", "expo"].filter { $0 != provider.rawValue }
        let expected = others.count * Self.callsPerSecond * SoakSettings.hangSeconds
        let finished = """
          from push.delivery_history
          where kind = 'invite' and provider <> '\(provider)' and call_id like 'during-%'
          """
        try await gateway.database.wait(for: "select count(*) >= \(expected) \(finished)")
        for other in others {
          let before = try await latency(gateway, other, "before")
          let during = try await latency(gateway, other, "during")
          report(
            """
            hang: \(provider) hangs \(SoakSettings.hangSeconds) s: \(other) before p50 \(before.median) p99 \(before.high) ms, \
            during p50 \(during.median) p99 \(during.high) ms
            """)
          // The bound allows for a busy machine, but not for a lane that waits for another.
          #expect(during.median < before.median * 2 + 20)
          #expect(during.high < before.high * 2 + 250)
        }
        let delivered = try await gateway.database.value("select count(*) \(finished) and outcome = 'delivered'")
        #expect(delivered == "\(expected)")
        // Ends the hang, so that the test need not wait for the deadlines.
        await gateway.simulators.setFaults(FaultPlan())
        try await gateway.database.execute("update push.outbox set state = 'answered' where state = 'ringing'")
      }
    }

    /// Calls of three devices at an even pace.
    private func ring(_ gateway: GatewayHarness, _ name: String, seconds: Int) async throws {
      let start = ContinuousClock.now
      for number in 0..<(seconds * Self.callsPerSecond) {
        try await letPass(start + .milliseconds(number * 1000 / Self.callsPerSecond) - .now, "an even pace")
        try await gateway.enqueue("\(name)-\(number)")
      }
    }

    /// Milliseconds from the commit to the provider's answer.
    private func latency(
      _ gateway: GatewayHarness, _ provider: String, _ name: String
    ) async throws -> (median: Double, high: Double) {
      let row = try await gateway.database.value(
        """
        select concat_ws(' ', percentile_disc(0.5) within group (order by ms), percentile_disc(0.99) within group (order by ms))
        from (
          select round((extract(epoch from answered_at - created_at) * 1000)::numeric, 1) as ms from push.delivery_history
          where provider = '\(provider)' and call_id like '\(name)-%' and kind = 'invite'
        ) t
        """
      ).split(separator: " ").compactMap { Double($0) }
      try #require(row.count == 2)
      return (row[0], row[1])
    }
  }
}
