// Each successful request of the HTTP API, and its repetition.

import HTTPSurface
import HTTPSurfaceTestSupport
import Foundation
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(10)))
struct APIOperationsTests {
  @Test func `a call is enqueued once, however often it is sent`() async throws {
    try await APIHarness.with { api in
      let first = try await api.send("POST", "/v1/calls", APIHarness.call)
      #expect(first.status == 202)
      #expect(first.headers["location"] == "/v1/calls/c1")
      #expect(first.headers["content-type"] == "application/json")
      #expect(first.json["callId"] as? String == "c1")
      #expect(first.json["deliveries"] as? Int == 1)
      #expect(first.json["duplicate"] as? Bool == false)
      #expect(first.json["skipped"] as? Int == 0)
      let second = try await api.send("POST", "/v1/calls", APIHarness.call)
      #expect(second.status == 202)
      #expect(second.json["duplicate"] as? Bool == true)
      #expect(second.json["outboxId"] as? Int == first.json["outboxId"] as? Int)
      #expect(first.json["existing"] == nil)
      let same = try #require(second.json["existing"] as? [String: Any])
      #expect(same["state"] as? String == "ringing")
      #expect(same["payloadDiffers"] as? Bool == false && same["recipientsDiffer"] as? Bool == false)
      let other = #"{"payload": {"callId": "c1", "from": "somebody"}, "recipients": []}"#
      let differs = try #require(try await api.send("POST", "/v1/calls", other).json["existing"] as? [String: Any])
      #expect(differs["payloadDiffers"] as? Bool == true && differs["recipientsDiffer"] as? Bool == true)
      let row = "select concat_ws(' ', count(*), max(app), max(kind), max(ring_seconds)) from push.outbox"
      #expect(try await api.database.value(row) == "1 porteiro incoming_call 60")
    }
  }

