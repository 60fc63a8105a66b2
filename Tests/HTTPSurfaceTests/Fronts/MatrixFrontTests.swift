// Matrix's Push Gateway API over HTTP: what homeservers are answered, and what is in the outbox afterwards.

import Foundation
import HTTPSurfaceTestSupport
import TestSupport
import Testing

@testable import HTTPSurface
@testable import Settings

@Suite(.timeLimit(.minutes(10)))
struct MatrixFrontTests {
  private static let path = "/_matrix/push/v1/notify"

  private static var apps: APIApps {
    APIApps(ids: [
      "porteiro": MatrixAppIDs(
        patterns: [
          .voip: [MatrixAppIDs.Pattern("com.example.app.ios.voip")!],
          .apns: [MatrixAppIDs.Pattern("com.example.app.ios")!],
          .fcm: [MatrixAppIDs.Pattern("com.example.app.android*")!],
        ]),
      "unserved": MatrixAppIDs(patterns: [.fcm: [MatrixAppIDs.Pattern("com.example.unserved")!]]),
    ])
  }

  private static func with(
    _ networks: String = "127.0.0.1", adjust: (inout GatewayConfiguration.API) -> Void = { _ in },
    _ body: (APIHarness) async throws -> Void
  ) async throws {
    try await APIHarness.with(
      adjust: {
        $0.matrixNetworks = networks.split(separator: " ").compactMap { IPRange($0) }
        adjust(&$0)
      }, apiApps: apps, body)
  }

  private static func notify(
    _ api: APIHarness, _ body: String, headers: [String] = [], from host: String = "127.0.0.1"
  ) async throws -> APIAnswer {
    try await api.send("POST", path, body, key: "", headers: headers, from: host)
  }

  private static func outbox(_ api: APIHarness) async throws -> String {
    try await api.database.value(
      "select coalesce(string_agg(concat_ws(' ', kind, state, ring_seconds), ',' order by id), '') from push.outbox")
  }

  @Test func `an invite rings once, however often the homeserver sends it`() async throws {
    try await Self.with { api in
      for _ in 0..<3 {
        let answer = try await Self.notify(api, HomeserverRequest().json)
        #expect(answer.status == 200, "\(answer)")
        #expect(answer.body == #"{"rejected":[]}"#)
        #expect(answer.headers["content-type"] == "application/json")
      }
      #expect(try await Self.outbox(api) == "incoming_call ringing 60")
      #expect(try await api.database.value("select count(*) from push.delivery") == "1")
      #expect(api.counters.snapshot.requests(.notifyMatrix, 200) == 3)
    }
  }

