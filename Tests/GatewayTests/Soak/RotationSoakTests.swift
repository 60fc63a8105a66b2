// An APNs key is replaced in the configuration under load, without any effect on calls.

import Foundation
import HTTP2TestSupport
import Runtime
import Simulators
import TestSupport
import Testing

@testable import Settings

extension SoakTests {
  @Suite struct RotationSoakTests {
    private static let newKeyID = "KEYNEW4321"
    private static let callsAtOnce = 200

    @Test("an APNs key is rotated under load through its file: no push fails, and the old key is no longer used")
    func rotation() async throws {
      let newKey = try SigningKey.generate(for: .es256)
      var configuration = SimulatorSuite.Configuration()
      configuration.apnsKeys[Self.newKeyID] = try newKey.verifyingKey()
      configuration.tokenUpdateInterval = 1200
      try await GatewayHarness.with(simulators: configuration, watchesFiles: true) {
        $0.apps[0].apns?.connections = 4
      } _: { gateway in
        let server = gateway.simulators.apnsProduction
        var calls = 0
        let least = SoakSettings.pushes / 5
        try await keepRinging(gateway, &calls) { await server.counters.accepted < least }
        let began = ContinuousClock.now
        try rotate(gateway.simulators.material, to: newKey)
        try await keepRinging(gateway, &calls) { await server.accepted.last?.detail("kid") != Self.newKeyID }
        report("rotation: the new key was in use \(ContinuousClock.now - began) after its files were written")
        try await gateway.settled()
        let switched = try #require(await server.accepted.firstIndex { $0.detail("kid") == Self.newKeyID })
        let beforehand = calls
        try await keepRinging(gateway, &calls) { await server.counters.accepted < beforehand + least }
        try await gateway.settled()

        let pushes = await server.accepted
        let late = pushes[beforehand...].count { $0.detail("kid") != Self.newKeyID }
        let again = try await gateway.database.value(
          "select concat_ws(' ', count(*) filter (where attempts > 1), count(failures)) from push.delivery_history")
        report(
          """
          rotation: \(pushes.count) pushes, the first with the new key after \(switched); \
          \(late) with the old key after the change was complete; deliveries of more than one attempt, and with \
          failed tries: \(again); refusals: \(await gateway.refusals())
          """)
        try await gateway.expectOutcomes("apns delivered \(calls)")
        #expect(again == "0 0")
        #expect(late == 0)
        #expect(await gateway.refusals() == [:])
        #expect(await Set(gateway.pushesByToken().values) == [1])
      }
    }

    /// Enqueues calls, some at a time, as fast as they are delivered, while `condition` holds.
    private func keepRinging(
      _ gateway: GatewayHarness, _ calls: inout Int, while condition: () async -> Bool
    ) async throws {
      while await condition() {
        try await gateway.database.execute(
          """
          insert into push.outbox (app, payload, recipients)
          select 'porteiro', jsonb_build_object('callId', 'rotation-' || i, 'from', 'doorman'),
            jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', lpad(to_hex(i), 64, '0')))
          from generate_series(\(calls + 1), \(calls + Self.callsAtOnce)) i
          """)
        calls += Self.callsAtOnce
        try await gateway.simulators.apnsProduction.waitForAccepted(calls - Self.callsAtOnce)
      }
    }

    /// Rotates as operators do: writes the new key to a file of its own, then replaces the configuration in one step.
    private func rotate(_ material: SimulatorMaterial, to key: SigningKey) throws {
      let file = "\(material.directory)/apns-key-new.p8"
      try SecretFixture.write(key.privateKeyPEM(), to: file)
      let text = try String(contentsOfFile: material.configurationFile, encoding: .utf8)
        .replacingOccurrences(of: material.identity.keyID, with: Self.newKeyID)
        .replacingOccurrences(of: material.apnsKeyFile, with: file)
      try SecretFixture.write(text, to: material.configurationFile)
    }
  }
}
