// The hot path: renders a template and a payload to the bytes of a body, without Foundation and without a JSON tree.

internal import Providers
internal import Queue
internal import Runtime

/// Fills the templates of one delivery.
struct TemplateRenderer {
  /// A member that the template requires and the payload lacks.
  struct MissingField: Error, Equatable {
    var name: TemplateName
  }

  private let delivery: Delivery
  private let call: CallData
  private let payload: JSONScanner
  private let fields: BaseCallData
  private let sentAtMilliseconds: Int64
  private let appLanguage: Language?
  private let unknownName: [UInt8]?
  private let missedCallChannel: [UInt8]?
  private let showsMessageText: Bool

  /// - Parameters:
  ///   - call: the delivery's call, or the same with shortened names.
  ///   - sentAtMilliseconds: the time of sending by the database's clock, milliseconds since 1970.
  ///   - appLanguage: for a device whose locale is unknown or not supported.
  ///   - unknownName: for a payload without `fromName`.
  ///   - missedCallChannel: the value of this placeholder.
  ///   - showsMessageText: whether the text of a message may be sent.
  init(
    _ delivery: Delivery, call: CallData, sentAtMilliseconds: Int64, appLanguage: Language?, unknownName: [UInt8]?,
    missedCallChannel: [UInt8]?, showsMessageText: Bool
  ) {
    self.delivery = delivery
    self.call = call
    self.sentAtMilliseconds = sentAtMilliseconds
    self.appLanguage = appLanguage
    self.unknownName = unknownName
    self.missedCallChannel = missedCallChannel
    self.showsMessageText = showsMessageText
    payload = JSONScanner(trusting: call.bytes, in: call.texts.payload)  // from a jsonb column
    fields = BaseCallData(payload)
  }

  func render(_ template: PushTemplate) throws(MissingField) -> [UInt8] {
    var writer = JSONWriter(reservingCapacity: template.literals.count + 2 * call.bytes.count)
    var nestedFrom = 0
    for instruction in template.instructions {
      switch instruction {
      case .literal(let range): writer.raw(template.literals, range)
      case .part(let range): writer.append(template.literals, range)
      case .text(let names, let fallback):
        if appendFirst(names, of: template, to: &writer) { continue }
        guard let fallback else { throw MissingField(name: template.names[names.lowerBound]) }
        writer.append(template.literals, fallback)
      case .json(let names):
        guard appendFirstJSON(names, of: template, to: &writer) else {
          throw MissingField(name: template.names[names.lowerBound])
        }
      case .optionalText(let key, let names):
        let start = writer.bytes.count
        writer.raw(template.literals, key)
        writer.beginString()
        if appendFirst(names, of: template, to: &writer) {
          writer.endString()
        } else {
          writer.bytes.removeLast(writer.bytes.count - start)
        }
      case .optionalJSON(let key, let names):
        let start = writer.bytes.count
        writer.raw(template.literals, key)
        if !appendFirstJSON(names, of: template, to: &writer) { writer.bytes.removeLast(writer.bytes.count - start) }
      case .optionalUUID(let key, let names):
        let start = writer.bytes.count
        writer.raw(template.literals, key)
        writer.beginString()
        if appendFirst(names, of: template, to: &writer, where: Self.isUUID) {
          writer.endString()
        } else {
          writer.bytes.removeLast(writer.bytes.count - start)
        }
      case .choice(let question, let yes, let other): writer.append(template.literals, isTrue(question) ? yes : other)
      case .optionalChoice(let question, let key, let yes):
        if isTrue(question) {
          writer.raw(template.literals, key)
          writer.beginString()
          writer.append(template.literals, yes)
          writer.endString()
        }
      case .otherMembers(let others):
        if !fields.others.isEmpty || !others.coversBaseCallData { append(others, to: &writer) }
      case .beginNested:
        writer.beginString()
        nestedFrom = writer.bytes.count
        writer.bytes.append(Self.fence)
      case .endNested:
        let nested = Array(writer.bytes[(nestedFrom + 1)...])
        writer.bytes.removeLast(nested.count + 1)
        writer.escape(nested, nested.indices)
        writer.endString()
      }
    }
    return writer.bytes
  }

