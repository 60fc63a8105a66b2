// The device that `push-gateway ring --token` rings.

import ArgumentParser
import Foundation
import HTTPSurface
import Providers
import PushModel
import Queue
import Runtime

struct RingDevice {
  enum Platform: String, CaseIterable, ExpressibleByArgument { case ios, android }

  let token: String
  let provider: ProviderKind
  let platform: Platform?
  let isSandbox: Bool
  let locale: String?

  /// - Parameter provider: nil: what the form of the token says.
  init(token given: String, _ provider: ProviderKind?, _ platform: Platform?, isSandbox: Bool, locale: String?) {
    let token = Self.canonical(given)
    self.token = token
    self.provider = provider ?? Self.provider(of: token)
    self.platform = platform
    self.isSandbox = isSandbox
    self.locale = locale
  }

  /// The JSON of a browser's `PushSubscription` in the form of `push.webpush_token`; any other text unchanged.
  private static func canonical(_ text: String) -> String {
    guard let object = try? JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any] else { return text }
    let keys = object["keys"] as? [String: Any] ?? object
    guard let endpoint = object["endpoint"] as? String, let auth = keys["auth"] as? String,
      let point = keys["p256dh"] as? String
    else { return text }
    let inBase64URL = { (key: String) in
      key.replacing("+", with: "-").replacing("/", with: "_").prefix { $0 != "=" }
    }
    return "\(endpoint)#auth=\(inBase64URL(auth))&p256dh=\(inBase64URL(point))"
  }

  private static func isJSON(_ token: String) -> Bool { token.first { !$0.isWhitespace } == "{" }

  private static func provider(of token: String) -> ProviderKind {
    // A token of FCM always has other characters, too.
    if !token.isEmpty, token.allSatisfy(\.isHexDigit) { return .apns }
    if token.hasPrefix("https://") || isJSON(token) { return .webpush }
    return hasExpoForm(token) ? .expo : .fcm
  }

  private static func hasExpoForm(_ token: String) -> Bool {
    (token.hasPrefix("ExponentPushToken[") || token.hasPrefix("ExpoPushToken[")) && token.hasSuffix("]")
  }

  /// Why the token is none of its provider; nil if it may be one. As `push.is_token`. Contains nothing of the token.
  var fault: String? {
    switch provider {
    case .apns where !TokenIdentity.isAPNsToken(Array(token.utf8)):
      "a token of apns has 64 to 200 hexadecimal digits, an even number of them"
    case .fcm where !TokenIdentity.isFCMToken(token):
      "a token of fcm has 20 to 4096 letters, digits and characters of _:%.-"
    case .expo where !Self.hasExpoForm(token) || token.utf8.count > 256:
      "a token of expo is ExponentPushToken[…], with at most 256 characters"
    case .webpush where Self.isJSON(token):
      "a subscription of webpush is the browser's JSON, with endpoint, keys.auth and keys.p256dh"
    case .webpush: subscriptionFault?.description
    default: nil
    }
  }

  private var subscriptionFault: WebPushSubscription.Fault? {
    do throws(WebPushSubscription.Fault) {
      _ = try WebPushSubscription(token: Array(token.utf8)[...])
      return nil
    } catch {
      return error
    }
  }

  /// An entry of `recipients`, as JSON. Its user id is made of the token.
  var recipient: String {
    var json = JSONWriter(reservingCapacity: token.utf8.count + 128)
    json.beginObject()
    json.key("userId")
    json.string(TokenIdentity.userID(of: token))
    json.key(member)
    json.string(token)
    if let platform {
      json.key("platform")
      json.string(platform.rawValue)
    }
    if isSandbox {
      json.key("environment")
      json.string("sandbox" as StaticString)
    }
    if let locale {
      json.key("locale")
      json.string(locale)
    }
    json.key("missedCall")
    json.boolean(false)
    json.endObject()
    return String(decoding: json.bytes, as: UTF8.self)
  }

  /// An entry of `recipients` that stands for a user's registered devices.
  static func recipient(user: String) -> String {
    var json = JSONWriter(reservingCapacity: user.utf8.count + 32)
    json.beginObject()
    json.key("userId")
    json.string(user)
    json.key("missedCall")
    json.boolean(false)
    json.endObject()
    return String(decoding: json.bytes, as: UTF8.self)
  }

  private var member: StaticString {
    switch provider {
    case .apns: "voipPushToken"
    case .fcm: "fcmToken"
    case .expo: "pushToken"
    case .webpush: "webPushSubscription"
    }
  }

  /// The delivery as enqueueing would make it, with the number 0 of a call that is not in the database.
  func delivery(of call: RingCall) -> RingDelivery {
    let platform: DevicePlatform =
      switch provider {
      case .apns: .ios
      case .webpush: .web
      case .fcm, .expo: self.platform.map { $0 == .ios ? .ios : .android } ?? .unknown
      }
    // The host of a push service is no secret; the rest of a subscription is.
    let masked =
      provider == .webpush ? String(token.prefix { $0 != "#" }) : "\(token.prefix(4))…\(token.suffix(4))"
    return RingDelivery(
      call: call, outboxID: 0, number: 0, provider: provider, platform: platform,
      environment: isSandbox ? .sandbox : .production, userID: TokenIdentity.userID(of: token), locale: locale,
      device: masked)
  }
}
