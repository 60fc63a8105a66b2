// The rules of a call, end to end: answering, ending, missed calls, dead tokens, rejected credentials.

import Foundation
import Queue
import Runtime
import Simulators
import TestSupport
import TestTime
import Testing

@testable import Settings

@Suite("Rules of a call", .timeLimit(.minutes(10)))
struct CallRulesTests {
  /// `provider kind outcome user` of each finished push, sorted.
  private func history(_ gateway: GatewayHarness) async throws -> [String] {
    try await gateway.database.value(
      """
      select coalesce(string_agg(concat_ws(' ', provider, kind, outcome, user_id), ',' order by provider, kind, user_id), '')
      from push.delivery_history
      """
    ).split(separator: ",").map(String.init)
  }

  private func text(of push: AcceptedPush) -> String { String(decoding: push.payload, as: UTF8.self) }

  private func ringing(_ gateway: GatewayHarness, _ callID: String) async throws {
    try await gateway.enqueue(callID)
    try await gateway.settled()
  }

  @Test("rule 4: after a hang-up, phones that may ring get a cancel over FCM and Expo, and VoIP tokens get none")
  func hangUp() async throws {
    try await GatewayHarness.with { gateway in
      try await ringing(gateway, "call-1")
      #expect(try await gateway.database.value("select push.end_call('call-1', 'declined')") == "true")
      try await gateway.settled()
      #expect(
        try await history(gateway) == [
          "apns invite delivered ios", "expo cancel delivered expo", "expo invite delivered expo",
          "fcm cancel delivered android", "fcm invite delivered android",
        ])
      let cancel = try #require(await gateway.simulators.fcm.accepted.last)
      #expect(text(of: cancel).contains("call_cancelled"))
      #expect(text(of: cancel).contains("call-1"))
      #expect(text(of: cancel).contains("declined"))
      #expect(await gateway.simulators.apnsProduction.accepted.count == 1)
      #expect(await gateway.simulators.apnsProduction.counters.violations == [:])
      #expect(await gateway.refusals() == [:])
      #expect(try await gateway.database.value("select push.end_call('call-1')") == "false")
    }
  }

  @Test("rule 4: the phones of the user who answered get no cancel, and those of the others do")
  func answered() async throws {
    try await GatewayHarness.with { gateway in
      try await ringing(gateway, "call-2")
      #expect(try await gateway.database.value("select push.answer_call('call-2', 'android')") == "true")
      try await gateway.settled()
      #expect(
        try await history(gateway) == [
          "apns invite delivered ios", "expo cancel delivered expo", "expo invite delivered expo",
          "fcm invite delivered android",
        ])
    }
  }

  @Test("rule 4: unsent invites become void, including those in the gateway's memory")
  func voidInMemory() async throws {
    var configuration = SimulatorSuite.Configuration()
    configuration.faults = FaultPlan([FaultRule(provider: .fcm, fault: .reason("UNAVAILABLE"))])
    try await GatewayHarness.with(simulators: configuration) { gateway in
      try await gateway.enqueue("call-3")
      try await eventually("FCM has refused it") { await !gateway.simulators.fcm.counters.refused.isEmpty }
      try await gateway.database.execute("update push.outbox set state = 'answered' where call_id = 'call-3'")
      // FCM accepts nothing until the gateway has heard of the end. Otherwise a second try could be delivered first,
      // correctly.
      let invite = "from push.delivery_history where provider = 'fcm' and kind = 'invite'"
      try await gateway.database.wait(for: "select exists (select \(invite))")
      #expect(try await gateway.database.value("select max(outcome) \(invite)") == "void")
      await gateway.simulators.setFaults(FaultPlan())
      try await gateway.settled()
      #expect(await gateway.simulators.fcm.accepted.allSatisfy { text(of: $0).contains("call_cancelled") })
    }
  }

  @Test("rule 4: a user who declines is not tried again, not even from the gateway's memory, and the others are")
  func declinedInMemory() async throws {
    var configuration = SimulatorSuite.Configuration()
    configuration.faults = FaultPlan([FaultRule(provider: .fcm, fault: .reason("UNAVAILABLE"))])
    try await GatewayHarness.with(simulators: configuration) { gateway in
      let phones = #"""
        [{"userId": "ana", "fcmToken": "phone-of-ana-0123456789", "platform": "android"},
         {"userId": "bruno", "fcmToken": "phone-of-bruno-0123456789", "platform": "android"}]
        """#
      try await gateway.ring(GatewayHarness.baseCallData("call-d"), phones)
      try await eventually("FCM has refused both") {
        await gateway.simulators.fcm.counters.refused.values.reduce(0, +) >= 2
      }
      #expect(try await gateway.database.value("select push.decline_call('call-d', 'ana')") == "true")
      // FCM accepts nothing until the gateway has heard of the end. Otherwise a second try could be delivered first,
      // correctly.
      try await gateway.database.wait(
        for: "select exists (select from push.delivery_history where user_id = 'ana' and reason = 'UserDeclined')")
      await gateway.simulators.setFaults(FaultPlan())
      try await gateway.database.wait(
        for: "select exists (select from push.delivery_history where user_id = 'bruno' and outcome = 'delivered')")
      let busy = "select push.decline_call('call-d', 'bruno', reason => 'busy')"
      #expect(try await gateway.database.value(busy) == "true")
      try await gateway.settled()
      let call = "select state || ' ' || end_reason from push.outbox"
      #expect(try await gateway.database.value(call) == "ended declined")
      // Ana's first request may have arrived, so she gets a cancel. Neither user has missed the call.
      let pushes = await gateway.simulators.fcm.accepted.map {
        "\($0.token.contains("bruno") ? "bruno" : "ana") \(text(of: $0).contains("call_cancelled") ? "cancel" : "invite")"
      }
      #expect(pushes.sorted() == ["ana cancel", "bruno cancel", "bruno invite"])
    }
  }

  @Test("rule 5: after a call that nobody answers, each user gets one missed call, and VoIP tokens get none")
  func missed() async throws {
    try await GatewayHarness.with { gateway in
      try await gateway.database.execute(
        """
        insert into push.outbox (app, payload, recipients)
        values ('porteiro', '\(GatewayHarness.baseCallData("call-4"))', '[
          {"userId": "ios", "voipPushToken": "\(String(repeating: "ab", count: 32))",
           "apnsToken": "\(String(repeating: "cd", count: 32))", "platform": "ios", "locale": "nl-NL"},
          {"userId": "android", "fcmToken": "first-phone-of-the-user", "platform": "android"},
          {"userId": "android", "fcmToken": "second-phone-of-the-user", "platform": "android"}]')
        """)
      _ = try await gateway.simulators.apnsProduction.waitForAccepted(1)
      _ = try await gateway.simulators.fcm.waitForAccepted(2)
      try await gateway.settled()
      try await gateway.lapse("call-4")
      let alert = try #require(
        try await gateway.simulators.apnsProduction.waitForAccepted(2).first { $0.kind == "alert" })
      let message = try #require(try await gateway.simulators.fcm.waitForAccepted(3).last)
      try await gateway.settled()
      #expect(alert.token == String(repeating: "cd", count: 32))
      #expect(alert.topic == "com.example.app")
      #expect(text(of: alert).contains("Gemiste oproep"))
      #expect(text(of: alert).contains("Portaria"))
      #expect(text(of: message).contains("missed_call"))
      #expect(
        try await gateway.database.value("select state from push.outbox where call_id = 'call-4'") == "missed")
      #expect(
        try await gateway.database.value(
          "select string_agg(user_id, ',' order by user_id) from push.delivery_history where kind = 'missed_call'")
          == "android,ios")
      #expect(await gateway.refusals() == [:])
    }
  }

  @Test("rule 10: a dead token is invalidated once, the backend is told, and the next call skips it")
  func deadToken() async throws {
    try await GatewayHarness.with { gateway in
      let recipients = #"[{"userId": "u", "fcmToken": "fault-UNREGISTERED-0123456789"}]"#
      let enqueue = { (callID: String) in
        "select deliveries from push.enqueue_call('\(GatewayHarness.baseCallData(callID))', '\(recipients)', 'porteiro')"
      }
      #expect(try await gateway.database.value(enqueue("call-5")) == "1")
      try await gateway.database.wait(for: "select exists (select from push.token_invalidations)")
      let row = try await gateway.database.value(
        "select concat_ws(' ', app, provider, reason) from push.token_invalidations")
      #expect(row == "porteiro fcm UNREGISTERED")
      #expect(try await gateway.database.value(enqueue("call-6")) == "0")
      // The app registers the token again, so it is good again.
      try await gateway.database.execute(
        "select push.register_device('u', 'porteiro', 'fcm', 'fault-UNREGISTERED-0123456789')")
      #expect(try await gateway.database.value(enqueue("call-7")) == "1")
    }
  }

  @Test(
    "a push whose credentials are rejected is sent again: the lane recovers, and no token is invalidated"
  )
  func credentials() async throws {
    var configuration = SimulatorSuite.Configuration()
    configuration.faults = FaultPlan([FaultRule(provider: .apns, fault: .reason("InvalidProviderToken"), count: 1)])
    try await GatewayHarness.with(simulators: configuration) { gateway in
      try await gateway.enqueue("call-8")
      try await gateway.settled()
      try await gateway.expectOutcomes("apns delivered 1,expo delivered 1,fcm delivered 1")
      #expect(try await gateway.database.value("select count(*) from push.token_invalidations") == "0")
    }
  }

  @Test("three replicas share the work and one provider token for APNs, and send each push once for each attempt")
  func replicas() async throws {
    var configuration = SimulatorSuite.Configuration()
    configuration.tokenUpdateInterval = 1200
    try await GatewayHarness.with(simulators: configuration, patience: .seconds(60)) { settings in
      settings.apps[0].apns?.connections = 8
      settings.drainSeconds = 120
    } _: { gateway in
      try await gateway.withReplicas(2) { _ in
        try await gateway.database.execute(GatewayHarness.bulk(500))
        try await gateway.settled()
      }
      try await gateway.expectOutcomes("apns delivered 500,expo delivered 500,fcm delivered 500")
      let counts = await gateway.pushesByToken()
      #expect(counts.count == 1500)
      #expect(try await gateway.unrecordedPushes() == [:])
      #expect(await gateway.refusals() == [:])
      let tokens = "select count(*) from push.provider_tokens where provider = 'apns'"
      #expect(try await gateway.database.value(tokens) == "1")
    }
  }
}
