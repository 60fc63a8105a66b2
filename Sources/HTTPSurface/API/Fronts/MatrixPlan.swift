// From a Matrix event and one pusher to what happens to that phone. Pure.

internal import Runtime
internal import Settings

/// Decides what an event means for one pusher.
struct MatrixPlan {
  enum Action: Equatable {
    /// The event is nothing for this phone.
    case nothing
    /// A call rings, or a notification is shown.
    case enqueue(APICall)
    /// The call was answered elsewhere.
    case answer(callID: String)
    case decline(callID: String, userID: String)
    case end(callID: String, reason: String)
  }

  /// A ring of MatrixRTC that is older than its `lifetime` by more than this is dropped. A sender's clock may be wrong.
  static let clockSkewMilliseconds: Int64 = 30_000
  /// The longest ring window (`push.call_fault`).
  private static let ringSecondsMax: Int64 = 600
  private static let ringSecondsMin: Int64 = 5
  /// Largest size of an id in Matrix, in bytes.
  private static let idMaxBytes = 255
  private static let nameMaxBytes = 120
  private static let unnamedSender = "Matrix"
  /// Below this size no limit of a provider is reached (`push.accept`).
  private static let payloadMaxBytes = 880

  let notification: MatrixNotification
  let target: APIApps.Target
  /// In the form of the provider.
  let token: String
  var traceparent: String?

  /// - Parameter wallMilliseconds: the current time.
  func action(at wallMilliseconds: Int64) -> Action {
    // Counts alone change the number on the app's icon. There is no push for that.
    guard let eventID = notification.eventID else { return .nothing }
    switch notification.type {
    case "m.call.invite":
      return ring(
        callID: callID ?? self.eventCallID(eventID), seconds: seconds(notification.content.lifetimeMilliseconds))
    case "m.call.answer", "m.call.select_answer":
      return callID.map { .answer(callID: $0) } ?? .nothing
    case "m.call.reject":
      return callID.map { .decline(callID: $0, userID: userID) } ?? .nothing
    case "m.call.hangup":
      return callID.map { .end(callID: $0, reason: hangUpReason) } ?? .nothing
    case "m.rtc.notification", "org.matrix.msc4075.rtc.notification", "m.call.notify",
      "org.matrix.msc4075.call.notify":
      guard notification.content.isRing else { return show(eventID, kind: "message") }
      return ringSession(eventID, wallMilliseconds)
    case let type? where Self.isSignalling(type): return .nothing
    case "m.room.member" where notification.isInvitation: return show(eventID, kind: "group_invite")
    default: return show(eventID, kind: "message")
    }
  }

  /// Whether an event of this type belongs to a call, and is nothing that a user would read.
  private static func isSignalling(_ type: String) -> Bool {
    ["m.call.", "m.rtc.", "org.matrix.msc4075.", "org.matrix.msc4310.", "org.matrix.call.", "org.matrix.msc3401.call"]
      .contains { type.hasPrefix($0) }
  }

  // MARK: - Ids

  /// The homeserver sends each event once for each pusher. So a call here is one phone's part of a Matrix call: its id is made
  /// of the phone's token as well, and the same event for the same phone has the same id.
  private func id(_ what: String, _ value: String) -> String {
    TokenIdentity.uuid(of: "matrix", what, target.app, notification.roomID ?? "", value, token)
  }

  /// The id of the call that the content names; nil if the homeserver sends no content.
  private var callID: String? { notification.content.callID.map { id("call", $0) } }
  private func eventCallID(_ eventID: String) -> String { id("event", eventID) }
  private var userID: String { TokenIdentity.userID(of: token) }

  private var hangUpReason: String {
    switch notification.content.hangUpReason {
    case "user_busy": "busy"
    case "invite_timeout": "missed"
    default: "ended"
    }
  }

  // MARK: - Calls

  private func seconds(_ lifetimeMilliseconds: Int64?) -> Int32? {
    guard let lifetimeMilliseconds, lifetimeMilliseconds > 0 else { return nil }
    let rounded = lifetimeMilliseconds / 1000 + (lifetimeMilliseconds % 1000 > 0 ? 1 : 0)
    return Int32(min(max(rounded, Self.ringSecondsMin), Self.ringSecondsMax))
  }

  private func ringSession(_ eventID: String, _ now: Int64) -> Action {
    let lifetime = min(max(notification.content.lifetimeMilliseconds ?? 30_000, 1), Self.ringSecondsMax * 1000)
    var left = lifetime
    if let sent = notification.content.senderMilliseconds {
      let (age, isOverflow) = now.subtractingReportingOverflow(sent)
      guard !isOverflow, age <= lifetime + Self.clockSkewMilliseconds else { return .nothing }
      left = lifetime - max(age, 0)
    }
    return ring(callID: eventCallID(eventID), seconds: seconds(max(left, 1)))
  }

