// Tests of subscriptions, origins and the list of allowed origins.

import Foundation
import Runtime
import Simulators
import Testing

@testable import Providers

private let point = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
private let auth = "BTBZMqHH6r4Tts7J_aSIgg"

private func token(_ endpoint: String, auth: String = auth, point: String = point) -> String {
  "\(endpoint)#auth=\(auth)&p256dh=\(point)"
}

private func parse(_ token: String) throws -> WebPushSubscription {
  try WebPushSubscription(token: Array(token.utf8)[...])
}

@Suite(.timeLimit(.minutes(10))) struct WebPushSubscriptionTests {
  @Test(
    arguments: [
      "https://fcm.googleapis.com/fcm/send/dGVzdA:APA91bHPRgkF-JUikC4ENAHEeMrd41Zxv3hVZjC9KtT8",
      "https://updates.push.services.mozilla.com/wpush/v2/gAAAAABk_x-y",
      "https://web.push.apple.com/QOEXAMPLE-abc_def",
      "https://wns2-par02p.notify.windows.com/w/?token=BQYAAAD%2bO3U%2f6StKGD&x=1",
      "https://push.example.com:8443/a",
    ])
  func `the endpoint and the keys are those of the token`(endpoint: String) throws {
    let subscription = try parse(token(endpoint))
    #expect(subscription.origin.description + String(decoding: subscription.path, as: UTF8.self) == endpoint)
    #expect(Base64URL.encode(subscription.auth) == Array(auth.utf8))
    #expect(Base64URL.encode(subscription.point.bytes) == Array(point.utf8))
  }

  @Test func `path and origin are those of the endpoint`() throws {
    let subscription = try parse(token("https://Push.Example.COM:8443/a/b?c=d"))
    #expect(subscription.origin.host == "push.example.com")
    #expect(subscription.origin.port == 8443)
    #expect(subscription.origin.description == "https://push.example.com:8443")
    #expect(String(decoding: subscription.path, as: UTF8.self) == "/a/b?c=d")
    #expect(try parse(token("https://push.example.com:443/a")).origin.description == "https://push.example.com")
  }

  /// The cases of Tests/webpush/subscriptions.json, with which `push.is_token` is tested, too (Tests/sql/25_channels.sql):
  /// what the database accepts, the gateway must accept.
  private struct Case: Decodable {
    var accepted: Bool
    var why: String
    var service: String?
    var endpoint: String
    var auth: String?
    var p256dh: String?
  }

  @Test func `the gateway and the database accept the same subscriptions, and an error names the field and no value`()
    throws
  {
    let file = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../webpush/subscriptions.json")
    let cases = try JSONDecoder().decode([Case].self, from: Data(contentsOf: file))
    #expect(cases.count { $0.accepted } > 10 && cases.count { !$0.accepted } > 40)
    for one in cases {
      do throws(WebPushSubscription.Fault) {
        let text = token(one.endpoint, auth: one.auth ?? auth, point: one.p256dh ?? point)
        let subscription = try WebPushSubscription(token: Array(text.utf8)[...])
        #expect(one.accepted, "accepted: \(one.why)")
        if let service = one.service { #expect(subscription.origin.service.rawValue == service, "\(one.why)") }
      } catch {
        #expect(!one.accepted, "refused: \(one.why)")
        #expect(!error.description.contains("example") && !error.description.contains(auth), "\(one.why)")
        if one.auth == nil, one.p256dh == nil, error != .tooLong {
          #expect(error == (one.endpoint.isEmpty ? .notCanonical : .endpoint), "\(one.why)")
          #expect(error.description.contains("endpoint"), "\(one.why)")
        }
      }
    }
  }

  @Test func `malformed keys are refused, and the error names the field`() {
    let endpoint = "https://push.example.com/a"
    let offCurve = String(point.dropLast()) + "0"
    #expect(throws: WebPushSubscription.Fault.p256dh) { try parse(token(endpoint, point: offCurve)) }
    #expect(throws: WebPushSubscription.Fault.p256dh) {
      try parse(token(endpoint, point: String(point.dropFirst()) + "="))
    }
    #expect(throws: WebPushSubscription.Fault.auth) { try parse(token(endpoint, auth: String(auth.dropLast()) + "=")) }
    #expect(throws: WebPushSubscription.Fault.notCanonical) { try parse(endpoint) }
    #expect(throws: WebPushSubscription.Fault.notCanonical) { try parse(token(endpoint, auth: auth + "AA")) }
    #expect(throws: WebPushSubscription.Fault.notCanonical) { try parse("") }
    // The database cannot be asked about this one: its texts contain no NUL.
    #expect(throws: WebPushSubscription.Fault.endpoint) { try parse(token(endpoint + "\u{0}")) }
  }

  @Test func `a token has at most 1000 bytes`() throws {
    let endpoint = "https://push.example.com/" + String(repeating: "a", count: 1_000 - 123 - 25)
    #expect(token(endpoint).utf8.count == 1_000)
    _ = try parse(token(endpoint))
    #expect(throws: WebPushSubscription.Fault.tooLong) { try parse(token(endpoint + "a")) }
  }

  // MARK: - Allowed origins

  @Test(
    arguments: [
      ("fcm.googleapis.com", true), ("jmt17.google.com", true), ("updates.push.services.mozilla.com", true),
      ("updates-autopush.stage.push.services.mozilla.com", true), ("web.push.apple.com", true),
      ("eu.push.apple.com", true), ("wns2-par02p.notify.windows.com", true), ("googleapis.com", false),
      ("google.com", false), ("a.jmt17.google.com", false),
      ("fcm.googleapis.com.evil.example", false), ("evilfcm.googleapis.com", false), ("notify.windows.com", false),
      ("evilnotify.windows.com", false), ("push.apple.com", false), ("localhost", false), ("127.0.0.1", false),
      ("169.254.169.254", false), ("10.0.0.1", false), ("fcm.googleapis.com:8443", false),
    ])
  func `by default only the push services of the browsers are allowed`(authority: String, isAllowed: Bool) throws {
    let origin = try #require(WebPushOrigin(authority: Array(authority.utf8)[...]))
    #expect(WebPushAllowedOrigins.browsers.allows(origin) == isAllowed)
  }

  @Test func `a pattern may name a port and a domain`() throws {
    let allowed = try WebPushAllowedOrigins(["https://push.example.com:8443", "*.Example.org"])
    func allows(_ authority: String) -> Bool { allowed.allows(WebPushOrigin(authority: Array(authority.utf8)[...])!) }
    #expect(allows("push.example.com:8443") && allows("a.example.org") && allows("a.b.example.org"))
    #expect(!allows("push.example.com") && !allows("example.org") && !allows("a.example.org:8443"))
    #expect(!allows("aexample.org"))
  }

  @Test(arguments: ["", "*", "*.", "*.com", "a b", "http://a.example", "https://a.example/b", "a.*.example", "a:x"])
  func `a malformed pattern is refused, and the error names it`(pattern: String) {
    do throws(WebPushAllowedOrigins.Fault) {
      _ = try WebPushAllowedOrigins([pattern])
      Issue.record("accepted: \(pattern)")
    } catch {
      #expect(error.description.hasPrefix("\(pattern): "))
    }
  }

  @Test func `an empty list and a long one are refused`() {
    #expect(throws: WebPushAllowedOrigins.Fault.self) { try WebPushAllowedOrigins([]) }
    #expect(throws: WebPushAllowedOrigins.Fault.self) {
      try WebPushAllowedOrigins((0..<65).map { "host\($0).example.com" })
    }
  }
}
