// What follows a rejected push: the other environment, the next channel, receipts, the quarantine.

import Foundation
import Queue
import Runtime
import Simulators
import TestSupport
import TestTime
import Testing

@testable import HTTPSurface
@testable import Settings

@Suite("Second chances", .timeLimit(.minutes(10)))
struct SecondChanceTests {
  private static let expoToken = "ExponentPushToken[aBcDeFgHiJkLmNoPqRsTuV]"
  private static let goodVoIP = String(repeating: "ab", count: 32)

  private static func hex(_ prefix: String, _ number: Int = 0) -> String {
    let digits = String(number)
    return prefix + String(repeating: "0", count: 64 - prefix.count - digits.count) + digits
  }

  /// Enqueues a call to the recipients (JSON), and waits until no delivery is pending.
  private func ring(_ gateway: GatewayHarness, _ callID: String, _ recipients: String) async throws {
    let call = GatewayHarness.baseCallData(callID)
    try await gateway.database.execute("select push.enqueue_call('\(call)', '\(recipients)', 'porteiro')")
    try await gateway.settled()
  }

  /// One line for each finished push, in the order of their numbers.
  private func history(_ gateway: GatewayHarness, _ columns: String) async throws -> [String] {
    try await gateway.database.value(
      "select string_agg(concat_ws(' ', \(columns)), ',' order by n) from push.delivery_history"
    ).split(separator: ",").map(String.init)
  }

  // MARK: - Fallback

