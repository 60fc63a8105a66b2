// Escalation end to end: if no phone of a user reports that it rings, the next channel is tried.

import Simulators
import TestSupport
import Testing

@testable import Settings

@Suite("Escalation", .timeLimit(.minutes(10)))
struct EscalationTests {
  @Test(
    "the next channel is tried once for a user none of whose phones reports that it rings, and not for one whose phone does"
  )
  func unheard() async throws {
    try await GatewayHarness.with { settings in
      settings.apps[0].escalateAfterSeconds = 20
    } _: { gateway in
      let quiet = PhoneToken.fcm("quiet")
      let phones = """
        [{"userId": "quiet", "voipPushToken": "\(PhoneToken.voip)", "fcmToken": "\(quiet)", "platform": "ios"},
         {"userId": "loud", "voipPushToken": "\(String(repeating: "cd", count: 32))",
          "fcmToken": "\(PhoneToken.fcm("loud"))", "platform": "ios"}]
        """
      try await gateway.ring(GatewayHarness.baseCallData("quiet-call"), phones, seconds: 60)
      _ = try await gateway.simulators.apnsProduction.waitForAccepted(2)
      #expect(
        try await gateway.database.value("select push.report_ringing('quiet-call', 'loud', 'porteiro')") == "true")
      let escalated = try await gateway.simulators.fcm.waitForAccepted(1)
      #expect(escalated.map(\.token) == [quiet])
      try await gateway.settled()
      let events = try await gateway.database.value(
        """
        select string_agg(concat_ws(' ', event, user_id), ', ' order by event) from push.timeline('quiet-call')
        where event in ('ringing', 'escalation', 'fallback')
        """)
      #expect(events == "escalation quiet, ringing loud")
      #expect(await gateway.simulators.fcm.accepted.map(\.token) == [quiet])
    }
  }

  @Test("each replica reports the state of its lanes in push.lanes")
  func reportedLanes() async throws {
    try await GatewayHarness.with { gateway in
      try await gateway.enqueue("call-1")
      try await gateway.settled()
      let all =
        "select bool_and(coalesce(circuit = 'closed' and window_size > 0 and capacity > 0, false)) from push.lanes"
      try await gateway.database.wait(for: all)
      #expect(try await gateway.database.value("select count(*) from push.stuck") == "0")
    }
  }
}