  private func ring(callID: String, seconds: Int32?) -> Action {
    guard target.kind != .apns else {
      // An alert token cannot ring. The phone's VoIP pusher gets the event as well, if its app has one.
      return target.hasVoIP ? .nothing : show(notification.eventID ?? callID, kind: "message")
    }
    let kind = notification.content.hasVideo ? "video_call" : "incoming_call"
    let payload = payload { writer, detail in
      writer.key("callId")
      writer.string(callID)
      writeSender(&writer, detail)
      guard detail >= .ids else { return }
      writer.key("metadata")
      writer.beginObject()
      writeID("roomId", notification.roomID, &writer)
      writeID("eventId", notification.eventID, &writer)
      writeID("callId", notification.content.callID, &writer)
      if detail == .names { writeName("roomName", notification.roomName, &writer) }
      writer.endObject()
    }
    return .enqueue(call(payload, kind, seconds))
  }

  // MARK: - Notifications

  private func show(_ eventID: String, kind: String) -> Action {
    // A VoIP token only rings.
    guard target.kind != .voip else { return .nothing }
    let payload = payload { writer, detail in
      writer.key("messageId")
      writer.string(id("event", eventID))
      writer.key("chatId")
      writer.string(Self.cut(notification.roomID ?? eventID, Self.idMaxBytes))
      writeSender(&writer, detail)
      if let unread = notification.unread, 0...1_000_000 ~= unread {
        writer.key("badge")
        writer.integer(unread)
      }
      guard detail >= .ids else { return }
      writer.key("metadata")
      writer.beginObject()
      writeID("eventId", eventID, &writer)
      if detail == .names { writeName("roomName", notification.roomName, &writer) }
      writer.endObject()
    }
    return .enqueue(call(payload, kind, nil))
  }

  // MARK: - JSON

  private func call(_ payload: [UInt8], _ kind: String, _ seconds: Int32?) -> APICall {
    var writer = JSONWriter(reservingCapacity: 256)
    writer.beginArray()
    TokenEntry(token: token, kind: TokenEntry.Kind(target.kind), isSandbox: target.isSandbox).write(to: &writer)
    writer.endArray()
    return APICall(
      payload: payload, recipients: writer.bytes, app: target.app, ringSeconds: seconds, kind: kind,
      traceparent: traceparent, hasID: true, recipientCount: 1)
  }

  /// How much a payload tells besides what the phone needs.
  private enum Detail: Int, Comparable {
    case none, ids, names
    static func < (one: Detail, other: Detail) -> Bool { one.rawValue < other.rawValue }
  }

  /// The payload with as much as fits into every provider's push: members of a room choose its name and their own, and must not
  /// be able to prevent its calls by that.
  private func payload(_ write: (inout JSONWriter, Detail) -> Void) -> [UInt8] {
    var bytes: [UInt8] = []
    for detail in [Detail.names, .ids, .none] {
      var writer = JSONWriter(reservingCapacity: Self.payloadMaxBytes)
      writer.beginObject()
      write(&writer, detail)
      writer.endObject()
      bytes = writer.bytes
      // Escapes are escaped again where a push has the payload as a string.
      let escapes = bytes.count { $0 == UInt8(ascii: "\\") }
      if bytes.count + escapes <= Self.payloadMaxBytes { break }
    }
    return bytes
  }

  /// Who stands in the title of what is shown. With `format: event_id_only` the homeserver names neither the sender nor the room, and
  /// an id is nothing to show.
  private func writeSender(_ writer: inout JSONWriter, _ detail: Detail) {
    writer.key("from")
    writer.string(Self.cut(notification.sender ?? Self.unnamedSender, Self.idMaxBytes))
    let name = notification.senderName ?? (notification.sender == nil ? notification.roomName : nil)
    if detail == .names { writeName("fromName", name, &writer) }
  }

  private func writeID(_ name: StaticString, _ value: String?, _ writer: inout JSONWriter) {
    guard let value, value.utf8.count <= Self.idMaxBytes else { return }
    writer.key(name)
    writer.string(Self.cut(value, Self.idMaxBytes))
  }

  private func writeName(_ name: StaticString, _ value: String?, _ writer: inout JSONWriter) {
    guard let value = value.map({ Self.cut($0, Self.nameMaxBytes) }), !value.isEmpty else { return }
    writer.key(name)
    writer.string(value)
  }

  /// Without control characters, which Postgres cannot store or a phone would not show, and at most this long.
  private static func cut(_ text: String, _ maxBytes: Int) -> String {
    var cut = String.UnicodeScalarView()
    var bytes = 0
    for scalar in text.unicodeScalars where scalar.properties.generalCategory != .control {
      bytes += UTF8.width(scalar)
      guard bytes <= maxBytes else { break }
      cut.append(scalar)
    }
    return String(cut)
  }
}
