// How the client systems' apps read a push, key by key. What the apps do with a push is in Phones.

import DialectsTestSupport
import Foundation

/// Porteiro: CallKeep on the phone, Expo's background task on Android.
enum PorteiroApp {
  struct Call: Equatable {
    var callID: String
    var from: String
    var fromName: String
    var apartmentNumber: String?
    var buildingName: String?
    var channelName: String?
    var schemaVersion: Int?
    /// When it was sent, in milliseconds since 1970.
    var sentAt: Int64
    var isVoIP: Bool
  }

  /// CallKit's call id, if the call id is a UUID.
  static func callKitUUID(_ call: Call) -> UUID? { UUID(uuidString: call.callID) }

  /// PushKit's `dictionaryPayload`.
  static func voipPush(_ payload: [String: Any]) -> Call? { call(in: payload) }

  /// The background task gets its data in one of three forms, depending on how the push was received.
  static func backgroundTask(_ task: [String: Any]) -> [String: Any]? {
    let data = task["data"] as? [String: Any]
    if let text = data?["body"] as? String, let object = try? parse(Data(text.utf8)) { return object }
    if let object = data?["data"] as? [String: Any] { return object }
    let notification = task["notification"] as? [String: Any]
    let content = (notification?["request"] as? [String: Any])?["content"] as? [String: Any]
    return content?["data"] as? [String: Any]
  }

  static func call(in data: [String: Any]) -> Call? {
    guard data["type"] as? String == "intercom_call", data["action"] as? String == "incoming_call",
      let callID = data["callId"] as? String, let from = data["from"] as? String,
      let sentAt = (data["timestamp"] as? String).flatMap(Int64.init)
    else { return nil }
    return Call(
      callID: callID, from: from, fromName: data["fromName"] as? String ?? "",
      apartmentNumber: data["apartmentNumber"] as? String, buildingName: data["buildingName"] as? String,
      channelName: data["channelName"] as? String,
      schemaVersion: (data["metadata"] as? [String: Any])?["schemaVersion"] as? Int, sentAt: sentAt,
      isVoIP: data["isVoip"] as? Bool ?? false)
  }
}

/// react-native-twilio-phone.
enum TwilioApp {
  enum Event: Equatable {
    case callInvite(sid: String, from: String, to: String)
    case cancelledCallInvite(sid: String)
  }

  /// Android: the SDK's message handler. It accepts strings only, and ignores messages without its own message type.
  static func handleMessage(_ data: [String: Any]) -> Event? {
    guard let data = data as? [String: String], let sid = data["twi_call_sid"] else { return nil }
    switch data["twi_message_type"] {
    case "twilio.voice.call":
      guard let from = data["twi_from"], let to = data["twi_to"] else { return nil }
      return .callInvite(sid: sid, from: from, to: to)
    case "twilio.voice.cancel": return .cancelledCallInvite(sid: sid)
    default: return nil
    }
  }
}

/// The life cycle of a call on the phone: one session for each call id, even if pushes are repeated or out of order.
struct CallSessions {
  enum State: String { case ringing, connected, ended, missed }

  private(set) var states: [String: State] = [:]
  private(set) var promises: [String: Int] = [:]
  private var newest: [String: Int] = [:]
  /// Whether every push of a call had a higher `seq` than the one before, except repeated pushes.
  private(set) var isRising = true

  mutating func receive(_ data: [String: Any]) {
    guard let callID = data["callId"] as? String, let seq = (data["seq"] as? String).flatMap(Int.init) else { return }
    if let before = newest[callID], seq < before { isRising = false }
    newest[callID] = max(newest[callID] ?? 0, seq)
    switch (data["action"] as? String, data["type"] as? String) {
    case ("incoming_call", _):
      guard promises[callID] == nil else { return }  // an existing session returns early
      promises[callID] = 1
      states[callID] = .ringing
    case ("call_cancelled", _): states[callID] = .ended
    case (_, "missed_call"): states[callID] = .missed
    default: break
    }
  }
}

/// Enclosure: only a VoIP push with a room rings.
enum EnclosureApp {
  struct Call: Equatable {
    var name: String
    var photo: String
    var roomID: String
    var receiverID: String
    var phone: String
  }

  static func voipPush(_ payload: [String: Any]) -> Call? {
    guard payload["bodyKey"] as? String == "Incoming voice call", let roomID = payload["roomId"] as? String,
      !roomID.isEmpty
    else { return nil }
    return Call(
      name: payload["name"] as? String ?? "", photo: payload["photo"] as? String ?? "", roomID: roomID,
      receiverID: payload["receiverId"] as? String ?? "", phone: payload["phone"] as? String ?? "")
  }
}

/// CommEazy: one router for all pushes.
enum CommEazyApp {
  enum Routed: Equatable {
    case call(id: String, jid: String, name: String, isVideo: Bool)
    case missedCall(id: String, title: String, body: String, category: String)
    case cancelled(id: String)
    case message(chatID: String, jid: String, name: String)
    case groupMessage(chatID: String, jid: String, name: String)
    case groupInvite(chatID: String, jid: String, name: String)
  }

  static func route(_ payload: [String: Any]) -> Routed? {
    func text(_ key: String) -> String { payload[key] as? String ?? "" }
    // PushKit and alerts carry a boolean, FCM its text.
    let isVideo = payload["isVideo"] as? Bool ?? (text("isVideo") == "true")
    if text("action") == "call_cancelled" { return .cancelled(id: text("callId")) }
    switch text("type") {
    case "call", "video_call":
      guard isVideo == (text("type") == "video_call") else { return nil }
      return .call(id: text("callId"), jid: text("callerJid"), name: text("callerName"), isVideo: isVideo)
    case "missed_call":
      let aps = payload["aps"] as? [String: Any]
      let alert = aps?["alert"] as? [String: Any] ?? payload
      return .missedCall(
        id: text("callId"), title: alert["title"] as? String ?? "", body: alert["body"] as? String ?? "",
        category: (aps ?? payload)["category"] as? String ?? "")
    case "message": return .message(chatID: text("chatId"), jid: text("senderJid"), name: text("senderName"))
    case "group_message":
      return .groupMessage(chatID: text("chatId"), jid: text("senderJid"), name: text("senderName"))
    case "group_invite":
      return .groupInvite(chatID: text("chatId"), jid: text("senderJid"), name: text("senderName"))
    default: return nil
    }
  }
}