  /// The members of an FCM message beside its data; nothing for other providers.
  /// - Parameter isAndroid: whether the device is known to be an Android, which needs no members for iPhones.
  func members(of template: MessageTemplate, isAndroid: Bool) throws(MissingField) -> FCMMessageMembers {
    var members = FCMMessageMembers()
    if let apns = template.apns, !isAndroid { members.apns = try render(apns) }
    if let notification = template.notification { members.notification = try render(notification) }
    if let android = template.android { members.android = try render(android) }
    return members
  }

  /// Precedes nested JSON while it is written: no comma follows a colon.
  private static let fence = UInt8(ascii: ":")

  private func append(_ others: PushTemplate.OtherMembers, to writer: inout JSONWriter) {
    guard let object = others.ofMetadata ? fields.metadata : payload.root, object.kind == .object else { return }
    for member in payload.members(of: object) {
      let key = call.bytes[member.key]
      guard key.starts(with: others.prefix), !others.reserved.holds(key) else { continue }
      if others.named.contains(where: { $0.elementsEqual(key) }) { continue }
      if member.value.kind == .null, others.asText { continue }
      if others.asText {
        writer.rawKey(call.bytes, member.key)
        writer.beginString()
        appendText(member.value, to: &writer)
        writer.endString()
      } else {
        writer.rawKey(call.bytes, member.key)
        writer.raw(call.bytes, member.value.range)
      }
    }
  }

  // MARK: - Names

  /// Appends the text of the first name that has one. Nothing and an empty text are the same, so an empty name never
  /// hides the next one.
  private func appendFirst(_ names: Range<Int>, of template: PushTemplate, to writer: inout JSONWriter) -> Bool {
    let start = writer.bytes.count
    for index in names {
      appendText(of: template.names[index], to: &writer)
      if writer.bytes.count > start { return true }
    }
    return false
  }

  /// The same, but only for texts of a certain form.
  private func appendFirst(
    _ names: Range<Int>, of template: PushTemplate, to writer: inout JSONWriter,
    where isRight: (ArraySlice<UInt8>) -> Bool
  ) -> Bool {
    let start = writer.bytes.count
    for index in names {
      appendText(of: template.names[index], to: &writer)
      if isRight(writer.bytes[start...]) { return true }
      writer.bytes.removeLast(writer.bytes.count - start)
    }
    return false
  }

  private func isTrue(_ question: Placeholder.Question) -> Bool {
    switch question {
    case .isVideo: isVideo
    case .isUUID: Self.isUUID(delivery.callID)
    }
  }

  /// Eight, four, four, four and twelve hexadecimal digits: the form that Foundation's `UUID` accepts.
  private static func isUUID(_ text: ArraySlice<UInt8>) -> Bool {
    guard text.count == 36 else { return false }
    return zip(0..., text).allSatisfy { index, byte in
      switch (index, byte) {
      case (8, _), (13, _), (18, _), (23, _): byte == UInt8(ascii: "-")
      case (_, UInt8(ascii: "0")...UInt8(ascii: "9")), (_, UInt8(ascii: "a")...UInt8(ascii: "f")),
        (_, UInt8(ascii: "A")...UInt8(ascii: "F")):
        true
      default: false
      }
    }
  }

  private func appendFirstJSON(_ names: Range<Int>, of template: PushTemplate, to writer: inout JSONWriter) -> Bool {
    for index in names where appendJSON(template.names[index], to: &writer) { return true }
    return false
  }

