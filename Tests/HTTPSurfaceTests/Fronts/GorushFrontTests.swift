// gorush's POST /api/push: what its clients are answered, and what is in the outbox afterwards.

import Foundation
import HTTPSurfaceTestSupport
import TestSupport
import Testing

@testable import HTTPSurface
@testable import Settings

@Suite(.timeLimit(.minutes(10)))
struct GorushFrontTests {
  private static let path = "/api/push"
  private static let voip = String(repeating: "cd", count: 32)
  private static let phones = ["gorush-token-0123456789-a", "gorush-token-0123456789-b"]

  private static func with(
    _ gorush: GatewayConfiguration.Gorush = GatewayConfiguration.Gorush(), _ body: (APIHarness) async throws -> Void
  ) async throws {
    try await APIHarness.with(adjust: { $0.gorush = gorush }, body)
  }

  private static func call(_ callID: String = "c1", _ tokens: [String] = phones, type: String = "incoming_call")
    -> String
  {
    #"""
    {"notifications":[
      {"notif_id":"n1","tokens":["\#(tokens.joined(separator: #"",""#))"],"platform":2,"priority":"high",
        "data":{"type":"\#(type)","callId":"\#(callID)","from":"doorman-7","fromName":"Portaria"}},
      {"tokens":["\#(voip)"],"platform":1,"push_type":"voip","topic":"com.example.app.voip",
        "data":{"type":"\#(type)","callId":"\#(callID)","from":"doorman-7","fromName":"Portaria"}}]}
    """#
  }

  private static func errors(_ answer: APIAnswer) -> [String] {
    (answer.json["logs"] as? [[String: Any]] ?? []).compactMap { $0["error"] as? String }
  }

  @Test func `a call for several platforms rings once, however often it is sent`() async throws {
    try await Self.with { api in
      for _ in 0..<2 {
        let answer = try await api.send("POST", Self.path, Self.call(), type: "text/plain")
        #expect(answer.status == 200)
        #expect(answer.body == #"{"counts":3,"logs":[],"success":"ok"}"#)
      }
      #expect(
        try await api.database.value(
          "select string_agg(concat_ws(' ', call_id, kind, state, jsonb_array_length(recipients)), ',') from push.outbox"
        )
          == "c1 incoming_call ringing 3")
      #expect(try await api.database.value("select count(*) from push.delivery") == "3")
      #expect(api.counters.snapshot.requests(.pushGorush, 200) == 2)
    }
  }

  @Test func `further tokens of a call that rings are refused, not dropped`() async throws {
    try await Self.with { api in
      _ = try await api.send("POST", Self.path, Self.call("c1", [Self.phones[0]]))
      let second = try await api.send("POST", Self.path, Self.call("c1", Self.phones))
      let logs = try #require(second.json["logs"] as? [[String: String]])
      #expect(logs.count == 1)
      #expect(api.counters.snapshot.refusedTokens == [.pushGorush: 1])
      #expect(logs[0]["token"] == "goru…89-b")
      #expect(logs[0]["error"]?.contains("data.callId") == true)
      #expect(logs[0]["notif_id"] == "n1" && logs[0]["platform"] == "android" && logs[0]["type"] == "failed-push")
      func message(_ token: String) -> String {
        #"""
        {"notifications":[{"tokens":["\#(token)"],"platform":2,"data":{"type":"message","messageId":"m1","chatId":"k","from":"x"}}]}
        """#
      }
      #expect(Self.errors(try await api.send("POST", Self.path, message(Self.phones[0]))) == [])
      #expect(
        Self.errors(try await api.send("POST", Self.path, message(Self.phones[1]))).first?
          .hasPrefix("data: this notification is known") == true)
    }
  }

  @Test func `the end of a call stops the phones that it names`() async throws {
    try await Self.with { api in
      func state() async throws -> String {
        try await api.database.followUp()
        return try await api.database.value(
          "select concat_ws(' ', state, end_reason, (select count(*) from push.delivery where kind = 0)) from push.outbox"
        )
      }
      _ = try await api.send("POST", Self.path, Self.call())
      let one = #"""
        {"notifications":[{"tokens":["\#(Self.phones[0])","gorush-stranger-0123456789"],"platform":2,"data":{"type":"intercom_call_end","callId":"c1"}}]}
        """#
      #expect(
        Self.errors(try await api.send("POST", Self.path, one)) == ["data.callId: this call does not ring this token"])
      #expect(try await state() == "ringing 2")
      let all = Self.call(type: "intercom_call_end")
      #expect(Self.errors(try await api.send("POST", Self.path, all)) == [])
      #expect(try await state() == "ended ended 0")
      #expect(Self.errors(try await api.send("POST", Self.path, all)) == [], "a repetition")
      #expect(
        try await api.database.value("select count(*) from push.delivery where kind = 2") == "0", "no missed calls")
      let unknown = try await api.send("POST", Self.path, Self.call("c2", type: "intercom_call_end"))
      #expect(Self.errors(unknown).count == 3)
    }
  }

  @Test func `each refused token has a line, and the others ring`() async throws {
    try await Self.with { api in
      try await api.database.execute(
        "insert into push.token_invalidations (app, provider, token, reason) values ('porteiro', 'fcm', '\(Self.phones[1])', 'UNREGISTERED')"
      )
      let body = Self.call().replacing(
        "{\"notifications\":[",
        with: #"{"notifications":[{"tokens":["token_a","token_b"],"platform":2,"message":"secret text","title":"x"},"#)
      let answer = try await api.send("POST", Self.path, body)
      #expect(answer.status == 200)
      #expect(answer.json["counts"] as? Int == 5)
      let errors = Self.errors(answer)
      #expect(errors.count == 3)
      #expect(errors.prefix(2).allSatisfy { $0.hasPrefix("data.type") })
      #expect(errors.last == "NotRegistered")
      #expect(!answer.body.contains("secret text") && !answer.body.contains(Self.phones[1]))
      #expect(try await api.database.value("select count(*) from push.delivery") == "2")
      // A line for each time that the request names it.
      let phones = [Self.phones[1], Self.phones[0], Self.phones[1]]
      let twice = try await api.send("POST", Self.path, Self.call("c2", phones))
      #expect(Self.errors(twice) == ["NotRegistered", "NotRegistered"])
    }
    try await Self.with(GatewayConfiguration.Gorush(hidesTokens: false)) { api in
      let answer = try await api.send(
        "POST", Self.path, #"{"notifications":[{"tokens":["token_a"],"platform":2,"message":"x"}]}"#)
      #expect((answer.json["logs"] as? [[String: String]])?.first?["token"] == "token_a")
    }
  }

  @Test func `a fault that the database finds is told for each token, and leaves the other calls alone`() async throws {
    try await Self.with { api in
      let body = #"""
        {"notifications":[
          {"tokens":["\#(Self.phones[0])"],"platform":2,"data":{"type":"message","chatId":"k","from":"x","messageId":"m1","body":"secret text"}},
          {"tokens":["\#(Self.phones[0])"],"platform":2,"data":{"type":"incoming_call","callId":"c","from":"x"}},
          {"tokens":["\#(Self.phones[0])"],"platform":2,"data":{"type":"message","chatId":"k","from":"x","messageId":"m2"}}]}
        """#
      let answer = try await api.send("POST", Self.path, body)
      #expect(Self.errors(answer) == ["data.body: a message's text does not travel in a push; leave it out"])
      #expect(
        try await api.database.value("select string_agg(kind, ' ' order by id) from push.outbox")
          == "incoming_call message")
    }
  }

  @Test func `a key, or the address of a network without one`() async throws {
    try await APIHarness.with { api in
      let off = try await api.send("POST", Self.path, Self.call())
      #expect(off.status == 404)
      #expect(off.json["code"] as? Int == 404)
    }
    try await Self.with { api in
      let keyless = try await api.send("POST", Self.path, Self.call(), key: "")
      #expect(keyless.status == 401)
      #expect(keyless.json["code"] as? Int == 401)
      #expect((keyless.json["message"] as? String)?.isEmpty == false)
      let device = try await api.createKey(scopes: "device")
      #expect(try await api.send("POST", Self.path, Self.call(), key: device).status == 403)
      let other = try await api.createKey(app: "other")
      #expect(try await api.send("POST", Self.path, Self.call(), key: other).status == 200)
      #expect(try await api.database.value("select string_agg(app, ' ') from push.outbox") == "other")
    }
    try await Self.with(GatewayConfiguration.Gorush(networks: [IPRange("127.0.0.2")!], app: "other")) { api in
      let elsewhere = try await api.send("POST", Self.path, Self.call(), key: "")
      #expect(elsewhere.status == 403)
      #expect(try await api.send("POST", Self.path, Self.call(), key: "wrong", from: "127.0.0.2").status == 401)
      #expect(
        try await api.send(
          "POST", Self.path, Self.call(), key: "", headers: ["Origin: https://evil.example"], from: "127.0.0.2"
        ).status
          == 403)
      #expect(try await api.database.value("select count(*) from push.outbox") == "0")
      #expect(try await api.send("POST", Self.path, Self.call(), key: "", from: "127.0.0.2").status == 200)
      #expect(try await api.send("POST", Self.path, Self.call()).status == 200)
      #expect(
        try await api.database.value("select string_agg(app, ' ' order by app) from push.outbox") == "other porteiro")
    }
  }

  @Test func `errors have gorush's form`() async throws {
    try await Self.with { api in
      for (body, message) in [
        ("{}", "Missing notifications field."), (#"{"notifications":[]}"#, "Notifications field is empty."),
        ("", "the body is not JSON: the text ends too early at byte 0"),
      ] {
        let answer = try await api.send("POST", Self.path, body)
        #expect(answer.status == 400)
        #expect(answer.json["message"] as? String == message)
        #expect(answer.json["code"] as? Int == 400)
      }
      #expect(try await api.send("GET", Self.path).json["code"] as? Int == 405)
      let huge = try await api.send("POST", Self.path, String(repeating: " ", count: 5_000_000))
      #expect(huge.status == 413)
      #expect(huge.json["code"] as? Int == 413)
      let deep = String(repeating: "[", count: 1_000) + String(repeating: "]", count: 1_000)
      #expect(try await api.send("POST", Self.path, #"{"notifications":[{"data":{"x":\#(deep)}}]}"#).status == 400)
    }
  }

  @Test func `if nothing could be enqueued, the whole request can be sent again`() async throws {
    try await APIHarness.with(adjust: {
      $0.gorush = GatewayConfiguration.Gorush()
      $0.busyAfterSeconds = 1
    }) { api in
      _ = try await api.send("POST", Self.path, Self.call("first"))
      let busy = try await api.eventually(
        {
          try await api.send("POST", Self.path, Self.call(UUID().uuidString))
        }, until: { $0.status == 503 })
      #expect(busy.json["code"] as? Int == 503)
      #expect(busy.headers["retry-after"] == "2")
    }
  }
}
