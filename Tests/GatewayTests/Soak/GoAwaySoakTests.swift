// Repeated GOAWAY frames, each with a last stream below those that the gateway has opened: no push is lost or repeated.

import Foundation
import Simulators
import TestSupport
import Testing

extension SoakTests {
  @Suite struct GoAwaySoakTests {
    @Test(
      "with repeated GOAWAY frames and later streams dropped, every push arrives once, and none on a dropped stream")
    func goAway() async throws {
      let calls = SoakSettings.pushes / 2
      let share = 1 / Double(SoakSettings.goAwayEvery)
      var configuration = SimulatorSuite.Configuration()
      configuration.faults = FaultPlan([
        FaultRule(provider: .apns, fault: Fault(.cutOff), share: share),
        FaultRule(provider: .fcm, fault: Fault(.cutOff), share: share),
      ])
      try await GatewayHarness.with(simulators: configuration) { gateway in
        let began = ContinuousClock.now
        try await gateway.database.execute(
          """
          insert into push.outbox (app, payload, recipients, ring_seconds)
          select 'porteiro', jsonb_build_object('callId', 'goaway-' || i, 'from', 'doorman', 'fromName', 'Portaria'),
            jsonb_build_array(
              jsonb_build_object('userId', 'ios-' || i, 'voipPushToken', lpad(to_hex(i), 64, '0')),
              jsonb_build_object('userId', 'android-' || i, 'fcmToken', 'android-token-of-device-' || i)), 600
          from generate_series(1, \(calls)) i
          """)
        try await gateway.settled()
        report("goaway: \(2 * calls) pushes in \(ContinuousClock.now - began)")
        try await gateway.expectOutcomes("apns delivered \(calls),fcm delivered \(calls)")
        for (name, server) in [("apns", gateway.simulators.apnsProduction), ("fcm", gateway.simulators.fcm)] {
          let accepted = await server.accepted
          let cutOffs = await server.cutOffs
          let last = Dictionary(uniqueKeysWithValues: cutOffs.map { ($0.connection, $0.lastStream) })
          let tokens = Dictionary(grouping: accepted, by: \.token)
          let repeated = tokens.values.count { $0.count > 1 }
          let beyond = accepted.count { $0.stream > last[$0.connection] ?? .max }
          let attempts = try await gateway.database.value(
            "select concat_ws(' ', count(*) filter (where attempts > 1), max(attempts)) from push.delivery_history where provider = '\(name)'"
          )
          report(
            """
            goaway: \(name): \(accepted.count) accepted, \(tokens.count) tokens, \(repeated) repeated, \(beyond) above a last stream; \
            \(cutOffs.count) GOAWAYs, \(cutOffs.reduce(0) { $0 + $1.dropped }) whole requests dropped, \
            \(await server.counters.connections) connections; deliveries with more than one attempt, most attempts: \(attempts)
            """)
          #expect(tokens.count == calls)
          #expect(repeated == 0)
          #expect(beyond == 0)
          #expect(cutOffs.count >= calls / SoakSettings.goAwayEvery - 1)
        }
        #expect(await Set(gateway.refusals().keys) == ["cutoff"])
      }
    }
  }
}
