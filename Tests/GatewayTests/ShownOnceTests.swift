// Visible pushes are shown at most once: a missed call or message whose answer is lost is not sent again, and the
// history says why.

import Foundation
import Simulators
import TestSupport
import Testing

@testable import Settings

@Suite("Shown once", .timeLimit(.minutes(10)))
struct ShownOnceTests {
  /// At each provider, the first push to such a token meets the fault. Later ones would be accepted.
  private static var faults: SimulatorSuite.Configuration {
    var configuration = SimulatorSuite.Configuration()
    configuration.faults = FaultPlan(
      [(SimulatedProvider.apns, "a1", "b1"), (.fcm, "lose-", "close-"), (.expo, expo("lose"), expo("close"))].flatMap {
        [
          FaultRule(provider: $0.0, tokenPrefix: $0.1, fault: Fault(.lose), count: 1),
          FaultRule(provider: $0.0, tokenPrefix: $0.2, fault: Fault(.close), count: 1),
        ]
      })
    return configuration
  }

  private static func expo(_ word: String) -> String { "ExponentPushToken[\(word)" }

  /// One phone at each provider.
  private static func phones(_ fault: String) -> String {
    """
    [{"userId": "a", "apnsToken": "\((fault == "lose" ? "a1" : "b1") + String(repeating: "0", count: 62))"},
     {"userId": "f", "fcmToken": "\(fault)-registration-token-of-a-phone", "platform": "android"},
     {"userId": "e", "pushToken": "\(expo(fault))-aBcDeFgHiJkLmNoPqR]", "platform": "android"}]
    """
  }

  private func tell(_ gateway: GatewayHarness, _ kind: String, _ fault: String) async throws {
    try await gateway.ring(
      #"{"callId": "\#(fault)", "chatId": "c", "from": "x", "fromName": "Portaria"}"#, Self.phones(fault), kind: kind)
    try await gateway.settled()
  }

  private func history(_ gateway: GatewayHarness) async throws -> [String] {
    try await gateway.database.value(
      """
      select string_agg(concat_ws(' ', provider, outcome, reason, attempts,
          case when failures ->> -1 is null then '-' else 'after ' || (failures -> -1 ->> 'reason') end), ','
        order by outbox_id, provider) from push.delivery_history
      """
    ).split(separator: ",").map(String.init)
  }

  @Test(
    "a push whose answer is lost is not repeated, and is dead with FateUnknown",
    arguments: ["missed_call", "message"])
  func lostAnswers(kind: String) async throws {
    try await GatewayHarness.with(simulators: Self.faults) { gateway in
      try await tell(gateway, kind, "close")
      try await tell(gateway, kind, "lose")
      let rows = try await history(gateway)
      #expect(
        rows.prefix(3) == [
          "apns dead FateUnknown 1 after ConnectionLost", "expo dead FateUnknown 1 after ConnectionLost",
          "fcm dead FateUnknown 1 after ConnectionLost",
        ])
      // The connection is not closed. Either it is given up, or the time limit ends the request.
      let ends = ["ConnectionLost", "TimedOut"]
      #expect(
        rows.dropFirst(3).map { row in ends.first { row.hasSuffix("dead FateUnknown 1 after " + $0) } ?? row }
          .allSatisfy(ends.contains), "\(rows)")
      #expect(rows.count == 6)
      // The pushes whose answers were lost had been accepted; those on closed connections had not. The gateway cannot
      // tell them apart.
      let pushes = await gateway.pushesByToken()
      #expect(pushes.count == 3 && pushes.values.allSatisfy { $0 == 1 }, "\(pushes)")
      #expect(
        try await gateway.database.value(
          "select string_agg(concat_ws(' ', event, reason), ', ' order by event) from push.timeline('close') "
            + "where provider = 'fcm' and reason is not null") == "attempt failed ConnectionLost, dead FateUnknown")
    }
  }

  @Test(
    "a missed call is shown once on one phone of a user, on all, or on none, whether a gateway or the backend announces it",
    arguments: [nil] + GatewayConfiguration.MissedCalls.allCases)
  func missedCalls(setting: GatewayConfiguration.MissedCalls?) async throws {
    try await GatewayHarness.with(simulators: Self.faults, adjust: { $0.apps[0].missedCalls = setting }) { gateway in
      let phones = #"""
        [{"userId": "ana", "fcmToken": "lose-phone-of-ana-0123456789", "platform": "android"},
         {"userId": "ana", "fcmToken": "other-phone-of-ana-0123456789", "platform": "android"}]
        """#
      let call = #"{"callId": "c", "from": "x", "fromName": "Portaria"}"#
      // The call ends before it rings anywhere, so all pushes are about the missed call. The answer of the first phone
      // is lost.
      try await gateway.database.execute(
        """
        begin;
        insert into push.outbox (app, payload, recipients) values ('porteiro', '\(call)', '\(phones)');
        select push.end_call('c');
        commit
        """)
      try await gateway.ring(call, phones, kind: "missed_call")
      try await gateway.settled()
      func tokens() async -> [String] { await gateway.simulators.fcm.accepted.map(\.token).sorted() }
      let both = ["lose-phone-of-ana-0123456789", "other-phone-of-ana-0123456789"]
      let announced = await tokens()
      switch setting {
      case .off: #expect(announced == [])
      case .newest, nil: #expect(announced == [both[0]])
      case .all: #expect(announced == both)
      }
      // A missed call that only the backend knows of.
      try await gateway.ring(
        call.replacing(#""c""#, with: #""d""#), phones.replacing("phone", with: "call"), kind: "missed_call")
      try await gateway.settled()
      #expect(await tokens().count - announced.count == (setting == .off ? 0 : setting == .newest ? 1 : 2))
      let fates =
        "select count(*) from push.delivery_history where kind in ('missed_call', 'notification') and outcome = 'dead'"
      #expect(try await gateway.database.value(fates) == (setting == .off ? "0" : "1"))
    }
  }

  @Test("with at_least_once they are sent again, and some are shown twice")
  func atLeastOnce() async throws {
    try await GatewayHarness.with(simulators: Self.faults, adjust: { $0.apps[0].isAtLeastOnce = true }) { gateway in
      try await tell(gateway, "missed_call", "close")
      #expect(
        try await history(gateway) == [
          "apns delivered 2 after ConnectionLost", "expo delivered 2 after ConnectionLost",
          "fcm delivered 2 after ConnectionLost",
        ])
      #expect(await gateway.pushesByToken().values.allSatisfy { $0 == 1 })
    }
  }
}
