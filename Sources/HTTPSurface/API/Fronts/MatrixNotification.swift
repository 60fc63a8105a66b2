// The request of Matrix's Push Gateway API, as homeservers send it: POST /_matrix/push/v1/notify.

internal import HTTPTypes
internal import Runtime

/// A notification for the pushers of one user, usually for one pusher.
///
/// What the homeserver itself has set is checked: `devices` with `app_id` and `pushkey`. Everything else may come from a
/// member of the room, who must not be able to cause an error, because the homeserver would repeat the request for a day
/// and send this phone nothing else meanwhile. JSON of another type than expected counts as missing.
struct MatrixNotification {
  struct Device: Equatable {
    var appID: String
    var pushKey: String
    /// When the client set the pusher, in seconds since 1970.
    var setAtSeconds: Int64?
  }

  /// What calls need of an event's content. Nothing else of it is read.
  struct Content: Equatable {
    var callID: String?
    var lifetimeMilliseconds: Int64?
    var hasVideo = false
    var hangUpReason: String?
    /// Of MatrixRTC: whether phones are to ring.
    var isRing = false
    var senderMilliseconds: Int64?
  }

  static let devicesMax = 100

  /// Nil if nothing but counts has changed.
  private(set) var eventID: String?
  private(set) var roomID: String?
  private(set) var type: String?
  private(set) var sender: String?
  private(set) var senderName: String?
  private(set) var roomName: String?
  /// Whether it invites the user to a room.
  private(set) var isInvitation = false
  private(set) var unread: Int64?
  private(set) var content = Content()
  private(set) var devices: [Device] = []

  /// - Throws: 400 if the body is not JSON, or not a notification for devices.
  init(_ json: JSONScanner) throws(APIProblem) {
    guard let notification = json.member("notification"), notification.kind == .object else {
      throw .badMatrix("notification", "must be an object")
    }
    devices = try Self.devices(json, notification)
    func text(_ name: StaticString) -> String? {
      json.member(name, of: notification).flatMap(json.text).flatMap { $0.isEmpty ? nil : $0 }
    }
    eventID = text("event_id")
    roomID = text("room_id")
    type = text("type")
    sender = text("sender")
    senderName = text("sender_display_name")
    roomName = text("room_name") ?? text("room_alias")
    isInvitation =
      text("membership") == "invite"
      && json.member("user_is_target", of: notification).flatMap(json.boolean) == true
    unread = json.member("counts", of: notification).flatMap { json.member("unread", of: $0) }.flatMap(json.integer)
    if let value = json.member("content", of: notification), value.kind == .object {
      content = Self.content(json, value)
    }
  }

  private static func devices(
    _ json: JSONScanner, _ notification: JSONScanner.Value
  ) throws(APIProblem) -> [Device] {
    guard let list = json.member("devices", of: notification), list.kind == .array else {
      throw .badMatrix("notification.devices", "must be an array")
    }
    var devices: [Device] = []
    for element in json.elements(of: list) {
      let path = "notification.devices[\(devices.count)]"
      guard devices.count < devicesMax else {
        throw .badMatrix("notification.devices", "must have at most \(devicesMax) devices")
      }
      guard let appID = json.member("app_id", of: element).flatMap(json.text) else {
        throw .badMatrix("\(path).app_id", "must be a string")
      }
      guard let pushKey = json.member("pushkey", of: element).flatMap(json.text) else {
        throw .badMatrix("\(path).pushkey", "must be a string")
      }
      devices.append(
        Device(
          appID: appID, pushKey: pushKey,
          setAtSeconds: json.member("pushkey_ts", of: element).flatMap(json.integer)))
    }
    guard !devices.isEmpty else { throw .badMatrix("notification.devices", "must have at least one device") }
    return devices
  }

  private static func content(_ json: JSONScanner, _ value: JSONScanner.Value) -> Content {
    func text(_ name: StaticString) -> String? { json.member(name, of: value).flatMap(json.text) }
    func integer(_ name: StaticString) -> Int64? { json.member(name, of: value).flatMap(json.integer) }
    let sdp = json.member("offer", of: value).flatMap { json.member("sdp", of: $0) }.flatMap(json.text) ?? ""
    return Content(
      callID: text("call_id").flatMap { $0.isEmpty ? nil : $0 }, lifetimeMilliseconds: integer("lifetime"),
      hasVideo: text("m.call.intent") == "video"
        || sdp.utf8.split(whereSeparator: { $0 == 0x0A || $0 == 0x0D }).contains { $0.starts(with: "m=video ".utf8) },
      hangUpReason: text("reason"), isRing: text("notification_type") == "ring" || text("notify_type") == "ring",
      senderMilliseconds: integer("sender_ts"))
  }
}

extension APIProblem {
  /// 400: the request is not one of Matrix's Push Gateway API.
  fileprivate static func badMatrix(_ field: String, _ detail: String) -> APIProblem {
    APIProblem(status: .badRequest, name: "invalid-field", detail: detail, field: field)
  }
}
