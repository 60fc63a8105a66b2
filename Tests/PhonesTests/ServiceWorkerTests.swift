// The reader of browsers: what the service worker of docs/integrations/web.md does with pushes. Tests/integrations/web.py runs the
// worker itself.

import Phones
import Testing

@Suite struct ServiceWorkerTests {
  private func push(_ json: String) -> PhonePush { PhonePush(.webpush, message: json.utf8)! }

  private let browser = Phone(.porteiro, .web, .killed)

  @Test func `a call rings once, and its end replaces it`() {
    var memory = PhoneMemory()
    let call = push(
      #"{"type": "intercom_call", "title": "Ana", "body": "Incoming call", "tag": "c", "callId": "c", "fromName": "Ana"}"#
    )
    #expect(browser.receives(call, remembering: &memory).reactions == [.rings(PhoneRing(callID: "c", caller: "Ana"))])
    #expect(browser.receives(call, remembering: &memory).reactions == [.ignores])
    let end = push(#"{"type": "intercom_call_end", "title": "Ana", "body": "Call ended", "tag": "c", "callId": "c"}"#)
    #expect(
      browser.receives(end, remembering: &memory).reactions
        == [.stops(callID: "c"), .replaces(title: "Ana", body: "Call ended", tap: "app")])
  }

  @Test func `every push is shown, also one that the worker does not understand`() {
    for json in ["{}", #"{"type": "intercom_call", "title": "Ana"}"#, #"{"callId": "c"}"#] {
      #expect(
        browser.receives(push(json)).reactions == [.shows(title: "Notification", body: "", tap: "app")], "\(json)")
    }
    let other = push(#"{"type": "news", "title": "T", "body": "B", "callId": "c", "tag": "c"}"#)
    #expect(browser.receives(other).reactions == [.shows(title: "T", body: "B", tap: "app")])
  }

  @Test func `a message leads to its chat`() {
    let message = push(
      #"{"type": "message", "title": "Ana", "body": "New message", "callId": "m", "tag": "r", "chatId": "r"}"#)
    #expect(browser.receives(message).reactions == [.shows(title: "Ana", body: "New message", tap: "chat r")])
  }

  @Test func `only web push reaches a browser, and it reaches no phone`() {
    #expect(browser.receives(PhonePush(.fcm, message: "{}".utf8)!).reactions == [.ignores])
    for platform in [PhonePlatform.ios, .android] {
      #expect(Phone(.porteiro, platform, .open).receives(push("{}")).reactions == [.ignores])
    }
    #expect(Phone.explain(push("{}"), on: .porteiro).map(\.phone) == ["browser"])
  }
}
