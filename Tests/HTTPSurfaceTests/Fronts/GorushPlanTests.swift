// What each notification of gorush means, and which of them mean nothing here.

import Foundation
import HTTPSurfaceTestSupport
import HTTPTypes
import Runtime
import Testing

@testable import HTTPSurface

struct GorushPlanTests {
  private static let voip = String(repeating: "ab", count: 32)
  private static let android = "gorush-token-0123456789"
  private static let now: Int64 = 1_752_583_130_365

  private static func plan(_ notifications: String) throws -> GorushPlan {
    let json = try JSONScanner(Array(#"{"notifications":[\#(notifications)]}"#.utf8))
    return GorushPlan(try GorushNotification.all(of: json), in: json, at: now)
  }

  private static func one(_ members: String, _ token: String = android, platform: Int = 2) throws -> GorushPlan {
    try plan(#"{"tokens":["\#(token)"],"platform":\#(platform),\#(members)}"#)
  }

  /// What is done, or why nothing is.
  private static func word(_ plan: GorushPlan) -> String {
    let groups = plan.groups.map { group in
      switch group.action {
      case .ring(let kind): "ring \(kind) \(group.seconds.map(String.init) ?? "-")"
      case .stop: "stop"
      case .show(let kind): "show \(kind) \(group.seconds.map(String.init) ?? "-")"
      }
    }
    return (groups + plan.refused.map { String($0.error.prefix { $0 != ":" }) }).joined(separator: ",")
  }

  @Test(arguments: GorushExamples.all)
  func `a text is not a call: each token of gorush's examples is refused, with a reason`(
    _ notifications: String, _ count: Int, _ refused: Int
  ) throws {
    let plan = try Self.plan(notifications)
    #expect(plan.groups.isEmpty)
    #expect(plan.tokenCount == count)
    #expect(plan.refused.count == refused)
    #expect(plan.refused.allSatisfy { $0.error.contains(":") && !$0.error.contains("Hello") })
  }

  @Test(arguments: [
    (#""data":{"type":"incoming_call","callId":"c","from":"x"}"#, "ring incoming_call -"),
    (#""data":{"type":"intercom_call","callId":"c","from":"x"}"#, "ring incoming_call -"),
    (#""data":{"action":"incoming_call","callId":"c","from":"x"}"#, "ring incoming_call -"),
    (#""data":{"type":"video_call","callId":"c","from":"x"}"#, "ring video_call -"),
    (#""data":{"type":"incoming_call","isVideo":"true","callId":"c","from":"x"}"#, "ring video_call -"),
    (#""data":{"type":"incoming_call","isVideo":true,"callId":"c","from":"x"}"#, "ring video_call -"),
    (#""data":{"type":"intercom_call_end","callId":"c"}"#, "stop"),
    (#""data":{"type":"intercom_call","action":"call_cancelled","callId":"c"}"#, "stop"),
    (#""data":{"type":"message","chatId":"k","from":"x"}"#, "show message -"),
    (#""data":{"type":"missed_call","callId":"c","from":"x"},"title":"Missed","message":"by x""#, "show missed_call -"),
    (#""data":{"type":"missed_call","from":"x"}"#, "data.callId"),
    (#""data":{"type":"incoming_call","callId":7}"#, "data.callId"),
    (#""data":{"type":"incoming_call","callId":"c","from":"\u0000"}"#, "data.from"),
    (#""data":{"type":"incoming_call","callId":"c","x":["\u0000"]}"#, "data"),
    (#""data":{"type":"incoming_call","callId":"c","metadata":"{\"x\":\"\\u0000\"}"}"#, "data.metadata"),
    (#""data":{"type":"incoming_call","callId":"c","metadata":"{\"x\":1e100000}"}"#, "data.metadata"),
    (#""data":{"callId":"c","from":"x"}"#, "data.type"), (#""data":{}"#, "data.type"),
    (#""data":{"type":"sale","callId":"c"}"#, "data.type"),
    (#""data":{"type":"message"},"topic":"all""#, "topics and conditions are not supported"),
    (#""data":{"type":"incoming_call","callId":"c"},"dry_run":true"#, "dry_run"),
    (#""data":{"type":"incoming_call","callId":"c"},"dry_run":false"#, "ring incoming_call -"),
    (#""data":{"type":"message"},"condition":"'a' in topics""#, "topics and conditions are not supported"),
    (#""data":{"type":"incoming_call","callId":"c"},"push_type":"liveactivity""#, "push_type"),
    (#""data":{"type":"incoming_call","callId":"c"},"time_to_live":45"#, "ring incoming_call 45"),
    (#""data":{"type":"incoming_call","callId":"c"},"time_to_live":2419200"#, "ring incoming_call 600"),
    (#""data":{"type":"incoming_call","callId":"c"},"expiration":1752583160"#, "ring incoming_call 30"),
    (#""data":{"type":"incoming_call","callId":"c"},"expiration":0"#, "ring incoming_call -"),
    (#""data":{"type":"incoming_call","callId":"c"},"time_to_live":6e1"#, "ring incoming_call 60"),
    (#""data":{"type":"incoming_call","callId":"c"},"expiration":1e400"#, "ring incoming_call 600"),
    (#""data":{"type":"incoming_call","callId":"c"},"expiration":-9223372036854775808"#, "ring incoming_call -"),
    (#""data":{"type":"incoming_call","callId":"c"},"expiration":1752583130"#, "expiration"),
  ])
  func `on Android, data decides`(_ members: String, _ expected: String) throws {
    #expect(Self.word(try Self.one(members)) == expected)
  }

  @Test(arguments: [
    (#""push_type":"voip","data":{"callId":"c","from":"x"}"#, "ring incoming_call -"),
    (#""topic":"com.example.app.voip","data":{"callId":"c","from":"x"}"#, "ring incoming_call -"),
    (#""push_type":"voip","data":{"type":"video_call","callId":"c","from":"x"}"#, "ring video_call -"),
    (#""push_type":"voip","data":{"action":"call_cancelled","callId":"c"}"#, "stop"),
    (#""push_type":"voip","data":{"type":"call_ended","callId":"c","from":"x"}"#, "data.type"),
    (#""push_type":"voip","data":{"action":"hang_up","callId":"c","from":"x"}"#, "data.type"),
    (#""push_type":"voip","data":{"type":"call","action":"incoming_call","callId":"c"}"#, "ring incoming_call -"),
    (#""data":{"type":"incoming_call","callId":"c"}"#, "push_type"),
    (#""push_type":"alert","data":{"action":"call_cancelled","callId":"c"}"#, "push_type"),
    (#""push_type":"voip","data":{"type":"message","chatId":"k"}"#, "push_type"),
    (#""topic":"com.example.app","data":{"type":"message","chatId":"k","from":"x"}"#, "show message -"),
    (#""push_type":"voip","message":"Hello""#, "data.type"),
  ])
  func `an iPhone rings only by a VoIP token`(_ members: String, _ expected: String) throws {
    #expect(Self.word(try Self.one(members, Self.voip, platform: 1)) == expected)
  }

  @Test func `the notifications of one call are one call, with every token once`() throws {
    let plan = try Self.plan(
      #"""
      {"tokens":["\#(Self.voip)"],"platform":1,"push_type":"voip","development":true,"data":{"type":"incoming_call","callId":"c","from":"x"}},
      {"tokens":["\#(Self.android)","\#(Self.android)"],"to":"another-token-0123456789","platform":2,"data":{"type":"video_call","callId":"c","from":"y"}},
      {"tokens":["\#(Self.android)"],"platform":2,"data":{"type":"incoming_call","callId":"d","from":"x"}},
      {"tokens":["\#(Self.android)"],"platform":2,"data":{"type":"intercom_call_end","callId":"c"}}
      """#)
    #expect(Self.word(plan) == "ring incoming_call -,ring incoming_call -,stop")
    #expect(plan.groups.map(\.phones.count) == [3, 1, 1])
    #expect(plan.groups.map(\.mentions.count) == [4, 1, 1])
    #expect(plan.groups[0].phones.map(\.entry.isSandbox) == [true, false, false])
    #expect(plan.groups[0].phones.map(\.notification) == [0, 1, 1])
    #expect(String(decoding: plan.groups[0].payload, as: UTF8.self) == #"{"callId":"c","from":"x"}"#)
  }

  @Test func `the end of a call is never too late, and a call is`() throws {
    let past = #""expiration":1,"data":{"callId":"c","from":"x","type":"#
    #expect(Self.word(try Self.one(past + #""incoming_call"}"#)) == "expiration")
    #expect(Self.word(try Self.one(past + #""intercom_call_end"}"#)) == "stop")
  }

  @Test func `an APNs token is the same in upper and in lower case, and an FCM token is not`() throws {
    let data = #""push_type":"voip","data":{"type":"incoming_call","callId":"c","from":"x"}"#
    let users = try [Self.voip, Self.voip.uppercased()].map {
      try Self.one(data, $0, platform: 1).groups[0].phones[0].entry.userID
    }
    #expect(users[0] == users[1])
    let others = try [Self.android, Self.android.uppercased()].map {
      try Self.one(data, $0).groups[0].phones[0].entry.userID
    }
    #expect(others[0] != others[1])
  }

  @Test func `the payload is the data without what dialects write, and metadata given as a text is an object again`()
    throws
  {
    let plan = try Self.one(
      #"""
      "data":{"type":"intercom_call","action":"incoming_call","callId":"c","fromId":"x","isVoip":true,"timestamp":"1","expiresAt":2,"seq":3,
      "metadata":"{\"schemaVersion\":1}","doorCode":"A1","apartmentNumber":"42"}
      """#)
    #expect(
      String(decoding: plan.groups[0].payload, as: UTF8.self)
        == #"{"callId":"c","fromId":"x","metadata":{"schemaVersion":1},"doorCode":"A1","apartmentNumber":"42","from":"x"}"#
    )
  }

  @Test func `a missed call is not taken for a repetition of its call`() throws {
    let plan = try Self.one(#""data":{"type":"missed_call","callId":"c","from":"x"}"#)
    let id = try #require(plan.groups[0].id)
    #expect(UUID(uuidString: id) != nil)
    #expect(String(decoding: plan.groups[0].payload, as: UTF8.self) == #"{"callId":"\#(id)","from":"x"}"#)
  }

  @Test func `a message about a call is not taken for a repetition of the call`() throws {
    let plan = try Self.one(#""data":{"type":"message","messageId":"m","callId":"c","chatId":"k","from":"x"}"#)
    #expect(plan.groups[0].id == "m")
    #expect(String(decoding: plan.groups[0].payload, as: UTF8.self) == #"{"messageId":"m","chatId":"k","from":"x"}"#)
    let without = try Self.one(#""data":{"type":"message","callId":"c","chatId":"k","from":"x"}"#)
    #expect(without.groups[0].id == "c")
    #expect(String(decoding: without.groups[0].payload, as: UTF8.self) == #"{"callId":"c","chatId":"k","from":"x"}"#)
  }

  @Test(arguments: [
    ("short", 2, "InvalidRegistration"), ("short", 1, "BadDeviceToken"), ("\\u0000", 2, "InvalidRegistration"),
  ])
  func `a token of another form is refused, in the provider's word`(
    _ token: String, _ platform: Int, _ expected: String
  ) throws {
    let plan = try Self.one(
      #""push_type":"voip","data":{"type":"incoming_call","callId":"c","from":"x"}"#, token, platform: platform)
    #expect(plan.refused.map(\.error) == [expected])
    #expect(plan.groups.flatMap(\.phones).isEmpty)
  }

  @Test(arguments: [
    ("{}", "Missing notifications field."), (#"{"notifications":{}}"#, "Missing notifications field."),
    (#"{"notifications":[]}"#, "Notifications field is empty."),
    (#"{"notifications":[7]}"#, "notifications[0] must be an object"),
    (#"{"notifications":[{},{"tokens":"x"}]}"#, "notifications[1].tokens must be an array of strings"),
    (#"{"notifications":[{"tokens":[7]}]}"#, "notifications[0].tokens must be an array of strings"),
    (#"{"notifications":[{"platform":"1"}]}"#, "notifications[0].platform must be a whole number"),
    (#"{"notifications":[{"platform":1.5}]}"#, "notifications[0].platform must be a whole number"),
    (#"{"notifications":[{"data":"x"}]}"#, "notifications[0].data must be an object"),
    (
      #"{"notifications":[\#(Array(repeating: "{}", count: 101).joined(separator: ","))]}"#,
      "Number of notifications(101) over limit(100)"
    ),
  ])
  func `what gorush does not take is refused in its words`(_ body: String, _ expected: String) throws {
    let json = try JSONScanner(Array(body.utf8))
    let error = #expect(throws: APIProblem.self) { try GorushNotification.all(of: json) }
    #expect(error?.detail == expected)
    #expect(error?.status == .badRequest)
  }
}
