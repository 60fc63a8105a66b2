// What each Matrix event means for each kind of pusher, and what members of a room can put into it.

import Foundation
import HTTPSurfaceTestSupport
import HTTPTypes
import Runtime
import Testing

@testable import HTTPSurface
@testable import Settings

struct MatrixPlanTests {
  private static let now: Int64 = 1_752_583_130_365

  private static func action(
    _ request: String, _ kind: MatrixAppIDs.TokenKind = .fcm, hasVoIP: Bool = false, at now: Int64 = now,
    token: String = HomeserverRequest.androidKey
  ) throws -> MatrixPlan.Action {
    let notification = try MatrixNotification(JSONScanner(Array(request.utf8)))
    let target = APIApps.Target(app: "porteiro", kind: kind, hasVoIP: hasVoIP)
    return MatrixPlan(notification: notification, target: target, token: token).action(at: now)
  }

  private static func call(_ action: MatrixPlan.Action) throws -> (
    call: APICall, payload: [String: Any], entry: [String: Any]
  ) {
    guard case .enqueue(let call) = action else { throw Missing(what: "\(action)") }
    let payload = try #require(try JSONSerialization.jsonObject(with: Data(call.payload)) as? [String: Any])
    let entries = try #require(try JSONSerialization.jsonObject(with: Data(call.recipients)) as? [[String: Any]])
    return (call, payload, try #require(entries.first))
  }

  private struct Missing: Error { var what: String }

  private static func word(_ action: MatrixPlan.Action) -> String {
    switch action {
    case .nothing: "nothing"
    case .enqueue(let call): "\(call.kind ?? "") \(call.ringSeconds.map(String.init) ?? "-")"
    case .answer: "answer"
    case .decline: "decline"
    case .end(_, let reason): "end \(reason)"
    }
  }

  private static func rtc(_ content: String, type: String = "org.matrix.msc4075.rtc.notification") -> String {
    HomeserverRequest {
      $0.type = type
      $0.content = content
    }.json
  }

  @Test func `an invite rings the phone, with the members that its app finds the call by`() throws {
    let (call, payload, entry) = try Self.call(try Self.action(HomeserverRequest().json))
    #expect(call.kind == "incoming_call")
    #expect(call.ringSeconds == 60)
    #expect(call.hasID)
    #expect(payload["from"] as? String == "@major:example.org")
    #expect(payload["fromName"] as? String == "Major Tom")
    let metadata = try #require(payload["metadata"] as? [String: String])
    #expect(
      metadata == [
        "roomId": "!slw48wfj34rtnrf:example.org", "eventId": HomeserverRequest().eventID, "callId": "16f1b2c8d7e6",
        "roomName": "Mission Control",
      ])
    #expect(entry["fcmToken"] as? String == HomeserverRequest.androidKey)
    #expect(entry["platform"] as? String == "android")
    #expect(entry["missedCall"] as? Bool == false)
    let id = try #require(payload["callId"] as? String)
    #expect(UUID(uuidString: id) != nil && id == id.lowercased())
  }