  @Test func `kind and ring window are passed on, and a user without a device is counted`() async throws {
    try await APIHarness.with { api in
      let answer = try await api.send(
        "POST", "/v1/calls",
        #"{"payload": {"callId": "v", "from": "a"}, "recipients": ["nobody"], "kind": "video_call", "ringSeconds": 7.0}"#
      )
      #expect(answer.status == 202)
      #expect(answer.json["deliveries"] as? Int == 0)
      #expect(answer.json["skipped"] as? Int == 1)
      #expect(
        try await api.database.value("select concat_ws(' ', kind, ring_seconds) from push.outbox") == "video_call 7")
    }
  }

  @Test func `an invalid recipient is skipped and reported, and the others ring`() async throws {
    try await APIHarness.with { api in
      let answer = try await api.send(
        "POST", "/v1/calls",
        #"""
        {"payload": {"callId": "mixed", "from": "a"}, "recipients": [7, {"userId": "b", "voipPushToken": "secret"},
          {"userId": "c", "fcmToken": " mixed-token-0123456789 "}, {"userId": "d", "pushToken": "secret-raw-fcm-token-0123"}]}
        """#)
      #expect(answer.status == 202)
      #expect(answer.json["deliveries"] as? Int == 1)
      #expect(answer.json["skipped"] as? Int == 3)
      let skipped = try #require(answer.json["skippedRecipients"] as? [[String: Any]])
      let told = skipped.map { one in
        ["userId", "field", "reason"].map { one[$0] as? String ?? "-" }.joined(separator: " ")
      }
      #expect(
        told.sorted() == [
          "- recipients[0] RecipientMalformed", "b recipients[1].voipPushToken TokenMalformed",
          "d recipients[3].pushToken TokenMisplaced",
        ])
      #expect(skipped.allSatisfy { ($0["remedy"] as? String)?.isEmpty == false })
      #expect(!answer.body.contains("secret"))
      let call = try await api.send("GET", "/v1/calls/mixed")
      let fields = (call.json["timeline"] as? [[String: Any]] ?? []).compactMap { $0["field"] as? String }
      #expect(fields.sorted() == ["recipients[0]", "recipients[1].voipPushToken", "recipients[3].pushToken"])
      #expect(try await api.send("POST", "/v1/calls", APIHarness.call).json["skippedRecipients"] as? [String] == [])
    }
  }

  @Test func `an id that an iPhone could not answer is warned of, for apps that need a UUID`() async throws {
    func call(_ id: String, _ more: String = "") -> String {
      #"{"payload": {"callId": "\#(id)", "from": "a", "chatId": "k"}, "recipients": []\#(more)}"#
    }
    let (small, large) = ("7d4e3a52-53cb-4a4e-9f0c-5d8a2f9d1c11", "7D4E3A52-53CB-4A4E-9F0C-5D8A2F9D1C11")
    try await APIHarness.with(apiApps: APIApps(ids: [:], needUUIDs: ["porteiro"])) { api in
      var warnings: [String?] = []
      for body in [call("call-4"), call(large), call(small), call("note-4", #", "kind": "message""#)] {
        warnings.append(try await api.send("POST", "/v1/calls", body).json["warning"] as? String)
      }
      #expect(warnings.map { $0?.hasPrefix("payload.callId: ") } == [true, true, nil, nil])
    }
    try await APIHarness.with { api in
      let answer = try await api.send("POST", "/v1/calls", call("call-4"))
      #expect(answer.status == 202 && answer.json["warning"] == nil)
    }
  }

  @Test func `a message without an id is given one`() async throws {
    try await APIHarness.with { api in
      let answer = try await api.send(
        "POST", "/v1/calls",
        #"{"payload": {"from": "a", "chatId": "k"}, "recipients": ["bob"], "kind": "message"}"#)
      #expect(answer.status == 202)
      let id = try #require(answer.json["callId"] as? String)
      #expect(UUID(uuidString: id) != nil)
      #expect(try await api.send("GET", "/v1/calls/\(id)").json["state"] as? String == "ended")
    }
  }

  @Test func `people join a call that rings, once, and none joins one that has ended`() async throws {
    try await APIHarness.with { api in
      _ = try await api.send("POST", "/v1/calls", APIHarness.call)
      let joining =
        #"{"recipients": [{"userId": "bob", "fcmToken": "api-token-0123456789-bob"}, "nobody", {"userId": "eve", "fcmToken": "secret"}]}"#
      let first = try await api.send("POST", "/v1/calls/c1/recipients", joining)
      #expect(first.status == 200)
      #expect(first.json["deliveries"] as? Int == 1)
      #expect(first.json["skipped"] as? Int == 2)
      let skipped = try #require(first.json["skippedRecipients"] as? [[String: Any]])
      #expect(skipped.compactMap { $0["reason"] as? String } == ["TokenMalformed", "NoDevice"])
      #expect(!first.body.contains("secret"))
      let again = try await api.send("POST", "/v1/calls/c1/recipients", joining)
      #expect(again.json["deliveries"] as? Int == 0)
      let users = "select string_agg(user_id, ' ' order by n) from push.deliveries"
      #expect(try await api.database.value(users) == "ana bob")
      let malformed = try await api.send("POST", "/v1/calls/c1/recipients", #"{"recipients": {"userId": "bob"}}"#)
      #expect(malformed.status == 422 && malformed.field == "recipients")
      #expect(try await api.send("POST", "/v1/calls/other/recipients", joining).problem == "unknown-call")
      _ = try await api.send("POST", "/v1/calls/c1/end", "{}")
      let late = try await api.send("POST", "/v1/calls/c1/recipients", joining)
      #expect(late.status == 409 && late.problem == "rings-no-longer")
      #expect(try await api.database.value(users) == "ana bob")
    }
  }

  @Test func `the id of a call that ended long ago does not ring again`() async throws {
    try await APIHarness.with { api in
      _ = try await api.send("POST", "/v1/calls", APIHarness.call)
      _ = try await api.send("POST", "/v1/calls/c1/end", "{}")
      #expect(try await api.send("POST", "/v1/calls", APIHarness.call).json["duplicate"] as? Bool == true)
      try await api.database.execute(
        """
        begin; set local session_replication_role = replica;
        update push.outbox set ended_at = ended_at - interval '2 minutes'; commit
        """)
      let again = try await api.send("POST", "/v1/calls", APIHarness.call)
      #expect(again.status == 409 && again.problem == "rings-no-longer")
    }
  }

  @Test func `a call is answered once, and cannot be ended afterwards`() async throws {
    try await APIHarness.with { api in
      _ = try await api.send("POST", "/v1/calls", APIHarness.call)
      let first = try await api.send("POST", "/v1/calls/c1/answer", #"{"userId": "ana"}"#)
      #expect(first.status == 200)
      #expect(first.body == #"{"callId":"c1","changed":true}"#)
      #expect(try await api.send("POST", "/v1/calls/c1/answer").body == #"{"callId":"c1","changed":false}"#)
      #expect(try await api.send("POST", "/v1/calls/c1/end", "{}").body == #"{"callId":"c1","changed":false}"#)
      let call = try await api.send("GET", "/v1/calls/c1")
      #expect(call.json["state"] as? String == "answered")
      #expect(call.json["answeredBy"] as? String == "ana")
    }
  }

  @Test func `a user declines, is busy, and with the last one the call ends`() async throws {
    try await APIHarness.with { api in
      let call = #"""
        {"payload": {"callId": "d", "from": "x"}, "recipients": [{"userId": "ana", "fcmToken": "api-token-0123456789-ana"},
          {"userId": "bob", "fcmToken": "api-token-0123456789-bob"}]}
        """#
      _ = try await api.send("POST", "/v1/calls", call)
      let first = try await api.send("POST", "/v1/calls/d/decline", #"{"userId": "ana"}"#)
      #expect(first.status == 200)
      #expect(first.body == #"{"callId":"d","changed":true}"#)
      #expect(
        try await api.send("POST", "/v1/calls/d/decline", #"{"userId": "ana", "reason": "busy"}"#).body
          == #"{"callId":"d","changed":false}"#)
      #expect(try await api.send("POST", "/v1/calls/d/decline", #"{"userId": "eve"}"#).status == 409)
      #expect(try await api.send("GET", "/v1/calls/d").json["state"] as? String == "ringing")
      let last = #"{"userId": "bob", "reason": "busy", "device": "api-token-0123456789-bob"}"#
      #expect(try await api.send("POST", "/v1/calls/d/decline", last).body == #"{"callId":"d","changed":true}"#)
      try await api.database.followUp()
      let ended = try await api.send("GET", "/v1/calls/d").json
      #expect(ended["state"] as? String == "ended")
      #expect(ended["endReason"] as? String == "declined")
      let declined = try #require(ended["declinedBy"] as? [[String: Any]])
      #expect(declined.map { "\($0["userId"] ?? "") \($0["reason"] ?? "")" } == ["ana declined", "bob busy"])
      let events = (ended["timeline"] as? [[String: Any]] ?? []).compactMap { $0["event"] as? String }
      #expect(events.contains("declined") && events.contains("busy"))
    }
  }

  @Test func `the phone that answered gets no cancel, and the user's other phone does`() async throws {
    try await APIHarness.with { api in
      let call = #"""
        {"payload": {"callId": "two", "from": "x"}, "recipients": [{"userId": "ana", "fcmToken": "api-token-0123456789-one"},
          {"userId": "ana", "fcmToken": "api-token-0123456789-two"}]}
        """#
      _ = try await api.send("POST", "/v1/calls", call)
      _ = try await api.database.value(
        "with g as materialized (select push.register_gateway('x', '1') as id) select count(*) from g "
          + "cross join lateral push.claim(g.id, 1, array(select id from push.lane where app = 'porteiro' and provider = 'fcm'), '{9}', '{-infinity}')"
      )
      let answer = #"{"userId": "ana", "device": "api-token-0123456789-one"}"#
      #expect(try await api.send("POST", "/v1/calls/two/answer", answer).body == #"{"callId":"two","changed":true}"#)
      try await api.database.followUp()
      #expect(
        try await api.database.value(
          "select string_agg(device, ' ') from push.deliveries where kind = 'cancel'") == "api-…-two")
    }
  }

  @Test func `a call is ended with its reason`() async throws {
    try await APIHarness.with { api in
      let enqueued = try await api.send("POST", "/v1/calls", APIHarness.call)
      #expect(enqueued.status == 202, "\(enqueued)")
      let ended = try await api.send("POST", "/v1/calls/c1/end", #"{"reason": "declined"}"#)
      #expect(ended.status == 200, "\(ended)")
      #expect(
        try await api.database.value("select concat_ws(' ', state, end_reason) from push.outbox") == "ended declined")
    }
  }

  @Test func `a phone's ringing is kept once, and shown`() async throws {
    try await APIHarness.with { api in
      _ = try await api.send("POST", "/v1/calls", APIHarness.call)
      #expect(
        try await api.send("POST", "/v1/calls/c1/ringing", #"{"userId": "ana"}"#).json["changed"] as? Bool == true)
      #expect(
        try await api.send("POST", "/v1/calls/c1/ringing", #"{"userId": "ana"}"#).json["changed"] as? Bool == false)
      let other = try await api.send("POST", "/v1/calls/c1/ringing", #"{"userId": "eve"}"#)
      #expect(other.status == 409)
      #expect(other.problem == "unknown-recipient")
      #expect(other.field == "userId")
      let call = try await api.send("GET", "/v1/calls/c1")
      let devices = try #require(call.json["devices"] as? [[String: Any]])
      #expect(devices.first?["rangAt"] is String)
      let events = try #require(call.json["timeline"] as? [[String: Any]]).compactMap { $0["event"] as? String }
      #expect(events == ["enqueued", "ready", "ringing"])
    }
  }

  @Test func `a call is shown without its payload and with its tokens masked`() async throws {
    try await APIHarness.with { api in
      _ = try await api.send("POST", "/v1/calls", APIHarness.call)
      let call = try await api.send("GET", "/v1/calls/c1")
      #expect(call.status == 200)
      #expect(!call.body.contains("fcm-token-of-anas-phone"))
      #expect(!call.body.contains("doorman"))
      #expect(call.json["app"] as? String == "porteiro")
      #expect(call.json["state"] as? String == "ringing")
      #expect(call.json["outboxId"] is Int)
    }
  }

  @Test func `a call's id may hold anything that a path can carry`() async throws {
    try await APIHarness.with { api in
      let enqueued = try await api.send(
        "POST", "/v1/calls", #"{"payload": {"callId": "a/b ?%é", "from": "x"}, "recipients": []}"#)
      #expect(enqueued.headers["location"] == "/v1/calls/a%2Fb%20%3F%25%C3%A9")
      let location = try #require(enqueued.headers["location"])
      #expect(try await api.send("GET", location).json["callId"] as? String == "a/b ?%é")
      #expect(try await api.send("POST", location + "/end").status == 200)
    }
  }

  @Test func `a device is registered, moved to another user, and dropped, as often as one likes`() async throws {
    try await APIHarness.with { api in
      let device = #"{"userId": "ana", "provider": "fcm", "token": "fcm-token-of-anas-phone", "locale": "pt-BR"}"#
      for _ in 0..<2 {
        let answer = try await api.send("PUT", "/v1/devices", device)
        #expect(answer.status == 204)
        #expect(answer.body.isEmpty)
      }
      let row = "select string_agg(concat_ws(' ', app, user_id, provider, locale), ',') from push.devices"
      #expect(try await api.database.value(row) == "porteiro ana fcm pt-BR")
      _ = try await api.send("PUT", "/v1/devices", device.replacingOccurrences(of: "ana\"", with: "bob\""))
      #expect(try await api.database.value(row) == "porteiro bob fcm pt-BR")
      let printed = device.replacing("fcm-token-of-anas-phone", with: " fcm-token-of-anas-phone\\n")
      #expect(try await api.send("PUT", "/v1/devices", printed).status == 204)
      for blanks in ["\\t", ""] {
        let token = #"{"provider": "fcm", "token": "fcm-token-of-anas-phone\#(blanks)"}"#
        #expect(try await api.send("DELETE", "/v1/devices", token).status == 204)
      }
      #expect(try await api.database.value("select count(*) from push.devices") == "0")
    }
  }

  @Test func `a login switches notifications on, and a new token of the phone leaves the switch as it is`() async throws
  {
    try await APIHarness.with { api in
      func register(_ more: String) async throws {
        let device = #"{"userId": "ana", "provider": "fcm", "token": "fcm-token-of-anas-phone"\#(more)}"#
        #expect(try await api.send("PUT", "/v1/devices", device).status == 204)
      }
      let enabled = "select enabled from push.devices"
      try await register("")
      #expect(try await api.database.value(enabled) == "true")
      try await register(#", "enabled": false"#)
      #expect(try await api.database.value(enabled) == "false")
      try await register("")
      #expect(try await api.database.value(enabled) == "false")
      try await register(#", "enabled": true"#)
      #expect(try await api.database.value(enabled) == "true")
      let bad = #"{"userId": "ana", "provider": "fcm", "token": "fcm-token-of-anas-phone", "enabled": "no"}"#
      #expect(try await api.send("PUT", "/v1/devices", bad).field == "enabled")
    }
  }

  @Test func `a browser is registered and dropped by its subscription, as an object or as text`() async throws {
    try await APIHarness.with { api in
      let keys =
        #""keys": {"p256dh": "B\#(String(repeating: "P", count: 85))8", "auth": "\#(String(repeating: "s", count: 21))Q"}"#
      let object = #"{"endpoint": "https://push.example/x", "expirationTime": null, \#(keys)}"#
      let text = String(decoding: try JSONEncoder().encode(object), as: UTF8.self)
      for token in [object, text] {
        let device = #"{"userId": "ana", "provider": "webpush", "token": \#(token)}"#
        #expect(try await api.send("PUT", "/v1/devices", device).status == 204)
      }
      let row = "select string_agg(concat_ws(' ', user_id, provider, platform, length(token)), ',') from push.devices"
      #expect(try await api.database.value(row) == "ana webpush web 145")
      for bad in [object.replacingOccurrences(of: "https:", with: "http:"), "{}", "7", #""secret""#] {
        let answer = try await api.send(
          "PUT", "/v1/devices", #"{"userId": "u", "provider": "webpush", "token": \#(bad)}"#)
        #expect(answer.status == 422)
        #expect(!answer.body.contains("secret"))
      }
      #expect(
        try await api.send("DELETE", "/v1/devices", #"{"provider": "webpush", "token": \#(object)}"#).status == 204)
      #expect(try await api.database.value("select count(*) from push.devices") == "0")
    }
  }

  @Test func `a client that sends requests without waiting gets a few answers, and is disconnected`() async throws {
    try await APIHarness.with { api in
      let socket = try TestSocket(port: api.port)
      defer { socket.close() }
      let requests = String(repeating: "GET / HTTP/1.1\r\nHost: api\r\n\r\n", count: 1_000)
      let answers = String(decoding: await socket.exchange(Array(requests.utf8)), as: UTF8.self)
      #expect(answers.components(separatedBy: "HTTP/1.1 404").count < 100)
      #expect(try await api.send("POST", "/v1/calls", APIHarness.call).status == 202)
    }
  }

  @Test func `a connection carries one request after another, and several at once in order`() async throws {
    try await APIHarness.with { api in
      let socket = try TestSocket(port: api.port)
      defer { socket.close() }
      let head = "GET /v1/calls/none HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer \(api.key)\r\n"
      for _ in 0..<3 {
        #expect(APIAnswer(await socket.ask(Array("\(head)\r\n".utf8))).status == 404)
      }
      let pipelined = "\(head)\r\nGET /v2 HTTP/1.1\r\nHost: api\r\nConnection: close\r\n\r\n"
      let answers = String(decoding: await socket.exchange(Array(pipelined.utf8)), as: UTF8.self)
      let first = try #require(answers.firstRange(of: "unknown-call"))
      let second = try #require(answers.firstRange(of: "not-found"))
      #expect(first.lowerBound < second.lowerBound)
    }
  }

  @Test func `an unknown path or method is refused with a reason`() async throws {
    try await APIHarness.with { api in
      for path in [
        "/", "/v1", "/v1/calls/", "/v1/calls/c1/", "/v1/calls/c1/hang", "/v1/devices/x", "/v1/calls/%zz",
        "/v1/calls/%00", "/v1/calls/%ff", "/v2/calls", "/livez",
      ] {
        let answer = try await api.send("GET", path)
        #expect(answer.status == 404, "\(path)")
        #expect(answer.problem == "not-found")
        #expect(answer.headers["content-type"] == "application/problem+json")
      }
      for (path, allow) in [
        ("/v1/calls", "POST"), ("/v1/calls/c1", "GET"), ("/v1/calls/c1/end", "POST"), ("/v1/devices", "DELETE, PUT"),
      ] {
        let answer = try await api.send("PATCH", path)
        #expect(answer.status == 405, "\(path)")
        #expect(answer.headers["allow"] == allow)
      }
    }
  }
}
