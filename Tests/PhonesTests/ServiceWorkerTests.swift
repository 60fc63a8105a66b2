// The reader of browsers: what the service worker of docs/integrations/web.md does with pushes. Tests/integrations/web.py runs the
// worker itself.

import Phones
import Testing

@Suite struct ServiceWorkerTests {
  private func push(_ json: String) -> PhonePush { PhonePush(.webpush, message: json.utf8)! }

  private let browser = Phone(.porteiro, .web, .killed)

  /// A call that was sent 30 s before the end of its ring window.
  private var call: PhonePush {
    push(
      #"{"type": "intercom_call", "title": "Ana", "body": "Incoming call", "tag": "c", "callId": "c", "#
        + #""fromName": "Ana", "timestamp": "1750000000000", "expiresAt": "1750000030000"}"#)
  }

  @Test func `a call rings once, and its end replaces it`() {
    var memory = PhoneMemory()
    #expect(browser.receives(call, remembering: &memory).reactions == [.rings(PhoneRing(callID: "c", caller: "Ana"))])
    #expect(browser.receives(call, remembering: &memory).reactions == [.ignores])
    let end = push(#"{"type": "intercom_call_end", "title": "Ana", "body": "Call ended", "tag": "c", "callId": "c"}"#)
    #expect(
      browser.receives(end, remembering: &memory).reactions
        == [.stops(callID: "c"), .replaces(title: "Ana", body: "Call ended", tap: "app")])
  }

  @Test func `a call that comes after its ring window is shown and does not ring`() {
    let rings = [PhoneReaction.rings(PhoneRing(callID: "c", caller: "Ana"))]
    let shows = [PhoneReaction.shows(title: "Ana", body: "Incoming call", tap: "call")]
    for (seconds, reactions) in [(0.0, rings), (29, rings), (30, shows), (61, shows)] {
      var late = call
      late.secondsLate = seconds
      #expect(browser.receives(late).reactions == reactions, "\(seconds)")
    }
    let endless = push(
      #"{"type": "intercom_call", "title": "Ana", "body": "Incoming call", "tag": "c", "callId": "c"}"#)
    #expect(browser.receives(endless).reactions == shows)
  }

  @Test func `every push is shown, also one that the worker does not understand`() {
    for json in [
      "{}", #"{"type": "intercom_call", "title": "Ana"}"#, #"{"callId": "c"}"#,
      #"{"type": "intercom_call", "title": "Ana", "callId": "c", "expiresAt": "1750000030000"}"#,
    ] {
      #expect(
        browser.receives(push(json)).reactions == [.shows(title: "Notification", body: "", tap: "app")], "\(json)")
    }
    let other = push(#"{"type": "news", "title": "T", "body": "B", "callId": "c", "tag": "c"}"#)
    #expect(browser.receives(other).reactions == [.shows(title: "T", body: "B", tap: "app")])
  }

  @Test func `a message leads to the app`() {
    let message = push(
      #"{"type": "message", "title": "Ana", "body": "New message", "callId": "m", "tag": "r", "chatId": "r"}"#)
    #expect(browser.receives(message).reactions == [.shows(title: "Ana", body: "New message", tap: "app")])
  }

  @Test func `only web push reaches a browser, and it reaches no phone`() {
    #expect(browser.receives(PhonePush(.fcm, message: "{}".utf8)!).reactions == [.ignores])
    for platform in [PhonePlatform.ios, .android] {
      #expect(Phone(.porteiro, platform, .open).receives(push("{}")).reactions == [.ignores])
    }
    #expect(Phone.explain(push("{}"), on: .porteiro).map(\.phone) == ["browser"])
  }
}
