// From gorush's notifications to calls and notifications of the gateway. Pure.
//
// gorush sends whatever it is given to each token. The gateway rings calls, stops them, and shows notifications of a few
// kinds, whose texts are the dialect's. So `data` decides: it must be the data of a call or of such a notification. What is
// neither is refused, token by token.

internal import Runtime

/// What the notifications of a request mean.
struct GorushPlan {
  enum Action: Hashable {
    /// A call with this kind of `push.outbox`.
    case ring(kind: String)
    case stop
    /// A notification with this kind of `push.outbox`.
    case show(kind: String)
  }

  /// What is done at once: all notifications of the request that are about the same call.
  struct Group {
    var action: Action
    /// The call's id; nil for a notification without an id.
    var id: String?
    /// The payload, made of the first notification's data.
    var payload: [UInt8]
    var seconds: Int32?
    /// Of `stop`.
    var reason: String?
    /// Each once.
    var phones: [Phone] = []
    /// Wherever the request names one of them, in whatever letters.
    var mentions: [Phone] = []
  }

  struct Phone: Equatable {
    var entry: TokenEntry
    /// The position of its notification in the request.
    var notification: Int
  }

  /// A token for which nothing is done.
  struct Refused: Equatable {
    var notification: Int
    var token: String
    var error: String
  }

  /// Why a notification means nothing here.
  private struct Refusal: Error {
    var text: String
    init(_ text: String) { self.text = text }
  }

  private struct Key: Hashable {
    var action: Action
    var id: String
  }

  private(set) var groups: [Group] = []
  private(set) var refused: [Refused] = []
  /// As gorush counts: the tokens for iOS and Android.
  private(set) var tokenCount = 0

  private let json: JSONScanner
  private var places: [Key: Int] = [:]

  /// - Parameter wallMilliseconds: the current time.
  init(_ notifications: [GorushNotification], in json: JSONScanner, at wallMilliseconds: Int64) {
    self.json = json
    for (index, notification) in notifications.enumerated() {
      if notification.platform == .ios || notification.platform == .android { tokenCount += notification.tokens.count }
      do throws(Refusal) {
        try add(notification, index, wallMilliseconds)
      } catch {
        let tokens = notification.tokens.isEmpty ? [""] : notification.tokens
        refused += tokens.map { Refused(notification: index, token: $0, error: error.text) }
      }
    }
  }

  private mutating func add(_ notification: GorushNotification, _ index: Int, _ now: Int64) throws(Refusal) {
    guard notification.topic == nil || notification.platform == .ios, notification.condition == nil else {
      throw Refusal("topics and conditions are not supported: give tokens")
    }
    guard !notification.isDryRun else { throw Refusal("dry_run: is not supported; nothing was sent") }
    guard !notification.tokens.isEmpty else { throw Refusal("tokens: must have at least one token") }
    let platform: GorushNotification.Platform
    switch notification.platform {
    case .ios: platform = .ios
    case .android: platform = .android
    case .huawei: throw Refusal("platform: 3 (Huawei) is not supported")
    case nil: throw Refusal("platform: must be 1 (iOS) or 2 (Android)")
    }
    let isVoIP =
      platform == .ios && (notification.pushType == "voip" || notification.topic?.hasSuffix(".voip") == true)
    let action = try action(notification, isVoIP)
    let kind: TokenEntry.Kind
    switch (platform, action) {
    case (.android, _): kind = .fcm
    case (_, .show):
      guard !isVoIP else { throw Refusal("push_type: voip rings; use alert, and an alert token, for a notification") }
      kind = .apns
    case _ where isVoIP: kind = .voip
    case (_, .ring): throw Refusal("push_type: must be voip, because an iPhone rings only by a VoIP token")
    case (_, .stop):
      // The alert tokens of iPhones were not rung.
      throw Refusal("push_type: must be voip, for the token by which the iPhone was rung")
    }
    guard let data = notification.data else { throw Self.unknown }
    let id = try callID(data, action)
    let group = try place(action, id, data, seconds(notification, action, now))
    for token in notification.tokens {
      let isGood = kind == .fcm ? TokenIdentity.isFCMToken(token) : TokenIdentity.isAPNsToken(Array(token.utf8))
      guard isGood else {
        let error = kind == .fcm ? "InvalidRegistration" : "BadDeviceToken"
        refused.append(Refused(notification: index, token: token, error: error))
        continue
      }
      let entry = TokenEntry(
        token: token, kind: kind,
        isSandbox: platform == .ios && notification.isDevelopment && !notification.isProduction)
      let phone = Phone(entry: entry, notification: index)
      if !groups[group].phones.contains(where: { $0.entry.userID == entry.userID }) {
        guard groups[group].phones.count < GorushNotification.tokensMax else {
          refused.append(
            Refused(
              notification: index, token: token,
              error:
                "tokens: a call has at most \(GorushNotification.tokensMax) tokens; use another callId for the rest"))
          continue
        }
        groups[group].phones.append(phone)
      }
      groups[group].mentions.append(phone)
    }
  }

  // MARK: - What it is

  private static let unknown = Refusal(
    "data.type: must be that of a call (incoming_call, video_call, intercom_call), of its end (intercom_call_end, "
      + "call_cancelled), or message, group_message, group_invite or missed_call; title and message are never sent")

