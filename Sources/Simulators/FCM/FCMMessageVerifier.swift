// Checks the body of messages:send field by field, as Google's JSON front end and FCM do, and extracts the fields for
// the log.

internal import Runtime

/// A valid message, as ranges of the body.
struct FCMMessage {
  var token: ArraySlice<UInt8> = []
  var data: ArraySlice<UInt8> = []
  var priority: ArraySlice<UInt8> = []
  var timeToLive: ArraySlice<UInt8> = []
  var collapseKey: ArraySlice<UInt8>?
  /// The whole message.
  var text: ArraySlice<UInt8> = []
}

struct FCMMessageVerifier {
  /// Maximum size of a message's data in bytes, keys and values together.
  static let dataBytesMax = 4_096
  /// The longest time to live in seconds: four weeks.
  static let timeToLiveMax: Int64 = 2_419_200

  /// Refuses a notification block unless the message's type is meant to be shown: with such a block, Android itself
  /// shows the call as a notification.
  let requiresDataOnly: Bool

  func verify(_ body: [UInt8]) throws(FCMError) -> FCMMessage {
    let json: JSONScanner
    do { json = try JSONScanner(body) } catch { throw FCMError.notJSON }
    guard json.root.kind == .object else { throw FCMError.notJSON }
    var message: FCMMessage?
    for member in json.members(of: json.root) {
      if json.isKey(member, "message") {
        message = try verify(member.value, json)
      } else if !json.isKey(member, "validate_only"), !json.isKey(member, "validateOnly") {
        throw .unknownName(name(member, json), at: "")
      }
    }
    guard let message else {
      throw .invalidArgument("message", "Request is missing required field 'message'.")
    }
    return message
  }

  private func verify(_ value: JSONScanner.Value, _ json: JSONScanner) throws(FCMError) -> FCMMessage {
    guard value.kind == .object else {
      throw .invalidValue(at: "message", type: "type.googleapis.com/google.firebase.fcm.v1.Message")
    }
    var message = FCMMessage(text: json.raw(value))
    var targets = 0
    var hasAndroid = false
    var size = 0
    for member in json.members(of: value) {
      if json.isKey(member, "token") {
        targets += 1
        guard let token = json.contents(member.value) else {
          throw .invalidValue(at: "message.token", type: "TYPE_STRING")
        }
        message.token = token
      } else if json.isKey(member, "data") {
        size += try verify(data: member.value, json, at: "message.data")
        message.data = json.raw(member.value)
      } else if json.isKey(member, "android") {
        hasAndroid = true
        try verify(android: member.value, json, &message, &size, isToBeSeen: isToBeSeen(value, json))
      } else if json.isKey(member, "notification") {
        if requiresDataOnly, !isToBeSeen(value, json) {
          throw .invalidArgument("message.notification", "A call's message must be data only")
        }
        size += member.value.range.count
      } else if json.isKey(member, "topic") || json.isKey(member, "condition") {
        targets += 1
        message.token = []
      } else if json.isKey(member, "apns") {
        try verify(apns: member.value, json)
      } else if !isKnown(member, json, ["name", "webpush", "fcm_options", "fcmOptions"]) {
        throw .unknownName(name(member, json), at: "message")
      }
    }
    guard targets == 1 else {
      throw .invalidArgument("message", "Exactly one of token, topic or condition is required")
    }
    guard isToken(message.token) else { throw .invalidToken }
    guard hasAndroid, !message.priority.isEmpty else {
      throw .invalidArgument("message.android.priority", "A call's message must have a priority")
    }
    guard !message.timeToLive.isEmpty else {
      throw .invalidArgument(
        "message.android.ttl", "A call's message must have a time to live: the default is four weeks")
    }
    guard size <= Self.dataBytesMax else { throw .tooBig }
    return message
  }

  /// Whether the data belongs to a push that is not a call.
  private func isToBeSeen(_ message: JSONScanner.Value, _ json: JSONScanner) -> Bool {
    let type = json.member("data", of: message).flatMap { json.member("type", of: $0) }.flatMap(json.text)
    return ["missed_call", "message", "group_message", "group_invite"].contains(type)
  }

