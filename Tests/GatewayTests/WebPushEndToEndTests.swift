// Web push from a commit in Postgres to simulated browsers, over real TLS.

import Foundation
import Simulators
import TestSupport
import TestTime
import Testing

@testable import Settings

@Suite("Web push end to end", .timeLimit(.minutes(10)))
struct WebPushEndToEndTests {
  /// A browser's subscription as its `PushSubscription.toJSON()` gives it.
  private static func subscription(_ gateway: GatewayHarness, _ name: String) -> String {
    String(
      decoding: gateway.simulators.material.browser.json(endpoint: gateway.simulators.endpoints.webPushEndpoint(name)),
      as: UTF8.self)
  }

  private static func register(_ gateway: GatewayHarness, _ user: String, _ name: String) async throws {
    try await gateway.database.execute(
      "select push.register_device('\(user)', 'porteiro', 'webpush', '\(subscription(gateway, name))')")
  }

  private static func ring(_ gateway: GatewayHarness, _ callID: String, _ recipients: String) async throws -> String {
    try await gateway.database.value(
      """
      select concat_ws(' ', deliveries, skipped) from push.enqueue_call('\(GatewayHarness.baseCallData(callID))',
        '\(recipients)', 'porteiro')
      """)
  }

  private static func payload(_ push: AcceptedPush) throws -> [String: Any] {
    try #require(try JSONSerialization.jsonObject(with: Data(push.payload)) as? [String: Any])
  }

  @Test("a call rings a browser beside a phone, and its end replaces it")
  func rings() async throws {
    try await GatewayHarness.with { gateway in
      try await Self.register(gateway, "ana", "browser-1")
      try await gateway.database.execute(
        "select push.register_device('ana', 'porteiro', 'fcm', 'cQ7mZl2pR0uX:APA91bHexample-token', platform => 'android')"
      )
      #expect(try await Self.ring(gateway, "call-1", #"["ana"]"#) == "2 0")
      let push = try #require(try await gateway.simulators.webPush.waitForAccepted(1).first)
      #expect(push.token == "browser-1")
      #expect(push.kind == "high")
      let secondsLeft = try #require(push.detail("ttl").flatMap(Int.init))
      #expect((1...GatewayHarness.ringSeconds).contains(secondsLeft))
      let invite = try Self.payload(push)
      #expect(invite["type"] as? String == "intercom_call" && invite["tag"] as? String == "call-1")
      #expect(invite["title"] as? String == "Portaria" && invite["apartmentNumber"] as? String == "42")
      try await gateway.settled()

      try await gateway.database.execute("select push.end_call('call-1', 'ended', 'porteiro')")
      let pushes = try await gateway.simulators.webPush.waitForAccepted(2)
      let cancel = try #require(pushes.first { $0.id != push.id })
      #expect(cancel.detail("topic") == push.detail("topic"), "a push service keeps only the end of the call")
      #expect(try #require(cancel.detail("topic")).count <= 32)
      let end = try Self.payload(cancel)
      #expect(end["type"] as? String == "intercom_call_end" && end["tag"] as? String == "call-1")
      let sequence = try [invite, end].map { try #require(($0["seq"] as? String).flatMap(Int.init)) }
      #expect(sequence[0] < sequence[1], "the service worker knows which of the two is later")
      try await gateway.settled()
      #expect(await gateway.simulators.webPush.counters.refused == [:])
      #expect(await gateway.simulators.webPush.counters.violations == [:])
    }
  }

  @Test(
    "an answer 404 or 410 marks the subscription as dead, and it is not used again",
    arguments: [("HTTP404", "HTTP404"), ("errno_103", "errno_103")])
  func dead(fault: String, reason: String) async throws {
    try await GatewayHarness.with { gateway in
      let name = "fault-\(fault)-browser"
      try await Self.register(gateway, "ana", name)
      _ = try await Self.ring(gateway, "call-1", #"["ana"]"#)
      try await gateway.settled()
      #expect(
        try await gateway.database.value(
          "select concat_ws(' ', outcome, reason, device ~ '^http…') from push.delivery_history where provider = 'webpush'"
        )
          == "dead \(reason) t")
      #expect(
        try await gateway.database.value(
          "select concat_ws(' ', provider, user_id, reason) from push.dead_devices") == "webpush ana \(reason)")
      #expect(try await Self.ring(gateway, "call-2", #"["ana"]"#) == "0 1")
    }
  }

  @Test("an entry of recipients may have the subscription, and a malformed one is skipped with a reason")
  func inline() async throws {
    try await GatewayHarness.with { gateway in
      let good = Self.subscription(gateway, "browser-2")
      let recipients = """
        [{"userId": "ana", "webPushSubscription": \(good)},
         {"userId": "bob", "webPushSubscription": {"endpoint": "http://push.example/x"}}]
        """
      #expect(try await Self.ring(gateway, "call-1", recipients) == "1 1")
      #expect(try await gateway.simulators.webPush.waitForAccepted(1).first?.token == "browser-2")
      let skipped = try await gateway.database.value(
        "select concat_ws(' ', s.user_id, s.field, s.reason) from push.outbox o, push.skipped_recipients(o.id) s")
      #expect(skipped == "bob recipients[1].webPushSubscription TokenMalformed")
      try await gateway.settled()
    }
  }

  @Test("no request is sent to an endpoint outside of the configured origins, and the token stays")
  func otherOrigin() async throws {
    try await GatewayHarness.with { gateway in
      let subscription = String(
        decoding: gateway.simulators.material.browser.json(endpoint: "\(gateway.simulators.endpoints.fcm)/push/x"),
        as: UTF8.self)
      try await gateway.database.execute(
        "select push.register_device('ana', 'porteiro', 'webpush', '\(subscription)')")
      _ = try await Self.ring(gateway, "call-1", #"["ana"]"#)
      try await gateway.settled()
      let row = try await gateway.database.value("select concat_ws(' ', outcome, reason) from push.delivery_history")
      #expect(row.hasPrefix("dead "))
      #expect(await gateway.simulators.fcm.counters.refused == [:], "it would refuse the request")
      #expect(try await gateway.database.value("select count(*) from push.dead_devices") == "0")
    }
  }

  @Test("an invite that the push service does not take in time expires, and is never sent late")
  func expires() async throws {
    var configuration = GatewayHarness.strict
    configuration.faults = FaultPlan([FaultRule(provider: .webpush, fault: .reason("HTTP503"))])
    try await GatewayHarness.with(simulators: configuration) { gateway in
      try await Self.register(gateway, "ana", "browser-1")
      _ = try await gateway.database.value(
        """
        select deliveries from push.enqueue_call('\(GatewayHarness.baseCallData("call-1"))', '["ana"]', 'porteiro',
          ring_seconds => 2)
        """)
      // Its missed call may be tried for hours.
      try await eventually("the invite has ended", within: .seconds(180)) {
        try await gateway.database.value("select count(*) from push.delivery_history where kind = 'invite'") == "1"
      }
      let row = try await gateway.database.value(
        "select concat_ws(' ', outcome, reason) from push.delivery_history where kind = 'invite'")
      #expect(row.hasPrefix("expired "))
      #expect(await gateway.simulators.webPush.accepted.isEmpty)
    }
  }
}