  private func appendText(of name: TemplateName, to writer: inout JSONWriter) {
    switch name {
    case .callID: writer.escape(call.bytes, call.texts.callID)
    case .callUUID: appendCallUUID(to: &writer)
    case .timestamp: writer.appendDecimal(sentAtMilliseconds)
    case .expiresAt: writer.appendDecimal(delivery.deadlineAtMicroseconds / 1000)
    case .expiresAtSeconds: writer.appendDecimal(delivery.deadlineAtMicroseconds / 1_000_000)
    case .collapseID: writer.escape(CallPlanner.collapseID(delivery.callID))
    case .badge: if let badge { writer.appendDecimal(badge) }
    case .sequence: writer.appendDecimal(Int64(delivery.lease.pushNumber))
    case .userID: writer.escape(delivery.bytes, delivery.texts.userID)
    case .locale: if let locale = delivery.texts.locale { writer.escape(delivery.bytes, locale) }
    case .isVideo: writer.bytes.append(contentsOf: isVideo ? Self.true : Self.false)
    case .callType: writer.bytes.append(contentsOf: isVideo ? Self.videoCall : Self.call)
    case .endReason: if let reason = call.texts.endReason { writer.escape(call.bytes, reason) }
    case .incomingCallText: append(isVideo ? .incomingVideoCall : .incomingCall, to: &writer)
    // A provider may deliver it before or after the missed call, and the later one stays: so both say that the call was missed.
    case .callEndedText:
      append(!delivery.precedesMissedCall ? .callEnded : isVideo ? .missedVideoCall : .missedCall, to: &writer)
    case .missedCallText: append(isVideo ? .missedVideoCall : .missedCall, to: &writer)
    case .newMessageText: append(.newMessage, to: &writer)
    case .newGroupMessageText: append(.newGroupMessage, to: &writer)
    case .groupInvitationText: append(.groupInvitation, to: &writer)
    case .messageText: appendMessageText(to: &writer)
    case .missedCallChannel:
      if let missedCallChannel { writer.escape(missedCallChannel, missedCallChannel.indices) }
    case .recipientMember(let key):
      if let text = recipientText(key) { writer.append(delivery.bytes, text) }
    default:
      if let value = value(of: name) {
        appendText(value, to: &writer)
      } else if name == .fromName, let unknownName {
        writer.escape(unknownName, unknownName.indices)
      }
    }
  }

  /// Version 8 (RFC 9562 §5.8) of the id's SHA-256: the same for every push of a call.
  private func appendCallUUID(to writer: inout JSONWriter) {
    guard !Self.isUUID(delivery.callID) else { return writer.escape(call.bytes, call.texts.callID) }
    var digest = SHA256.digest(Array(delivery.callID))
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    for (index, byte) in digest.prefix(16).enumerated() {
      if [4, 6, 8, 10].contains(index) { writer.bytes.append(UInt8(ascii: "-")) }
      for digit in [byte >> 4, byte & 0xF] { writer.bytes.append(digit + UInt8(ascii: digit < 10 ? "0" : "W")) }
    }
  }

  /// The text of a message, cut between two characters if it is too long. A push has at most two copies of it.
  private func appendMessageText(to writer: inout JSONWriter) {
    guard showsMessageText, let text = other(Self.textKey).flatMap(payload.text),
      text.contains(where: { !$0.isWhitespace })
    else { return }
    let start = writer.bytes.count
    for character in text {
      let end = writer.bytes.count
      writer.escape(Array(character.utf8)[...])
      guard writer.bytes.count - start > Self.messageTextBytesMax else { continue }
      writer.bytes.removeLast(writer.bytes.count - end)
      writer.bytes.append(contentsOf: "\u{2026}".utf8)
      return
    }
  }

  /// Counted as JSON. The database's check of a payload's size allows as much (`push.size_faults`).
  private static let messageTextBytesMax = 1000

  /// The contents of a text in the recipient's `data`, in the delivery's bytes.
  private func recipientText(_ key: [UInt8]) -> Range<Int>? {
    guard let range = delivery.texts.data else { return nil }
    let data = JSONScanner(trusting: delivery.bytes, in: range)  // from a jsonb column
    guard let value = data.member(key, of: data.root), value.kind == .string else { return nil }
    return value.contents
  }

  private func append(_ text: VisibleText, to writer: inout JSONWriter) {
    writer.bytes.append(contentsOf: text.text(in: language).utf8)
  }

  /// Appends a name as a JSON value; false when there is none.
  private func appendJSON(_ name: TemplateName, to writer: inout JSONWriter) -> Bool {
    if let value = value(of: name) {
      writer.raw(call.bytes, value.range)
    } else if name == .isVideo {
      writer.boolean(isVideo)
    } else if name == .badge {
      guard let badge else { return false }
      writer.integer(badge)
    } else {
      let start = writer.bytes.count
      writer.beginString()
      let empty = writer.bytes.count
      appendText(of: name, to: &writer)
      guard writer.bytes.count > empty else {
        writer.bytes.removeLast(writer.bytes.count - start)
        return false
      }
      writer.endString()
    }
    return true
  }

