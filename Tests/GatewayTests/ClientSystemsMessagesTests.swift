// CommEazy's messages and invitations through the whole gateway, read from the received pushes as CommEazy's router
// reads them.

import Foundation
import Simulators
import TestSupport
import Testing

@Suite("Client systems: messages", .timeLimit(.minutes(10)))
struct ClientSystemsMessagesTests {
  private static let phones = """
    [{"userId": "oma", "apnsToken": "\(PhoneToken.alert)", "voipPushToken": "\(PhoneToken.voip)", "locale": "nl-NL"},
     {"userId": "opa", "fcmToken": "\(PhoneToken.fcm("opa"))", "platform": "android", "locale": "nl-NL"}]
    """

  private static let kinds = [
    ("message", "Nieuw bericht"), ("group_message", "Nieuw groepsbericht"), ("group_invite", "Groepsuitnodiging"),
  ]

  private func routed(_ kind: String, _ chatID: String) -> CommEazyApp.Routed {
    switch kind {
    case "message": .message(chatID: chatID, jid: "jan@example.com", name: "Jan")
    case "group_message": .groupMessage(chatID: chatID, jid: "jan@example.com", name: "Jan")
    default: .groupInvite(chatID: chatID, jid: "jan@example.com", name: "Jan")
    }
  }

  @Test("CommEazy: messages and invitations reach the router by their type, over alert tokens and FCM, never over VoIP")
  func messages() async throws {
    try await GatewayHarness.speaking("commeazy") { gateway in
      for (kind, _) in Self.kinds {
        try await gateway.ring(
          #"{"chatId": "chat-\#(kind)", "messageId": "id-\#(kind)", "from": "jan@example.com", "fromName": "Jan"}"#,
          Self.phones, kind: kind)
      }
      try await gateway.settled()
      let alerts = await gateway.simulators.apnsProduction.accepted
      let data = await gateway.simulators.fcm.accepted
      #expect(alerts.count == 3)
      #expect(data.count == 3)
      #expect(alerts.allSatisfy { $0.kind == "alert" && $0.token == PhoneToken.alert && $0.topic == "com.example.app" })
      for (kind, text) in Self.kinds {
        let expected = routed(kind, "chat-\(kind)")
        let alert = try #require(try alerts.map { try $0.object() }.first { $0["type"] as? String == kind })
        let aps = try #require(alert["aps"] as? [String: Any])
        let shown = try #require(aps["alert"] as? [String: Any])
        #expect(CommEazyApp.route(alert) == expected)
        #expect(shown["title"] as? String == "Jan")
        #expect(shown["body"] as? String == text)
        #expect(aps["thread-id"] as? String == "chat-\(kind)")
        #expect(try data.contains { try CommEazyApp.route($0.object()) == expected })
      }
      #expect(try data.allSatisfy { try $0.object().values.allSatisfy { $0 is String } })
      #expect(await gateway.refusals() == [:])
    }
  }

  @Test(
    "CommEazy: a message whose text is in the payload is refused, and the error does not repeat it",
    arguments: [#""text": "SECRET""#, #""Body": "SECRET""#, #""metadata": {"a": [{"preview": "SECRET"}]}"#])
  func privacy(member: String) async throws {
    try await GatewayHarness.speaking("commeazy") { gateway in
      let error = await #expect(throws: (any Error).self) {
        try await gateway.ring(
          #"{"chatId": "chat-1", "from": "jan@example.com", \#(member)}"#, Self.phones, kind: "message")
      }
      let words = "\(try #require(error))"
      #expect(words.contains("payload."))
      #expect(!words.contains("SECRET"))
      #expect(try await gateway.database.value("select count(*) from push.outbox") == "0")
      #expect(await gateway.simulators.fcm.counters.accepted == 0)
    }
  }

  @Test("CommEazy: a missed call that Prosody reports itself is shown like the gateway's own")
  func missedCall() async throws {
    try await GatewayHarness.speaking("commeazy") { gateway in
      try await gateway.ring(
        #"{"callId": "m-1", "from": "jan@example.com", "fromName": "Jan"}"#, Self.phones, kind: "missed_call")
      try await gateway.settled()
      let expected = CommEazyApp.Routed.missedCall(
        id: "m-1", title: "Jan", body: "Gemiste oproep", category: "missed_call")
      let alert = try #require(await gateway.simulators.apnsProduction.accepted.first)
      let data = try #require(await gateway.simulators.fcm.accepted.first)
      #expect(alert.kind == "alert")
      #expect(try CommEazyApp.route(alert.object()) == expected)
      #expect(try CommEazyApp.route(data.object()) == expected)
      #expect(try await gateway.database.value("select count(*) from push.delivery_history") == "2")
    }
  }
}