  private func action(_ notification: GorushNotification, _ isVoIP: Bool) throws(Refusal) -> Action {
    switch notification.pushType {
    case nil, "alert", "voip", "background": break
    default: throw Refusal("push_type: must be voip, alert or background, or left out")
    }
    guard let data = notification.data else { throw Self.unknown }
    let (type, stated) = (text("type", data), text("action", data))
    switch type {
    case "intercom_call_end", "call_cancelled": return .stop
    case _ where stated == "call_cancelled": return .stop
    case "video_call": return .ring(kind: "video_call")
    case "incoming_call", "intercom_call": return .ring(kind: callKind(data))
    case let type? where ["message", "group_message", "group_invite", "missed_call"].contains(type):
      return .show(kind: type)
    case _ where stated == "incoming_call": return .ring(kind: callKind(data))
    // With any other type or action it may be the end of a call.
    case nil where stated == nil && isVoIP && text("callId", data) != nil: return .ring(kind: callKind(data))
    default: throw Self.unknown
    }
  }

  private func callKind(_ data: JSONScanner.Value) -> String {
    let value = json.member("isVideo", of: data)
    return value.flatMap(json.boolean) == true || value.flatMap(json.text) == "true" ? "video_call" : "incoming_call"
  }

  /// A missed call has another id than the call that was rung: with the same, it would count as its repetition.
  private func callID(_ data: JSONScanner.Value, _ action: Action) throws(Refusal) -> String? {
    let id = text("callId", data)
    switch action {
    case .ring, .stop:
      guard let id else { throw Refusal("data.callId: must be a string of 1 to 128 characters") }
      return id
    case .show(kind: "missed_call"):
      guard let id else { throw Refusal("data.callId: must be a string of 1 to 128 characters") }
      return TokenIdentity.uuid(of: "gorush", "missed", id)
    case .show: return text("messageId", data) ?? id
    }
  }

  /// The end of a call is never too late: the phone may still be ringing.
  private func seconds(_ notification: GorushNotification, _ action: Action, _ now: Int64) throws(Refusal) -> Int64? {
    if case .stop = action { return nil }
    if let expiration = notification.expiration, expiration > 0 {
      let (left, isOverflow) = expiration.subtractingReportingOverflow(now / 1000)
      guard !isOverflow, left > 0 else { throw Refusal("expiration: is in the past") }
      return left
    }
    return notification.timeToLive.flatMap { $0 > 0 ? $0 : nil }
  }

  private func text(_ name: StaticString, _ data: JSONScanner.Value) -> String? {
    json.member(name, of: data).flatMap(json.text).flatMap { 1...128 ~= $0.unicodeScalars.count ? $0 : nil }
  }

  // MARK: - Groups

  private mutating func place(
    _ action: Action, _ id: String?, _ data: JSONScanner.Value, _ seconds: Int64?
  ) throws(Refusal) -> Int {
    // Two calls with one id are one, whatever else their data says.
    let word: Action = if case .ring = action { .ring(kind: "") } else { action }
    if let id, let place = places[Key(action: word, id: id)] { return place }
    let payload = payload(action, id, data)
    do throws(APIProblem) {
      // Not of the data: a text may hold what Postgres can store, and the object that is made of it what it cannot.
      try PostgresJSONCheck(JSONScanner(trusting: payload)).check()
    } catch {
      throw Refusal("\(Self.member(error.field)): \(error.detail)")
    }
    let secondsMax: Int64 = if case .ring = action { 600 } else { 2_419_200 }
    groups.append(
      Group(
        action: action, id: id, payload: payload, seconds: seconds.map { Int32(min($0, secondsMax)) },
        reason: text("reason", data).map { String(String.UnicodeScalarView($0.unicodeScalars.prefix(64))) }))
    if let id { places[Key(action: word, id: id)] = groups.count - 1 }
    return groups.count - 1
  }

  /// Where a fault of the payload is. The check says `body` in place of a name that the API does not define.
  private static func member(_ field: String?) -> String {
    guard let field, !field.hasPrefix("body") else { return "data" }
    return "data.\(field)"
  }

  /// The data without the members that every dialect writes itself.
  private func payload(_ action: Action, _ id: String?, _ data: JSONScanner.Value) -> [UInt8] {
    var writer = JSONWriter(reservingCapacity: data.range.count + 64)
    writer.beginObject()
    if case .show(kind: "missed_call") = action, let id {
      writer.key("callId")
      writer.string(id)
    }
    let dropsCallID = namesOtherCall(action, data)
    for member in json.members(of: data) where !isOwn(member) && !(dropsCallID && json.isKey(member, "callId")) {
      writer.rawKey(json.bytes, member.key)
      // An object as a text, as FCM requires it.
      if json.isKey(member, "metadata"), let text = json.string(member.value),
        (try? JSONScanner(text))?.root.kind == .object
      {
        writer.raw(text)
      } else {
        writer.raw(json.bytes, member.value.range)
      }
    }
    // FCM reserves `from`.
    if json.member("from", of: data) == nil, let caller = json.member("fromId", of: data), caller.kind == .string {
      writer.key("from")
      writer.raw(json.bytes, caller.range)
    }
    writer.endObject()
    return writer.bytes
  }

  /// Whether `data.callId` is the id of another call, which may have rung here, and not that of what is enqueued. In the
  /// payload it would count as that (`push.given_call_id`), and the notification as a repetition of the call.
  private func namesOtherCall(_ action: Action, _ data: JSONScanner.Value) -> Bool {
    switch action {
    case .ring, .stop: false
    case .show(kind: "missed_call"): true
    case .show: text("messageId", data) != nil
    }
  }

  private func isOwn(_ member: JSONScanner.Member) -> Bool {
    let names: [StaticString] = ["type", "action", "isVoip", "isVideo", "timestamp", "expiresAt", "seq"]
    return names.contains { json.isKey(member, $0) }
  }
}
