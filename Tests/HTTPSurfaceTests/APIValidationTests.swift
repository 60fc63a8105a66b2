// What the HTTP API refuses in bodies, by field. SQL in a field is treated like any other text.

import HTTPSurfaceTestSupport
import Foundation
import TestSupport
import Testing

@testable import HTTPSurface

@Suite(.timeLimit(.minutes(10)))
struct APIValidationTests {
  /// Operation, body, and the field that is invalid.
  private static let bodies: [(String, String, String)] = [
    ("POST /v1/calls", "{}", "payload"),
    ("POST /v1/calls", "[]", "body"),
    ("POST /v1/calls", #"{"payload": [], "recipients": []}"#, "payload"),
    ("POST /v1/calls", #"{"payload": {"callId": "c", "from": "a"}}"#, "recipients"),
    ("POST /v1/calls", #"{"payload": {"callId": "c", "from": "a"}, "recipients": {}}"#, "recipients"),
    ("POST /v1/calls", #"{"payload": {"from": "a"}, "recipients": []}"#, "payload.callId"),
    ("POST /v1/calls", #"{"payload": {"callId": 5, "from": "a"}, "recipients": []}"#, "payload.callId"),
    ("POST /v1/calls", #"{"payload": {"callId": "c"}, "recipients": []}"#, "payload.from"),
    (
      "POST /v1/calls", #"{"payload": {"callId": "c", "from": "a", "fromName": {}}, "recipients": []}"#,
      "payload.fromName"
    ),
    (
      "POST /v1/calls", #"{"payload": {"callId": "c", "from": "a", "metadata": 1}, "recipients": []}"#,
      "payload.metadata"
    ),
    ("POST /v1/calls", #"{"payload": {"callId": "c", "from": "a"}, "recipients": [], "kind": "fax"}"#, "kind"),
    ("POST /v1/calls", #"{"payload": {"callId": "c", "from": "a"}, "recipients": [], "kind": 5}"#, "kind"),
    (
      "POST /v1/calls", #"{"payload": {"callId": "c", "from": "a"}, "recipients": [], "ringSeconds": 601}"#,
      "ringSeconds"
    ),
    (
      "POST /v1/calls", #"{"payload": {"callId": "c", "from": "a"}, "recipients": [], "ringSeconds": "9"}"#,
      "ringSeconds"
    ),
    (
      "POST /v1/calls", #"{"payload": {"callId": "c", "from": "a"}, "recipients": [], "ringSeconds": 1e99}"#,
      "ringSeconds"
    ),
    ("POST /v1/calls", #"{"payload": {"callId": "c", "from": "a"}, "recipients": [], "app": "other"}"#, "body"),
    (
      "POST /v1/calls",
      #"{"payload": {"from": "a", "chatId": "k", "metadata": {"Body": "x"}}, "recipients": [], "kind": "message"}"#,
      "payload.metadata.Body"
    ),
    ("POST /v1/calls", #"{"payload": {"callId": "\u0000", "from": "a"}, "recipients": []}"#, "payload.callId"),
    ("POST /v1/calls", #"{"payload": {"callId": "c", "from": "\ud800"}, "recipients": []}"#, "payload.from"),
    ("POST /v1/calls", #"{"payload": {"callId": "c", "from": "\udc00\ud800"}, "recipients": []}"#, "payload.from"),
    ("POST /v1/calls", #"{"payload": {"callId": "c", "from": "a", "secret\u0000": 1}, "recipients": []}"#, "payload"),
    ("POST /v1/calls", #"{"payload": {"callId": "c", "from": "a"}, "recipients": ["b", "\u0000"]}"#, "recipients[1]"),
    (
      "POST /v1/calls", #"{"payload": {"callId": "c", "from": "a", "metadata": {"n": [1e131071]}}, "recipients": []}"#,
      "payload.metadata[0]"
    ),
    (
      "POST /v1/calls",
      #"{"payload": {"callId": "c", "from": "a", "channelName": \#(String(repeating: "9", count: 400))}, "recipients": []}"#,
      "payload.channelName"
    ),
    (
      "POST /v1/calls",
      #"{"payload": {"callId": "c", "from": "a", "fromName": "\#(String(repeating: "x", count: 20_000))"}, "recipients": []}"#,
      "payload"
    ),
    (
      "POST /v1/calls",
      #"{"payload": {"callId": "c", "from": "a"}, "recipients": [\#(Array(repeating: "1", count: 1001).joined(separator: ","))]}"#,
      "recipients"
    ),
    ("POST /v1/calls/c1/answer", #"{"userId": ""}"#, "userId"),
    ("POST /v1/calls/c1/answer", #"{"user": "ana"}"#, "body"),
    ("POST /v1/calls/c1/answer", #"{"userId": "\#(String(repeating: "u", count: 257))"}"#, "userId"),
    ("POST /v1/calls/c1/answer", #"{"userId": "ana", "device": "x"}"#, "device"),
    ("POST /v1/calls/c1/answer", #"{"userId": "ana", "device": "xxxxx\\x41xxxxxxxxxxxxxxxxxx"}"#, "device"),
    ("POST /v1/calls/c1/answer", #"{"userId": "ana", "device": 17}"#, "device"),
    ("POST /v1/calls/c1/answer", #"{"userId": "ana", "device": "999999999"}"#, "device"),
    ("POST /v1/calls/c1/decline", "{}", "userId"),
    ("POST /v1/calls/c1/decline", #"{"userId": "ana", "reason": "asleep"}"#, "reason"),
    ("POST /v1/calls/c1/decline", #"{"userId": "ana", "device": "x"}"#, "device"),
    ("POST /v1/calls/c1/end", #"{"reason": 1}"#, "reason"),
    ("POST /v1/calls/c1/end", #"{"reason": "\#(String(repeating: "r", count: 65))"}"#, "reason"),
    ("POST /v1/calls/c1/end", "null", "body"),
    ("POST /v1/calls/c1/ringing", "{}", "userId"),
    ("PUT /v1/devices", "{}", "userId"),
    ("PUT /v1/devices", #"{"userId": "u", "token": "x"}"#, "provider"),
    ("PUT /v1/devices", #"{"userId": "u", "provider": "sms", "token": "xxxxxxxxxxxxxxxxxxxxxxxx"}"#, "provider"),
    ("PUT /v1/devices", #"{"userId": "u", "provider": "fcm"}"#, "token"),
    ("PUT /v1/devices", #"{"userId": "u", "provider": "fcm", "token": "short"}"#, "token"),
    ("PUT /v1/devices", #"{"userId": "u", "provider": "fcm", "token": "xxxxxxxxxxxxxxx\\xff"}"#, "token"),
    (
      "PUT /v1/devices", #"{"userId": "u", "provider": "fcm", "token": "xxxxxxxxxxxxxxxxxxxxxx", "platform": "tv"}"#,
      "platform"
    ),
    (
      "PUT /v1/devices", #"{"userId": "u", "provider": "fcm", "token": "xxxxxxxxxxxxxxxxxxxxxx", "environment": "x"}"#,
      "environment"
    ),
    ("PUT /v1/devices", #"{"userId": "u", "provider": "fcm", "token": "xxxxxxxxxxxxxxxxxxxxxx", "voip": 1}"#, "voip"),
    ("DELETE /v1/devices", #"{"provider": "fcm"}"#, "token"),
    ("DELETE /v1/devices", #"{"provider": "f", "token": "xxxxxxxxxxxxxxxxxxxxxx"}"#, "provider"),
    ("DELETE /v1/devices", #"{"provider": "fcm", "token": "\\x4"}"#, "token"),
  ]

  @Test func `a bad body changes nothing, and the answer names the member`() async throws {
    try await APIHarness.with { api in
      _ = try await api.send("POST", "/v1/calls", APIHarness.call)
      for (operation, body, field) in Self.bodies {
        let words = operation.split(separator: " ").map(String.init)
        let answer = try await api.send(words[0], words[1], body)
        #expect(answer.status == 422, "\(operation) \(body.prefix(120)): \(answer)")
        #expect(answer.field == field, "\(operation) \(body.prefix(120)): \(answer)")
        #expect(answer.headers["content-type"] == "application/problem+json")
        #expect(!answer.body.contains("xxxxx"))
      }
      #expect(try await api.database.value("select string_agg(call_id || state, ',') from push.outbox") == "c1ringing")
      #expect(try await api.database.value("select count(*) from push.devices") == "0")
    }
  }

  @Test func `a body that is not JSON is refused, and so is one with another Content-Type`() async throws {
    try await APIHarness.with { api in
      let deep = String(repeating: "[", count: 5000)
      for body in ["{", "{]", "nul", #"{"payload": \#u{1}}"#, deep] {
        let answer = try await api.send("POST", "/v1/calls", body)
        #expect(answer.status == 400, "\(body.prefix(20)): \(answer)")
        #expect(answer.problem == "malformed-body")
      }
      for type in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""] {
        #expect(try await api.send("POST", "/v1/calls", APIHarness.call, type: type).status == 415)
      }
      let encoded = try await api.send("POST", "/v1/calls", APIHarness.call, headers: ["Content-Encoding: gzip"])
      #expect(encoded.status == 415 && encoded.body.contains("Content-Encoding"), "\(encoded)")
      let answer = try await api.send("POST", "/v1/calls", APIHarness.call, type: "Application/JSON; charset=utf-8")
      #expect(answer.status == 202)
      let marked = try await api.send(
        "POST", "/v1/calls", "\u{FEFF}" + APIHarness.call("marked"), headers: ["Content-Encoding: identity"])
      #expect(marked.status == 202, "\(marked)")
    }
  }

  @Test func `a body that is compressed or no UTF-8 is named as such, whatever its head says`() async throws {
    try await APIHarness.with { api in
      func send(_ body: [UInt8], _ field: String = "X-None: x") async throws -> APIAnswer {
        let head = """
          POST /v1/calls HTTP/1.1\r\nHost: api\r\nConnection: close\r\nAuthorization: Bearer  \(api.key)\r
          Content-Type: application/json\r\n\(field)\r\nContent-Length: \(body.count)\r\n\r\n
          """
        return try await api.send(raw: Array(head.utf8) + body)
      }
      let little = APIHarness.call.utf16.flatMap { [UInt8($0 & 0xFF), UInt8($0 >> 8)] }
      let big = APIHarness.call.utf16.flatMap { [UInt8($0 >> 8), UInt8($0 & 0xFF)] }
      for (body, word) in [
        ([0x1F, 0x8B, 0x08, 0x00], "compressed"), (little, "UTF-8"), (big, "UTF-8"), ([0xFF, 0xFE] + little, "UTF-8"),
        ([0xFE, 0xFF] + big, "UTF-8"),
      ] {
        let answer = try await send(body)
        #expect(answer.status == 415 && answer.body.contains(word), "\(answer)")
      }
      let plain = try await send(Array(APIHarness.call.utf8), "Content-Encoding:")
      #expect(plain.status == 202, "a field without a value says nothing: \(plain)")
    }
  }

  @Test(arguments: [
    "'; drop table push.outbox cascade; --", "' or '1'='1", "\\'; delete from push.devices; --", "$$; rollback; --",
    "c1') ; update push.outbox set state = 'ended' --", "%", "_", "\\x00", "c1\\", "{\"$ne\": null}",
  ])
  func `SQL in a field is a text like any other`(_ text: String) async throws {
    try await APIHarness.with { api in
      _ = try await api.send("POST", "/v1/calls", APIHarness.call)
      let data = try JSONSerialization.data(withJSONObject: [text])
      let quoted = String(decoding: data, as: UTF8.self).dropFirst().dropLast()
      let escaped = APIRoute.path(ofCall: text)
      let requests: [(String, String, String)] = [
        ("POST", "\(escaped)/answer", "{}"), ("POST", "\(escaped)/end", "{}"),
        ("POST", "\(escaped)/ringing", #"{"userId": "ana"}"#), ("GET", escaped, ""),
        ("POST", "/v1/calls/c1/ringing", "{\"userId\": \(quoted)}"),
        ("PUT", "/v1/devices", "{\"userId\": \(quoted), \"provider\": \"fcm\", \"token\": \(quoted)}"),
        ("PUT", "/v1/devices", "{\"userId\": \"u\", \"provider\": \(quoted), \"token\": \"a-token-of-some-phone\"}"),
        ("DELETE", "/v1/devices", "{\"provider\": \"fcm\", \"token\": \(quoted)}"),
        ("DELETE", "/v1/devices", "{\"provider\": \(quoted), \"token\": \"x\"}"),
        (
          "POST", "/v1/calls",
          "{\"payload\": {\"callId\": \"k\", \"from\": \"a\"}, \"recipients\": [], \"kind\": \(quoted)}"
        ),
      ]
      for (method, path, body) in requests {
        let answer = try await api.send(method, path, body.isEmpty ? nil : body)
        #expect([204, 404, 409, 422].contains(answer.status), "\(method) \(path): \(answer)")
      }
      #expect(try await api.send("GET", "/v1/calls/c1", key: "pgk_1_\(text)").status == 401)
      let stored = """
        {"payload": {"callId": \(quoted), "from": \(quoted), "fromName": \(quoted), "metadata": {\(quoted): \(quoted)}},
         "recipients": [\(quoted), {"userId": \(quoted), "locale": \(quoted)}]}
        """
      #expect(try await api.send("POST", "/v1/calls", stored).status == 202)
      #expect(try await api.send("GET", escaped).json["callId"] as? String == text)
      #expect(try await api.send("POST", "\(escaped)/end", "{\"reason\": \(quoted)}").status == 200)
      #expect(
        try await api.database.value("select string_agg(state, ',' order by id) from push.outbox") == "ringing,ended")
      #expect(
        try await api.database.value("select payload ->> 'fromName' from push.outbox order by id desc limit 1") == text)
      #expect(try await api.database.value("select count(*) from push.devices") == "0")
    }
  }

  @Test(arguments: [
    ("fromName", "has the member fromName, which belongs into payload"),
    ("callId", "has the member callId, which belongs into payload"),
    ("color", "has the member color, which is not known; the members are payload, recipients, ringSeconds, kind"),
    ("ring_seconds", "has the member ring_seconds, which is not known; did you mean ringSeconds?"),
    (
      "app", "has the member app, which the key determines; leave it out"
    ),
    (
      "ExponentPushToken[secret]", "has a member of another name than payload, recipients, ringSeconds, kind"
    ),
  ])
  func `an unknown member is named, with the one that may be meant`(_ name: String, _ detail: String) async throws {
    try await APIHarness.with { api in
      let body = #"{"payload": {"callId": "c", "from": "a"}, "recipients": [], "\#(name)": 7}"#
      let answer = try await api.send("POST", "/v1/calls", body)
      #expect(answer.status == 422)
      #expect(answer.json["detail"] as? String == detail)
    }
  }
}
