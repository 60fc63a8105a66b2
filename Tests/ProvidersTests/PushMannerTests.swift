// Tests of the fields that a template chooses for a push, as FCM and Expo get them.

import Foundation
import PushModel
import Runtime
import Testing

@testable import Providers

@Suite struct PushMannerTests {
  private static let now = Instant(nanoseconds: 1_000_000_000_000)

  private func request(
    _ manner: PushManner?, _ fcm: FCMMessageMembers = FCMMessageMembers(), body: String = #"{"a":"b"}"#
  ) -> PushRequest {
    PushRequest(
      tag: 1, deliveryID: DeliveryID(high: 1, low: 2), kind: .notification, environment: .production,
      token: Array("token".utf8), body: Array(body.utf8), collapseID: nil, deadline: Self.now + .seconds(60),
      expiresAtMilliseconds: 1_750_000_060_000, manner: manner, fcm: fcm)
  }

  private func fcm(_ request: PushRequest) throws -> [String: Any] {
    let body = Data(FCMRequestWriter.body(request, now: Self.now))
    return (try JSONSerialization.jsonObject(with: body) as! [String: Any])["message"] as! [String: Any]
  }

  private func expo(_ request: PushRequest) throws -> [String: Any] {
    let body = Data(ExpoRequestWriter.body([request], now: Self.now))
    return (try JSONSerialization.jsonObject(with: body) as! [[String: Any]])[0]
  }

  @Test func `FCM gets data, android and nothing else where nobody chose`() throws {
    let message = try fcm(request(nil))
    #expect(Set(message.keys) == ["token", "data", "android"])
    #expect(
      message["android"] as? NSDictionary == ["priority": "HIGH", "ttl": "60s", "direct_boot_ok": true] as NSDictionary)
  }

  @Test func `FCM gets what stands beside the data, and android's own members stay the gateway's`() throws {
    let members = FCMMessageMembers(
      apns: Array(#"{"payload":{"aps":{}}}"#.utf8), notification: Array(#"{"title":"t"}"#.utf8),
      android: Array(#"{"notification":{"channel_id":"c"}}"#.utf8))
    let message = try fcm(request(PushManner(apnsType: .alert, priority: .normal, timeToLiveMax: 7), members))
    #expect(Set(message.keys) == ["token", "data", "notification", "apns", "android"])
    #expect(
      message["android"] as? NSDictionary == [
        "priority": "NORMAL", "ttl": "7s", "direct_boot_ok": true, "notification": ["channel_id": "c"],
      ] as NSDictionary)
    #expect(message["apns"] as? NSDictionary == ["payload": ["aps": [:] as [String: Any]]] as NSDictionary)
    #expect(try fcm(request(nil, FCMMessageMembers(android: Array("{}".utf8))))["android"] is [String: Any])
  }

  @Test(
    arguments: [(nil, 60, 1_750_000_060), (7, 7, 1_750_000_007), (600, 60, 1_750_000_060), (0, 0, 1_750_000_000)]
      as [(Int64?, Int, Int)])
  func `a time to live is never longer than what is left`(most: Int64?, ttl: Int, expiration: Int) throws {
    let request = request(PushManner(apnsType: .alert, priority: .low, timeToLiveMax: most))
    let message = try expo(request)
    #expect(message["ttl"] as? Int == ttl)
    #expect(message["expiration"] as? Int == expiration)
    #expect(message["priority"] as? String == "normal")
    #expect((try fcm(request)["android"] as! [String: Any])["ttl"] as? String == "\(ttl)s")
  }
}
