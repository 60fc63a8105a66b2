// A provider that refuses credentials while the gateway serves: /readyz, push.health, push.lanes, the dashboard and the metrics say so,
// with one sentence, until it is no longer true.

import Foundation
import HTTP2TestSupport
import Simulators
import TestSupport
import TestTime
import Testing

@testable import Gateway
@testable import HTTPSurface
@testable import Settings

@Suite(.timeLimit(.minutes(10))) struct RefusedCredentialsEndToEndTests {
  private static let health = "select state || ' ' || value from push.health where item = 'credentials'"

  /// Waits until this is said everywhere, and the replica stays in service.
  ///
  /// - Parameters:
  ///   - lane: `porteiro/apns`.
  ///   - refused: `all`, `some` or `new`.
  private func expect(
    _ sentence: String, of lane: String, refused: String, reason: String, in gateway: GatewayHarness
  ) async throws {
    let provider = lane.split(separator: "/")[1]
    try await eventually("/readyz says: \(sentence)") {
      await gateway.service.remarks().contains("\(lane): \(sentence)")
    }
    #expect(await gateway.service.readiness() == .ready)
    let state = refused == "all" ? "bad" : "warn"
    try await gateway.database.wait(for: Self.health, toBe: "\(state) \(sentence)")
    let shown = "x ->> 'refused' || ' ' || (x ->> 'refusal')"
    #expect(
      try await gateway.database.value(
        """
        select \(shown) from jsonb_array_elements(push.overview() -> 'lanes') x
        where x ->> 'app' = 'porteiro' and x ->> 'channel' = '\(provider)'
        """) == "\(refused) \(sentence)")
    let text = String(decoding: await gateway.metrics.exposition(.prometheus, readiness: .ready), as: UTF8.self)
    let sample = text.split(separator: "\n").filter {
      $0.hasPrefix("push_gateway_lane_refused{") && $0.hasSuffix(" 1")
    }
    #expect(sample.count == 1, "\(sample)")
    for label in ["app=\"porteiro\"", "provider=\"\(provider)\"", "state=\"\(refused)\"", "reason=\"\(reason)\""] {
      #expect(sample.first?.contains(label) == true, "\(sample)")
    }
  }

  @Test func `a key that Apple refuses is named with what to check, and the other lanes deliver`() async throws {
    try await GatewayHarness.with {
      $0.apps[0].apns?.keyID = "OTHERKEY77"
    } _: { gateway in
      try await gateway.database.execute(GatewayHarness.bulk(3))
      try await expect(
        "Apple refuses the key of porteiro (403 InvalidProviderToken): check team_id TEAM123456, key_id OTHERKEY77, "
          + "key_file apns-key.p8", of: "porteiro/apns", refused: "all", reason: "InvalidProviderToken", in: gateway)
      try await gateway.database.wait(
        for: "select count(*) from push.delivery_history where outcome = 'delivered' and provider <> 'apns'", toBe: "6")
    }
  }

  @Test func `a service account that gets no access token is named without a call, and no longer when it gets one`()
    async throws
  {
    var simulators = GatewayHarness.strict
    simulators.faults = FaultPlan([FaultRule(provider: .oauth, fault: .reason("invalid_grant"))])
    try await GatewayHarness.with(simulators: simulators) { gateway in
      let file = gateway.simulators.material.serviceAccountFile.split(separator: "/").last ?? ""
      try await expect(
        "Google refuses the service account of porteiro (invalid_grant): check service_account_file \(file), whether its key "
          + "still exists, and this machine's clock", of: "porteiro/fcm", refused: "all", reason: "invalid_grant",
        in: gateway)
      await gateway.simulators.setFaults(FaultPlan())
      try await gateway.database.wait(for: Self.health, toBe: "ok none is refused")
      #expect(await gateway.service.remarks().allSatisfy { !$0.contains("refuses") })
    }
  }

  @Test func `a new key that Apple refuses is a warning, and calls ring with the former one`() async throws {
    try await GatewayHarness.with(watchesFiles: true) { gateway in
      try await gateway.enqueue("before")
      _ = try await gateway.simulators.apnsProduction.waitForAccepted(1)
      try gateway.editConfiguration { $0.replacing("key_id: KEY7654321", with: "key_id: OTHERKEY77") }
      await gateway.service.reload()
      try await expect(
        "Apple refuses the new key of porteiro (403 InvalidProviderToken): check team_id TEAM123456, key_id OTHERKEY77, "
          + "key_file apns-key.p8; the former one is still used", of: "porteiro/apns", refused: "new",
        reason: "InvalidProviderToken", in: gateway)
      try await gateway.enqueue("after")
      _ = try await gateway.simulators.apnsProduction.waitForAccepted(2)
      try gateway.editConfiguration { $0.replacing("key_id: OTHERKEY77", with: "key_id: KEY7654321") }
      await gateway.service.reload()
      try await gateway.database.wait(for: Self.health, toBe: "ok none is refused")
    }
  }

  @Test func `a key for the other environment concerns some phones, and those of its own ring`() async throws {
    var simulators = GatewayHarness.strict
    simulators.apnsKeyEnvironment = .sandbox
    try await GatewayHarness.with(simulators: simulators) { gateway in
      try await gateway.enqueue("call")
      try await expect(
        "Apple refuses the key of porteiro (403 BadEnvironmentKeyIdInToken): key_id KEY7654321 is for one environment only, "
          + "production or sandbox, and phones of the other do not ring: use a key for both", of: "porteiro/apns",
        refused: "some", reason: "BadEnvironmentKeyIdInToken", in: gateway)
    }
  }
}