  @Test(
    "fallback: the user of a dead VoIP token is called over Expo within the ring window, and the history records the fallback"
  )
  func fallback() async throws {
    try await GatewayHarness.with { gateway in
      try await ring(
        gateway, "call-1",
        #"[{"userId": "u", "voipPushToken": "\#(Self.hex("deadbeef"))", "pushToken": "\#(Self.expoToken)"}]"#
      )
      #expect(
        try await history(gateway, "provider, kind, outcome, reason, fallback_of") == [
          "apns invite dead Unregistered", "expo invite delivered Alert 0",
        ])
      let push = try #require(await gateway.simulators.expo.accepted.first)
      #expect(push.token == Self.expoToken)
      // The alert is there although the platform is unknown, because an iPhone does not show a push that contains only
      // data.
      #expect(try push.object()["title"] != nil)
      let story = try await gateway.database.value(
        "select concat_ws(' ', provider, reason) from push.timeline('call-1') where event = 'fallback'")
      #expect(story == "expo Unregistered")
    }
  }

  @Test("a token that gets too many pushes: the user's next channel rings while the first is tried again")
  func tooManyRequests() async throws {
    var configuration = SimulatorSuite.Configuration()
    configuration.faults = FaultPlan([FaultRule(provider: .apns, fault: .reason("TooManyRequests"))])
    try await GatewayHarness.with(simulators: configuration) { gateway in
      let recipients =
        #"[{"userId": "u", "voipPushToken": "\#(Self.goodVoIP)", "pushToken": "\#(Self.expoToken)", "platform": "ios"}]"#
      try await gateway.ring(GatewayHarness.baseCallData("call-2"), recipients, seconds: 600)
      #expect(try await gateway.simulators.expo.waitForAccepted(1).map(\.token) == [Self.expoToken])
      let owed = try await gateway.database.value(
        "select last_reason from push.deliveries where call_id = 'call-2' and kind = 'invite' and provider = 'apns'")
      #expect(owed == "TooManyRequests", "another replica may be able to ring it")
      #expect(try await gateway.database.value("select count(*) from push.token_invalidations") == "0")
    }
  }

  @Test("a provider that demands a pause longer than the ring window: the user's next channel rings meanwhile")
  func longPause() async throws {
    var configuration = SimulatorSuite.Configuration()
    configuration.faults = FaultPlan([FaultRule(provider: .fcm, fault: .reason("QUOTA_EXCEEDED", retryAfter: 600))])
    try await GatewayHarness.with(simulators: configuration) { gateway in
      let recipients =
        #"[{"userId": "u", "fcmToken": "a-good-token-of-a-phone", "pushToken": "\#(Self.expoToken)", "platform": "android"}]"#
      try await gateway.ring(GatewayHarness.baseCallData("call-3"), recipients, seconds: 600)
      #expect(try await gateway.simulators.expo.waitForAccepted(1).map(\.token) == [Self.expoToken])
      let owed = try await gateway.database.value(
        "select last_reason from push.deliveries where call_id = 'call-3' and kind = 'invite' and provider = 'fcm'")
      #expect(owed == "QUOTA_EXCEEDED", "another replica may be able to ring it")
    }
  }

  @Test("a provider that answers 503 to everything: the user's next channel rings while the first is tried again")
  func outage() async throws {
    var configuration = SimulatorSuite.Configuration()
    configuration.faults = FaultPlan([FaultRule(provider: .apns, fault: .reason("ServiceUnavailable"))])
    try await GatewayHarness.with(simulators: configuration) { gateway in
      let recipients =
        #"[{"userId": "u", "voipPushToken": "\#(Self.goodVoIP)", "pushToken": "\#(Self.expoToken)", "platform": "ios"}]"#
      try await gateway.ring(GatewayHarness.baseCallData("call-5"), recipients, seconds: 600)
      #expect(try await gateway.simulators.expo.waitForAccepted(1).map(\.token) == [Self.expoToken])
      let owed = try await gateway.database.value(
        "select count(*) from push.deliveries where call_id = 'call-5' and kind = 'invite' and provider = 'apns'")
      #expect(owed == "1", "it is tried as long as the call rings")
    }
  }

  @Test("fallback: nothing is tried any more when the call has been answered meanwhile")
  func fallbackAfterAnswer() async throws {
    var configuration = SimulatorSuite.Configuration()
    configuration.faults = FaultPlan([
      FaultRule(
        provider: .apns,
        // Long enough for the call to be answered before.
        fault: Fault(.answer(status: nil, reason: "Unregistered", body: nil), delay: .seconds(8)))
    ])
    try await GatewayHarness.with(simulators: configuration) { gateway in
      let call = GatewayHarness.baseCallData("call-4")
      let recipients =
        #"[{"userId": "u", "voipPushToken": "\#(Self.goodVoIP)", "pushToken": "\#(Self.expoToken)"}]"#
      try await gateway.database.execute("select push.enqueue_call('\(call)', '\(recipients)', 'porteiro')")
      try await eventually("APNs has it") { await gateway.simulators.apnsProduction.counters.requests > 0 }
      try await gateway.database.execute("select push.answer_call('call-4', 'someone else')")
      try await gateway.settled()
      #expect(try await history(gateway, "provider, kind, outcome") == ["apns invite dead"])
      #expect(await gateway.simulators.expo.accepted.isEmpty)
    }
  }

  // MARK: - The other environment

  @Test(
    "BadDeviceToken: a sandbox token registered for production rings in the sandbox, and its registration is corrected")
  func otherEnvironment() async throws {
    try await GatewayHarness.with { gateway in
      let token = Self.hex("5a4db0")
      try await gateway.database.execute("select push.register_device('u', 'porteiro', 'apns', '\(token)')")
      try await ring(gateway, "call-5", #"["u"]"#)
      #expect(try await history(gateway, "outcome, attempts") == ["delivered 2"])
      #expect(await gateway.simulators.apnsSandbox.accepted.map(\.token) == [token])
      try await gateway.database.wait(for: "select environment from push.devices", toBe: "sandbox")
      #expect(try await gateway.database.value("select count(*) from push.token_invalidations") == "0")
    }
  }

  @Test("BadDeviceToken: a token that both environments refuse is dead")
  func bothEnvironments() async throws {
    try await GatewayHarness.with { gateway in
      let token = Self.hex("dead4001")
      try await ring(gateway, "call-6", #"[{"userId": "u", "voipPushToken": "\#(token)"}]"#)
      #expect(try await history(gateway, "outcome, reason") == ["dead BadDeviceToken"])
      try await gateway.database.wait(
        for: "select string_agg(reason, ',') from push.token_invalidations", toBe: "BadDeviceToken")
    }
  }

  @Test(
    "BadDeviceToken: while the other environment is ill the phone does not ring, but the token stays, and so does the ring",
    arguments: [
      (Fault.reason("InvalidProviderToken"), false), (.reason("ServiceUnavailable"), true),
      (.reason("TooManyRequests"), true), (Fault(.hang), true), (Fault(.close), true),
    ])
  func illEnvironment(fault: Fault, stays: Bool) async throws {
    var configuration = SimulatorSuite.Configuration()
    configuration.faults = FaultPlan([FaultRule(provider: .apns, environment: "sandbox", fault: fault)])
    try await GatewayHarness.with(simulators: configuration) { gateway in
      let token = Self.hex("5a4db0")
      try await gateway.database.execute("select push.register_device('u', 'porteiro', 'apns', '\(token)')")
      try await gateway.ring(GatewayHarness.baseCallData("call-7"), #"["u"]"#, seconds: 600)
      try await gateway.database.wait(
        for: stays
          ? "select last_reason from push.deliveries where state <> 'claimed'"
          : "select reason from push.delivery_history",
        toBe: "BadDeviceToken")
      // Once the other environment is well again, the token rings.
      await gateway.simulators.setFaults(FaultPlan())
      if !stays { try await ring(gateway, "call-8", #"["u"]"#) }
      #expect(try await gateway.simulators.apnsSandbox.waitForAccepted(1).map(\.token) == [token])
      #expect(try await gateway.database.value("select count(*) from push.token_invalidations") == "0")
    }
  }

  // MARK: - Answers about one phone

  @Test(
    "a refusal that speaks of one phone stops no other",
    arguments: [
      (SimulatedProvider.apns, Fault.reason("BadEnvironmentKeyInToken")),
      (.fcm, Fault(.answer(status: 429, reason: "RESOURCE_EXHAUSTED", body: "<html>Too many</html>"))),
    ])
  func onePhone(provider: SimulatedProvider, fault: Fault) async throws {
    func phone(_ number: Int) -> String {
      provider == .apns
        ? #""voipPushToken": "\#(Self.hex("ab", number))""#
        : #""fcmToken": "phone-number-\#(number)-0123456789", "platform": "android""#
    }
    var configuration = SimulatorSuite.Configuration()
    let bad = provider == .apns ? Self.hex("ab", 9) : "phone-number-9-"
    configuration.faults = FaultPlan([FaultRule(provider: provider, tokenPrefix: bad, fault: fault)])
    try await GatewayHarness.with(simulators: configuration) { gateway in
      func enqueue(_ number: Int) async throws {
        let call = GatewayHarness.baseCallData("call-\(number)")
        try await gateway.database.execute(
          "select push.enqueue_call('\(call)', '[{\"userId\": \"u\(number)\", \(phone(number))}]', 'porteiro')")
      }
      let simulator = provider == .apns ? gateway.simulators.apnsProduction : gateway.simulators.fcm
      try await enqueue(9)
      try await eventually("the bad one was refused") { await !simulator.counters.refused.isEmpty }
      for number in 1...5 { try await enqueue(number) }
      try await eventually("the others ring") { await simulator.accepted.count == 5 }
      let dead = try await gateway.database.value("select count(*) from push.token_invalidations")
      #expect(dead == "0")
    }
  }

  // MARK: - History

  @Test("each failed attempt is in the history, with its time, status and reason")
  func failures() async throws {
    var configuration = SimulatorSuite.Configuration()
    configuration.faults = FaultPlan([FaultRule(provider: .apns, fault: .reason("ServiceUnavailable"), count: 2)])
    try await GatewayHarness.with(simulators: configuration) { gateway in
      try await ring(gateway, "call-7", #"[{"userId": "u", "voipPushToken": "\#(Self.goodVoIP)"}]"#)
      #expect(
        try await history(
          gateway,
          """
          outcome, attempts, (select string_agg(concat_ws('/', f ->> 'attempt', f ->> 'status', f ->> 'reason',
            (f ->> 'at')::timestamptz between created_at and finished_at), '+') from jsonb_array_elements(failures) f)
          """) == ["delivered 3 1/503/ServiceUnavailable/t+2/503/ServiceUnavailable/t"])
    }
  }

  // MARK: - The mass-invalidation breaker

  @Test(
    "rule 10: if too many tokens are rejected as dead at once, they are quarantined until an operator resumes the invalidation"
  )
  func massInvalidation() async throws {
    try await GatewayHarness.with { settings in
      settings.apps[0].invalidation = .init(deadPercent: 20, answersMin: 20, windowSeconds: 300)
    } _: { gateway in
      let good = (0..<15).map { #"{"userId": "good-\#($0)", "voipPushToken": "\#(Self.hex("ab", $0))"}"# }
      let dead = (0..<15).map { #"{"userId": "dead-\#($0)", "voipPushToken": "\#(Self.hex("deadbeef", $0))"}"# }
      try await ring(gateway, "call-8", "[\((good + dead).joined(separator: ","))]")
      let quarantined = "select count(*) from push.quarantined_tokens"
      try await gateway.database.wait(for: quarantined, toBe: "15")
      #expect(try await gateway.database.value("select count(*) from push.token_invalidations") == "0")
      #expect(
        try await gateway.database.value(
          "select count(*) from push.lanes where provider = 'apns' and invalidation_held_at is not null") == "1")

      try await gateway.database.execute("select push.resume_invalidation('porteiro', 'apns', apply => true)")
      #expect(try await gateway.database.value(quarantined) == "0")
      #expect(try await gateway.database.value("select count(*) from push.token_invalidations") == "15")
      // After the hold, a single dead token is invalidated again.
      try await ring(gateway, "call-9", #"[{"userId": "x", "voipPushToken": "\#(Self.hex("deadbeef", 99))"}]"#)
      try await gateway.database.wait(for: "select count(*) from push.token_invalidations", toBe: "16")
    }
  }

  // MARK: - Receipts

  @Test("receipts: a push that Apple or Google refused after Expo took it invalidates its token")
  func receipts() async throws {
    try await GatewayHarness.with { settings in
      settings.apps[0].expo?.receiptAfterMilliseconds = 100
    } _: { gateway in
      let dead = "ExponentPushToken[fault-receipt_DeviceNotRegistered-1]"
      try await ring(
        gateway, "call-10",
        #"[{"userId": "a", "pushToken": "\#(dead)"}, {"userId": "b", "pushToken": "\#(Self.expoToken)"}]"#)
      #expect(try await history(gateway, "outcome") == ["delivered", "delivered"])
      try await gateway.database.wait(for: "select count(*) from push.receipt_batch", toBe: "0")
      try await gateway.database.wait(for: "select string_agg(token, ',') from push.token_invalidations", toBe: dead)
      let reasons = "select string_agg(receipt_reason, ',') from push.delivery_history"
      #expect(try await gateway.database.value(reasons) == "DeviceNotRegistered")
    }
  }

  @Test("receipts: those of a former gateway are read by the next")
  func receiptsAcrossReplicas() async throws {
    try await GatewayHarness.with { settings in
      settings.apps[0].expo?.receiptAfterMilliseconds = 3_600_000
    } _: { gateway in
      try await ring(gateway, "call-11", #"[{"userId": "b", "pushToken": "\#(Self.expoToken)"}]"#)
      #expect(try await gateway.database.value("select count(*) from push.receipt_batch") == "1")
      try await gateway.stop()
      try await gateway.database.execute("update push.receipt_batch set due_at = sent_at")
      try await gateway.withReplicas(1) { _ in
        try await gateway.database.wait(for: "select count(*) from push.receipt_batch", toBe: "0")
      }
    }
  }
}