  @Test func `the same call of the same phone has the same id, and any other has another`() throws {
    func id(_ token: String = HomeserverRequest.androidKey, _ change: (inout HomeserverRequest) -> Void = { _ in })
      throws
      -> String
    {
      try #require(
        try Self.call(try Self.action(HomeserverRequest(change).json, token: token)).payload["callId"] as? String)
    }
    let first = try id()
    let repeated = try id()
    #expect(repeated == first)
    let ofOtherEvent = try id { $0.eventID = "$other" }
    #expect(ofOtherEvent == first, "the event that carries a call's invite does not matter")
    let ofOtherPhone = try id("another-token-0123456789")
    #expect(ofOtherPhone != first)
    let ofOtherCall = try id { $0.content = HomeserverRequest.invite("other") }
    #expect(ofOtherCall != first)
    let withoutContent = try id { $0.content = nil }
    let withoutContentAgain = try id { $0.content = nil }
    #expect(withoutContent != first)
    #expect(withoutContentAgain == withoutContent)
    let ofOtherEventWithoutContent = try id {
      $0.content = nil
      $0.eventID = "$other"
    }
    #expect(ofOtherEventWithoutContent != withoutContent)
  }

  @Test(arguments: [
    ("m.call.invite", HomeserverRequest.invite(video: true), "video_call 60"),
    ("m.call.invite", HomeserverRequest.invite(lifetime: 1), "incoming_call 5"),
    ("m.call.invite", HomeserverRequest.invite(lifetime: 12_001), "incoming_call 13"),
    ("m.call.invite", HomeserverRequest.invite(lifetime: 86_400_000), "incoming_call 600"),
    ("m.call.invite", HomeserverRequest.invite(lifetime: .max), "incoming_call 600"),
    ("m.call.invite", HomeserverRequest.invite(lifetime: -7), "incoming_call -"),
    ("m.call.invite", #"{"call_id": 7, "lifetime": "long", "offer": []}"#, "incoming_call -"),
    ("m.call.invite", #"{"call_id": "x", "offer": {"sdp": "a=m=video\nx m=video 9"}}"#, "incoming_call -"),
    ("m.call.invite", #"[]"#, "incoming_call -"),
    ("m.call.answer", #"{"call_id": "x"}"#, "answer"), ("m.call.select_answer", #"{"call_id": "x"}"#, "answer"),
    ("m.call.reject", #"{"call_id": "x"}"#, "decline"),
    ("m.call.hangup", #"{"call_id": "x"}"#, "end ended"),
    ("m.call.hangup", #"{"call_id": "x", "reason": "user_busy"}"#, "end busy"),
    ("m.call.hangup", #"{"call_id": "x", "reason": "\u0000"}"#, "end ended"),
    ("m.call.hangup", #"{}"#, "nothing"), ("m.call.candidates", #"{"call_id": "x"}"#, "nothing"),
    ("m.call.notify", #"{"notify_type": "ring"}"#, "incoming_call 30"),
    ("org.matrix.msc4075.call.notify", #"{"notify_type": "notify"}"#, "message -"),
    (
      "m.rtc.notification", #"{"notification_type": "ring", "lifetime": 45000, "m.call.intent": "video"}"#,
      "video_call 45"
    ),
    ("m.rtc.notification", #"{"notification_type": "notification"}"#, "message -"),
    ("m.rtc.decline", #"{}"#, "nothing"), ("org.matrix.msc3401.call.member", "{}", "nothing"),
    ("m.room.encrypted", #"{"ciphertext": "x"}"#, "message -"), ("m.room.message", "{}", "message -"),
    ("a.new.type", "{}", "message -"),
  ])
  func `each type of event`(_ type: String, _ content: String, _ expected: String) throws {
    #expect(Self.word(try Self.action(Self.rtc(content, type: type))) == expected)
  }

  @Test(arguments: [
    (0, "incoming_call 30"), (-600_000, "incoming_call 30"), (10_000, "incoming_call 20"), (29_999, "incoming_call 5"),
    (59_000, "incoming_call 5"), (61_000, "nothing"), (86_400_000, "nothing"), (Int64.min, "nothing"),
  ])
  func `a ring of MatrixRTC is not rung after its lifetime, within what a sender's clock may be wrong by`(
    _ age: Int64, _ expected: String
  ) throws {
    let sent = age == .min ? Int64.min : Self.now - age
    let action = try Self.action(Self.rtc(#"{"notification_type": "ring", "lifetime": 30000, "sender_ts": \#(sent)}"#))
    #expect(Self.word(action) == expected)
  }

  @Test func `a VoIP pusher only rings, an alert pusher only shows`() throws {
    let invite = HomeserverRequest().json
    let message = HomeserverRequest { $0.type = "m.room.message" }.json
    #expect(Self.word(try Self.action(invite, .voip, hasVoIP: true)) == "incoming_call 60")
    #expect(Self.word(try Self.action(message, .voip, hasVoIP: true)) == "nothing")
    #expect(Self.word(try Self.action(invite, .apns, hasVoIP: true)) == "nothing")
    #expect(Self.word(try Self.action(invite, .apns)) == "message -", "without VoIP pushers the call is at least shown")
    #expect(Self.word(try Self.action(message, .apns, hasVoIP: true)) == "message -")
  }

  @Test func `no text of a message is in what is enqueued, in whatever member it stands`() throws {
    for request in [
      HomeserverRequest.specification,
      HomeserverRequest {
        $0.type = "m.room.message"
        $0.content = #"{"msgtype":"m.text","body":"peculiar","formatted_body":"<b>peculiar</b>","call_id":"peculiar"}"#
        $0.more = #""body":"peculiar","default_payload":{"text":"peculiar"},"#
      }.json,
    ] {
      guard case .enqueue(let call) = try Self.action(request) else { throw Missing(what: request) }
      #expect(!String(decoding: call.payload + call.recipients, as: UTF8.self).contains("peculiar"))
    }
  }

  @Test func `a message is of the room's chat, with the number of unread ones`() throws {
    let (call, payload, _) = try Self.call(try Self.action(HomeserverRequest.specification))
    #expect(call.kind == "message")
    #expect(payload["chatId"] as? String == "!slw48wfj34rtnrf:example.com")
    #expect(payload["badge"] as? Int == 2)
    #expect(payload["from"] as? String == "@exampleuser:matrix.org")
    #expect((payload["metadata"] as? [String: String])?["eventId"] == "$3957tyerfgewrf384")
    #expect(payload["messageId"] as? String != nil)
  }

  @Test func `an invitation, an event without a type, and counts alone`() throws {
    let invitation = HomeserverRequest {
      $0.type = "m.room.member"
      $0.more = #""membership":"invite","user_is_target":true,"#
    }
    #expect(Self.word(try Self.action(invitation.json)) == "group_invite -")
    #expect(Self.word(try Self.action(HomeserverRequest { $0.type = "m.room.member" }.json)) == "message -")
    let (_, payload, _) = try Self.call(try Self.action(HomeserverRequest().eventIDOnly))
    #expect(payload["from"] as? String == "Matrix", "an id is no title")
    #expect(payload["fromName"] == nil)
    #expect(payload["chatId"] as? String == "!slw48wfj34rtnrf:example.org")
    #expect(payload["metadata"] as? [String: String] == ["eventId": HomeserverRequest().eventID])
    let named = HomeserverRequest().eventIDOnly.replacing(#""prio""#, with: #""room_name":"Mission Control","prio""#)
    #expect(try Self.call(try Self.action(named)).payload["fromName"] as? String == "Mission Control")
    #expect(Self.word(try Self.action(HomeserverRequest().badge)) == "nothing")
  }

  @Test(arguments: [#"\u0000\u0007"#, #"\ud800"#, "\u{1F514}", #"\"\\"#, "é", " "])
  func `names of any length and characters fit into a push, and Postgres can store them`(_ character: String) throws {
    let name = String(repeating: character, count: 20_000)
    let request = #"""
      {"notification":{"event_id":"\#(name)","room_id":"\#(name)","type":"TYPE","sender":"\#(name)","sender_display_name":"\#(name)",
      "room_name":"\#(name)","counts":{"unread":1e9},"content":{"call_id":"\#(name)"},
      "devices":[{"app_id":"a","pushkey":"k","pushkey_ts":"now","data":[]}]}}
      """#
    for type in ["m.call.invite", "m.room.message"] {
      guard case .enqueue(let call) = try Self.action(request.replacing("TYPE", with: type)) else {
        throw Missing(what: type)
      }
      #expect(call.payload.count < 1_200)
      try PostgresJSONCheck(JSONScanner(call.payload)).check()
    }
  }

  @Test(arguments: [
    ("", "malformed-body"), ("[]", "notification"), (#"{"notification":7}"#, "notification"),
    (#"{"notification":{}}"#, "notification.devices"), (#"{"notification":{"devices":[]}}"#, "notification.devices"),
    (#"{"notification":{"devices":[7]}}"#, "notification.devices[0].app_id"),
    (#"{"notification":{"devices":[{"app_id":"a"}]}}"#, "notification.devices[0].pushkey"),
    (#"{"notification":{"devices":[{"app_id":7,"pushkey":"k"}]}}"#, "notification.devices[0].app_id"),
  ])
  func `what a homeserver does not send is refused`(_ body: String, _ expected: String) {
    do {
      _ = try MatrixNotification(JSONScanner(Array(body.utf8)))
      Issue.record("\(body) was accepted")
    } catch let error as APIProblem {
      #expect(error.field == expected)
      #expect(error.status == .badRequest)
    } catch {
      #expect(expected == "malformed-body")
    }
  }

  @Test(
    arguments: [
      (HomeserverRequest.appleKey, HomeserverRequest.appleToken),
      ("q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s", HomeserverRequest.appleToken),
      (HomeserverRequest.appleToken.uppercased(), HomeserverRequest.appleToken),
      ("-_-_q6urq6urq6urq6urq6urq6urq6urq6urq6urq6s=", "fbffbf" + String(repeating: "ab", count: 29)),
      ("+/+/q6urq6urq6urq6urq6urq6urq6urq6urq6urq6s=", "fbffbf" + String(repeating: "ab", count: 29)),
      ("", nil), ("q6ur", nil), ("cQ7mZl2pR0uX:APA91bHmatrix-phone", nil), ("====", nil),
      (String(repeating: "q", count: 4_000), nil),
    ] as [(String, String?)])
  func `push keys of APNs are Base64, or hexadecimal`(_ pushKey: String, _ token: String?) {
    #expect(TokenIdentity.apnsToken(ofPushKey: pushKey) == token)
  }

  @Test func `the most exact app id counts`() throws {
    func pattern(_ word: String) throws -> MatrixAppIDs.Pattern { try #require(MatrixAppIDs.Pattern(word)) }
    let apps = APIApps(ids: [
      "one": MatrixAppIDs(
        patterns: [
          .fcm: [try pattern("com.example.*")], .voip: [try pattern("com.example.ios.voip*")],
          .apns: [try pattern("com.example.ios*")],
        ],
        sandbox: [try pattern("com.example.ios.voip.dev")]),
      "two": MatrixAppIDs(patterns: [.fcm: [try pattern("com.example.ios.voip")]]),
    ])
    func word(_ id: String) -> String {
      apps.target(of: id).map { "\($0.app) \($0.kind) \($0.isSandbox) \($0.hasVoIP)" } ?? "-"
    }
    #expect(word("com.example.android") == "one fcm false true")
    #expect(word("com.example.ios.prod") == "one apns false true")
    #expect(word("com.example.ios.voip") == "two fcm false false")
    #expect(word("com.example.ios.voip.prod") == "one voip false true")
    #expect(word("com.example.ios.voip.dev") == "one voip true true")
    #expect(word("com.exampl") == "-")
    #expect(word("") == "-")
    apps.update(to: [])
    #expect(word("com.example.android") == "-")
  }
}