  /// The payload's value of a name; nil for null and for names that are not in the payload.
  private func value(of name: TemplateName) -> JSONScanner.Value? {
    let value: JSONScanner.Value? =
      switch name {
      case .from: fields.from
      case .fromName: fields.fromName.flatMap { isBlank($0) ? nil : $0 }
      case .apartmentNumber: fields.apartmentNumber
      case .buildingName: fields.buildingName
      case .channelName: fields.channelName
      case .metadata: fields.metadata
      case .chatID: other(Self.chatIDKey)
      case .metadataMember(let key): fields.metadata.flatMap { payload.member(key, of: $0) }
      case .payloadMember(let key):
        BaseCallData.holds(key) ? payload.member(key, of: payload.root) : other(key)
      default: nil
      }
    return value?.kind == .null ? nil : value
  }

  /// Whether a name is blank. A blank name counts as missing.
  private func isBlank(_ value: JSONScanner.Value) -> Bool {
    value.kind == .string && call.bytes[value.contents].allSatisfy { $0 == UInt8(ascii: " ") }
  }

  /// The payload's member with this name, outside baseCallData; the last one if there are several.
  private func other(_ key: [UInt8]) -> JSONScanner.Value? {
    fields.others.last { payload.isKey($0, key) }?.value
  }

  /// A value's text as the contents of a string: a string's own, a number or a boolean as written, anything else as JSON.
  private func appendText(_ value: JSONScanner.Value, to writer: inout JSONWriter) {
    switch value.kind {
    case .string: writer.append(call.bytes, value.contents)
    case .number, .boolean: writer.append(call.bytes, value.range)
    case .object, .array: writer.escape(call.bytes, value.range)
    case .null: break
    }
  }

  /// The recipient's `badge`, else the payload's, as a whole number; nil for anything else, because iOS would refuse or ignore it.
  private var badge: Int64? {
    if let own = recipientText(Self.badgeKey), let count = Self.count(delivery.bytes[own]) { return count }
    guard let value = value(of: .payloadMember(Self.badgeKey)) else { return nil }
    if let number = payload.integer(value) { return number >= 0 ? number : nil }
    return payload.contents(value).flatMap(Self.count)
  }

  /// The number that a text is.
  private static func count(_ digits: ArraySlice<UInt8>) -> Int64? {
    guard (1...9).contains(digits.count) else { return nil }
    return Int64(String(decoding: digits, as: UTF8.self)).flatMap { $0 >= 0 ? $0 : nil }
  }

  private var isVideo: Bool {
    if delivery.callKind.elementsEqual(Self.videoCall) { return true }
    guard let value = value(of: .metadataMember(Self.isVideoKey)) else { return false }
    return payload.boolean(value) ?? (payload.contents(value)?.elementsEqual(Self.true) ?? false)
  }

  /// The device's language, else the app's, else English.
  private var language: Language {
    delivery.locale.flatMap { Language(locale: $0) } ?? appLanguage ?? .english
  }

  private static let `true` = Array("true".utf8)
  private static let `false` = Array("false".utf8)
  private static let call = Array("call".utf8)
  private static let videoCall = Array("video_call".utf8)
  private static let chatIDKey = Array("chatId".utf8)
  private static let badgeKey = Array("badge".utf8)
  private static let textKey = Array("text".utf8)
  private static let isVideoKey = Array("isVideo".utf8)
}

extension PushTemplate.OtherMembers.Reserved {
  /// Whether a member of a payload may not be passed on under this name.
  func holds(_ key: ArraySlice<UInt8>) -> Bool {
    switch self {
    case .none: false
    case .apns: key.elementsEqual("aps".utf8) || key.starts(with: "gcm.".utf8) || key.starts(with: "google.".utf8)
    case .fcm: key.elementsEqual("aps".utf8) || FCMDataKey.isReserved(key)
    }
  }
}