  /// The characters and length of a registration token. Google checks more, but accepts no token that this refuses.
  private func isToken(_ token: ArraySlice<UInt8>) -> Bool {
    guard token.count >= 8, token.count <= 4_096 else { return false }
    return token.allSatisfy { byte in
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: ":"):
        true
      default: false
      }
    }
  }

  /// Checks a map of strings and returns its size in bytes.
  private func verify(
    data value: JSONScanner.Value, _ json: JSONScanner, at path: String
  ) throws(FCMError) -> Int {
    guard value.kind == .object else { throw .invalidValue(at: path, type: "TYPE_MAP") }
    var size = 0
    var index = 0
    for member in json.members(of: value) {
      guard let contents = json.contents(member.value) else {
        throw .invalidValue(at: "\(path)[\(index)].value", type: "TYPE_STRING")
      }
      if isReserved(json.bytes[member.key]) {
        throw .invalidArgument(path, "Invalid data payload key: \(name(member, json))")
      }
      size += member.key.count + contentSize(contents, member.value, json)
      index += 1
    }
    return size
  }

  private func contentSize(_ contents: ArraySlice<UInt8>, _ value: JSONScanner.Value, _ json: JSONScanner) -> Int {
    contents.contains(UInt8(ascii: "\\")) ? json.string(value)?.count ?? 0 : contents.count
  }

  /// The empty name, `from`, `message_type`, and names that begin with `google` or `gcm` (Firebase, “About FCM messages”).
  private func isReserved(_ key: ArraySlice<UInt8>) -> Bool {
    key.isEmpty || key.equals("from") || key.equals("message_type") || key.hasPrefix("google") || key.hasPrefix("gcm")
  }

  private func verify(
    android value: JSONScanner.Value, _ json: JSONScanner, _ message: inout FCMMessage, _ size: inout Int,
    isToBeSeen: Bool
  ) throws(FCMError) {
    guard value.kind == .object else {
      throw .invalidValue(at: "message.android", type: "type.googleapis.com/google.firebase.fcm.v1.AndroidConfig")
    }
    for member in json.members(of: value) {
      if json.isKey(member, "priority") {
        message.priority = try priority(member.value, json)
      } else if json.isKey(member, "ttl") {
        message.timeToLive = try timeToLive(member.value, json)
      } else if json.isKey(member, "collapse_key") || json.isKey(member, "collapseKey") {
        guard let key = json.contents(member.value) else {
          throw .invalidValue(at: "message.android.collapse_key", type: "TYPE_STRING")
        }
        message.collapseKey = key
      } else if json.isKey(member, "direct_boot_ok") || json.isKey(member, "directBootOk") {
        guard member.value.kind == .boolean else {
          throw .invalidValue(at: "message.android.direct_boot_ok", type: "TYPE_BOOL")
        }
      } else if json.isKey(member, "data") {
        size += try verify(data: member.value, json, at: "message.android.data")
        message.data = json.raw(member.value)
      } else if json.isKey(member, "notification") {
        if requiresDataOnly, !isToBeSeen {
          throw .invalidArgument("message.android.notification", "A call's message must be data only")
        }
        size += member.value.range.count
      } else if !isKnown(
        member, json,
        ["restricted_package_name", "restrictedPackageName", "fcm_options", "fcmOptions", "bandwidth_constrained_ok"])
      {
        throw .unknownName(name(member, json), at: "message.android")
      }
    }
  }

  /// The part that FCM forwards to Apple. Apple's rules for headers and payload apply; FCM checks some of them, Apple
  /// all.
  private func verify(apns value: JSONScanner.Value, _ json: JSONScanner) throws(FCMError) {
    guard value.kind == .object else {
      throw .invalidValue(at: "message.apns", type: "type.googleapis.com/google.firebase.fcm.v1.ApnsConfig")
    }
    var headers: [String: String] = [:]
    for member in json.members(of: value) {
      if json.isKey(member, "headers") {
        guard member.value.kind == .object else { throw .invalidValue(at: "message.apns.headers", type: "TYPE_MAP") }
        for header in json.members(of: member.value) {
          guard let text = json.text(header.value) else {
            throw .invalidValue(at: "message.apns.headers[0].value", type: "TYPE_STRING")
          }
          headers[name(header, json)] = text
        }
      } else if json.isKey(member, "payload") {
        guard member.value.kind == .object else {
          throw .invalidValue(at: "message.apns.payload", type: "type.googleapis.com/google.protobuf.Struct")
        }
      } else if !isKnown(
        member, json, ["fcm_options", "fcmOptions", "live_activity_token", "liveActivityToken"])
      {
        throw .unknownName(name(member, json), at: "message.apns")
      }
    }
    let payload = json.member("payload", of: value)
    let aps = payload.flatMap { json.member("aps", of: $0) }
    let hasAlert = aps.flatMap { json.member("alert", of: $0) } != nil
    if headers["apns-push-type"] == "background", hasAlert || headers["apns-priority"] == "10" {
      throw .invalidArgument(
        "message.apns", "A background push has no alert, and the priority 5: Apple refuses anything else")
    }
    if headers["apns-push-type"] == "alert", !hasAlert {
      throw .invalidArgument("message.apns", "An iPhone shows nothing of an alert push without an alert")
    }
    guard value.range.count <= Self.dataBytesMax else { throw .tooBig }
  }

  private func priority(_ value: JSONScanner.Value, _ json: JSONScanner) throws(FCMError) -> ArraySlice<UInt8> {
    guard let priority = json.contents(value),
      priority.equals("HIGH") || priority.equals("NORMAL") || priority.equals("high") || priority.equals("normal")
    else {
      throw .invalidValue(
        at: "message.android.priority",
        type: "type.googleapis.com/google.firebase.fcm.v1.AndroidConfig.AndroidMessagePriority")
    }
    return priority
  }

  /// A protobuf Duration in JSON: digits, perhaps a fraction, `s`.
  private func timeToLive(_ value: JSONScanner.Value, _ json: JSONScanner) throws(FCMError) -> ArraySlice<UInt8> {
    let path = "message.android.ttl"
    guard let text = json.contents(value), text.last == UInt8(ascii: "s") else {
      throw .invalidValue(at: path, type: "type.googleapis.com/google.protobuf.Duration")
    }
    let parts = text.dropLast().split(separator: UInt8(ascii: "."), maxSplits: 1, omittingEmptySubsequences: false)
    guard let seconds = parts[0].decimal, parts.count == 1 || (parts[1].decimal != nil && parts[1].count <= 9) else {
      throw .invalidValue(at: path, type: "type.googleapis.com/google.protobuf.Duration")
    }
    guard seconds <= Self.timeToLiveMax else {
      throw .invalidArgument(path, "Invalid time to live: must be 0s to 2419200s")
    }
    return text
  }

  private func isKnown(_ member: JSONScanner.Member, _ json: JSONScanner, _ names: [StaticString]) -> Bool {
    names.contains { json.isKey(member, $0) }
  }

  private func name(_ member: JSONScanner.Member, _ json: JSONScanner) -> String {
    String(decoding: json.key(member), as: UTF8.self)
  }
}