  @Test func `each phone of a call rings, and each message is shown on each phone once`() async throws {
    try await Self.with { api in
      let message = HomeserverRequest { $0.type = "m.room.message" }
      for key in ["first-phone-0123456789", "second-phone-0123456789"] {
        for request in [HomeserverRequest(), message, message] {
          var request = request
          request.pushKey = key
          let answer = try await Self.notify(api, request.json)
          #expect(answer.status == 200)
        }
      }
      #expect(
        try await Self.outbox(api)
          == "incoming_call ringing 60,message ended 14400,incoming_call ringing 60,message ended 14400")
    }
  }

  @Test func `an iPhone's VoIP pusher rings with the token that Apple knows`() async throws {
    try await Self.with { api in
      var request = HomeserverRequest()
      (request.appID, request.pushKey) = ("com.example.app.ios.voip", HomeserverRequest.appleKey)
      let rung = try await Self.notify(api, request.json)
      #expect(rung.status == 200)
      (request.appID, request.type) = ("com.example.app.ios", "m.room.message")
      request.pushKey = "zc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc0="
      #expect(try await Self.notify(api, request.json).status == 200)
      #expect(
        try await api.database.value(
          "select string_agg(concat_ws(' ', o.kind, left(d.token, 4), l.provider), ',' order by o.id) from push.delivery d "
            + "join push.outbox o on o.id = d.outbox_id join push.lane l on l.id = d.lane")
          == "incoming_call abab apns,message cdcd apns")
    }
  }

  @Test func `a token that a provider called dead is rejected, until its phone sets the pusher again`() async throws {
    try await Self.with { api in
      try await api.database.execute(
        "insert into push.token_invalidations (app, provider, token, reason, invalidated_at) values "
          + "('porteiro', 'fcm', '\(HomeserverRequest.androidKey)', 'UNREGISTERED', to_timestamp(1700000100))")
      let dead = try await Self.notify(api, HomeserverRequest().json)
      #expect(dead.status == 200)
      #expect(dead.json["rejected"] as? [String] == [HomeserverRequest.androidKey])
      #expect(
        try await Self.notify(api, HomeserverRequest().badge).json["rejected"] as? [String] == [
          HomeserverRequest.androidKey
        ])
      #expect(try await Self.outbox(api) == "")
      let again = try await Self.notify(api, HomeserverRequest { $0.setAt = 1_700_000_200 }.json)
      #expect(again.body == #"{"rejected":[]}"#)
      #expect(try await Self.outbox(api) == "incoming_call ringing 60")
    }
  }

  @Test func `a pusher that the configuration does not explain is never rejected, and the others ring`() async throws {
    try await Self.with { api in
      let unknown = try await Self.notify(api, HomeserverRequest { $0.appID = "com.example.typo" }.json)
      #expect(unknown.status == 404)
      #expect(unknown.json["errcode"] as? String == "M_NOT_FOUND")
      #expect((unknown.json["error"] as? String)?.contains("notification.devices[0].app_id") == true)
      let malformed = try await Self.notify(api, HomeserverRequest { $0.pushKey = "short" }.json)
      #expect(malformed.status == 422)
      #expect(!malformed.body.contains("short"))
      let unserved = try await Self.notify(api, HomeserverRequest { $0.appID = "com.example.unserved" }.json)
      #expect(unserved.status == 503, "\(unserved)")
      #expect(unserved.headers["retry-after"] != nil)
      #expect(unserved.json["retry_after_ms"] as? Int == 5000)
      for answer in [unknown, malformed, unserved] { #expect(answer.json["rejected"] == nil) }
      let both = HomeserverRequest().json.replacing(
        #""devices":["#, with: #""devices":[{"app_id":"com.example.typo","pushkey":"x"},"#)
      #expect(try await Self.notify(api, both).status == 404)
      #expect(try await Self.outbox(api) == "incoming_call ringing 60")
    }
  }

  @Test func `a call is answered, declined and hung up by its events, and missed calls are not announced`() async throws
  {
    try await Self.with { api in
      for (index, type) in ["m.call.select_answer", "m.call.reject", "m.call.hangup"].enumerated() {
        let call = #"{"call_id":"call-\#(index)"}"#
        func event(_ type: String) -> String {
          HomeserverRequest {
            $0.type = type
            $0.content = call
            $0.eventID = "$\(type)-\(index)"
          }.json
        }
        #expect(try await Self.notify(api, event(type)).status == 200, "an unknown call")
        #expect(try await Self.notify(api, event("m.call.invite")).status == 200)
        for _ in 0..<2 { #expect(try await Self.notify(api, event(type)).status == 200) }
      }
      _ = try await Self.notify(api, HomeserverRequest().json)
      try await api.database.followUp()
      try await api.database.execute("update push.outbox set state = 'missed' where state = 'ringing'")
      #expect(
        try await api.database.value(
          "select string_agg(concat_ws(' ', state, end_reason), ',' order by id) from push.outbox")
          == "answered answered,ended declined,ended ended,missed missed")
      #expect(try await api.database.value("select count(*) from push.delivery where kind = 2") == "0")
    }
  }

  @Test func `the text of a message is nowhere in the database`() async throws {
    try await Self.with { api in
      let message = try await Self.notify(api, HomeserverRequest.specification)
      #expect(message.status == 200)
      let call = HomeserverRequest { $0.content = #"{"call_id":"x","body":"peculiar","offer":{"sdp":"peculiar"}}"# }
      #expect(try await Self.notify(api, call.json).status == 200)
      #expect(try await Self.outbox(api) == "message ended 14400,incoming_call ringing 60")
      #expect(
        try await api.database.value(
          "select (select string_agg(o::text, '') from push.outbox o) || (select string_agg(d::text, '') from push.delivery d) ~ 'peculiar'"
        )
          == "false")
    }
  }

  @Test func `counts alone are accepted, and nothing is sent`() async throws {
    try await Self.with { api in
      let answer = try await Self.notify(api, HomeserverRequest().badge)
      #expect(answer.body == #"{"rejected":[]}"#)
      #expect(try await Self.outbox(api) == "")
    }
  }

  @Test func `the path is off unless networks are given, and others may not use it`() async throws {
    try await APIHarness.with(apiApps: Self.apps) { api in
      let off = try await Self.notify(api, HomeserverRequest().json)
      #expect(off.status == 404)
      #expect(off.headers["content-type"] == "application/json")
      #expect(off.json["errcode"] as? String == "M_UNRECOGNIZED")
      let keyed = try await api.send("POST", Self.path, HomeserverRequest().json)
      #expect(keyed.status == 404)
      #expect(keyed.json["errcode"] as? String == "M_UNRECOGNIZED")
    }
    try await Self.with("127.0.0.2 10.0.0.0/8") { api in
      let refused = try await Self.notify(api, HomeserverRequest().json)
      #expect(refused.status == 403)
      #expect(refused.json["errcode"] as? String == "M_FORBIDDEN")
      let keyed = try await api.send("POST", Self.path, HomeserverRequest().json)
      #expect(keyed.status == 403, "a key does not open this path")
      #expect(
        try await Self.notify(api, HomeserverRequest().json, headers: ["X-Forwarded-For: 10.0.0.1"]).status == 403)
      let browser = try await Self.notify(
        api, HomeserverRequest().json, headers: ["Origin: https://evil.example"], from: "127.0.0.2")
      #expect(browser.status == 403)
      #expect((browser.json["error"] as? String)?.contains("Origin") == true)
      #expect((refused.json["error"] as? String)?.contains("address") == true)
      #expect(try await Self.outbox(api) == "")
      #expect(try await Self.notify(api, HomeserverRequest().json, from: "127.0.0.2").status == 200)
      #expect(api.counters.snapshot.refusals[.network] == 4)
      let wrong = try await api.send("GET", Self.path, key: "")
      #expect(wrong.status == 405)
      #expect(wrong.json["errcode"] as? String == "M_UNRECOGNIZED")
    }
  }

  @Test func `each peer has the rate of a key`() async throws {
    try await Self.with("127.0.0.0/8", adjust: { $0.ratePerSecond = 1 }) { api in
      let statuses = try await withThrowingTaskGroup(of: Int.self) { group in
        for _ in 0..<10 { group.addTask { try await Self.notify(api, HomeserverRequest().badge).status } }
        return try await group.reduce(into: Set<Int>()) { $0.insert($1) }
      }
      #expect(statuses == [200, 429])
      #expect(try await Self.notify(api, HomeserverRequest().badge, from: "127.0.0.2").status == 200)
    }
  }

  @Test func `large events are accepted, and 5 MB are not`() async throws {
    try await Self.with { api in
      let large = HomeserverRequest { $0.content = #"{"body":"\#(String(repeating: "x", count: 400_000))"}"# }
      #expect(try await Self.notify(api, large.json).status == 200)
      let huge = HomeserverRequest { $0.content = #"{"body":"\#(String(repeating: "x", count: 5_000_000))"}"# }
      let refused = try await Self.notify(api, huge.json)
      #expect(refused.status == 413)
      #expect(refused.headers["content-type"] == "application/json")
      #expect(refused.json["errcode"] as? String == "M_TOO_LARGE")
      let other = try await api.send("POST", "/v1/calls", String(repeating: " ", count: 70_000))
      #expect(other.status == 413, "the limit of the other paths stays")
      #expect(other.problem == "body-too-large")
      let otherHuge = try await api.send("POST", "/v1/calls", String(repeating: " ", count: 5_000_000))
      #expect(otherHuge.problem == "body-too-large", "and so does the form of their errors")
    }
  }

  @Test func `no member of a room can cause an error`() async throws {
    try await Self.with { api in
      let deep = String(repeating: "[", count: 5_000) + String(repeating: "]", count: 5_000)
      for content in [deep, #"{"x":1e999999}"#, #"{"\u0000":"\ud800"}"#, #"{"call_id":"\u0000"}"#, "7", "null"] {
        for type in ["m.call.invite", "m.room.message", #"\u0000"#, ""] {
          let request = HomeserverRequest {
            $0.content = content
            $0.type = type
            $0.sender = #"@\ud800\"\u0000"#
          }
          let answer = try await Self.notify(api, request.json)
          #expect(answer.status == 200, "\(type) \(content.prefix(30)): \(answer)")
        }
      }
    }
  }

  @Test func `what is no notification is refused in Matrix's form`() async throws {
    try await Self.with { api in
      for (body, code) in [
        ("{", "M_NOT_JSON"), ("[]", "M_BAD_JSON"), ("", "M_NOT_JSON"),
        (#"{"notification":{"devices":[]}}"#, "M_BAD_JSON"),
      ] {
        let answer = try await Self.notify(api, body)
        #expect(answer.status == 400, "\(body): \(answer)")
        #expect(answer.json["errcode"] as? String == code)
      }
    }
  }

  @Test func `while calls wait too long, the homeserver is asked to try again`() async throws {
    try await Self.with(adjust: { $0.busyAfterSeconds = 1 }) { api in
      #expect(try await Self.notify(api, HomeserverRequest().json).status == 200)
      let busy = try await api.eventually(
        {
          try await Self.notify(
            api, HomeserverRequest { $0.content = HomeserverRequest.invite(UUID().uuidString) }.json)
        }, until: { $0.status == 503 })
      #expect(busy.status == 503)
      #expect(busy.json["errcode"] as? String == "M_UNKNOWN")
    }
  }
}
