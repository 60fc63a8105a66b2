// The hot path: a template and a payload become the bytes of a body, without Foundation and without a tree of objects.

internal import Queue
internal import Runtime

/// Fills the templates of one delivery.
struct TemplateRenderer {
  /// What a payload lacks that the template cannot do without.
  struct MissingField: Error, Equatable {
    var name: TemplateName
  }

  private let delivery: Delivery
  private let payload: JSONScanner
  private let fields: BaseCallData
  private let sentAtMilliseconds: Int64
  private let appLanguage: Language?

  /// - Parameters:
  ///   - sentAtMilliseconds: the time of sending by the database's clock, milliseconds since 1970.
  ///   - appLanguage: for a device whose locale is unknown, or in none of our languages.
  init(_ delivery: Delivery, sentAtMilliseconds: Int64, appLanguage: Language?) {
    self.delivery = delivery
    self.sentAtMilliseconds = sentAtMilliseconds
    self.appLanguage = appLanguage
    payload = JSONScanner(trusting: delivery.call.bytes, in: delivery.call.texts.payload)  // from a jsonb column
    fields = BaseCallData(payload)
  }

  func render(_ template: PushTemplate) throws(MissingField) -> [UInt8] {
    var writer = JSONWriter(reservingCapacity: template.literals.count + delivery.call.bytes.count)
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
      case .otherMembers(let others):
        if fields.hasOthers || !others.coversBaseCallData { append(others, to: &writer) }
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

  /// Stands before nested JSON while it is written: after a colon no comma comes.
  private static let fence = UInt8(ascii: ":")

  private func append(_ others: PushTemplate.OtherMembers, to writer: inout JSONWriter) {
    for member in payload.members(of: payload.root) {
      let key = delivery.call.bytes[member.key]
      if others.named.contains(where: { $0.elementsEqual(key) }) { continue }
      if others.asText {
        if FCMDataKey.isReserved(key) || member.value.kind == .null { continue }
        writer.rawKey(delivery.call.bytes, member.key)
        writer.beginString()
        appendText(member.value, to: &writer)
        writer.endString()
      } else {
        writer.rawKey(delivery.call.bytes, member.key)
        writer.raw(delivery.call.bytes, member.value.range)
      }
    }
  }

  // MARK: - Names

  /// Appends the text of the first name that has one. Nothing and an empty text are the same, so that an empty name never
  /// hides the next best.
  private func appendFirst(_ names: Range<Int>, of template: PushTemplate, to writer: inout JSONWriter) -> Bool {
    let start = writer.bytes.count
    for index in names {
      appendText(of: template.names[index], to: &writer)
      if writer.bytes.count > start { return true }
    }
    return false
  }

  private func appendFirstJSON(_ names: Range<Int>, of template: PushTemplate, to writer: inout JSONWriter) -> Bool {
    for index in names where appendJSON(template.names[index], to: &writer) { return true }
    return false
  }

  private func appendText(of name: TemplateName, to writer: inout JSONWriter) {
    switch name {
    case .callID: writer.escape(delivery.call.bytes, delivery.call.texts.callID)
    case .timestamp: writer.appendDecimal(sentAtMilliseconds)
    case .expiresAt: writer.appendDecimal(delivery.deadlineAtMicroseconds / 1000)
    case .sequence: writer.appendDecimal(Int64(delivery.lease.number))
    case .userID: writer.escape(delivery.bytes, delivery.texts.userID)
    case .locale: if let locale = delivery.texts.locale { writer.escape(delivery.bytes, locale) }
    case .isVideo: writer.bytes.append(contentsOf: isVideo ? Self.true : Self.false)
    case .callType: writer.bytes.append(contentsOf: isVideo ? Self.videoCall : Self.call)
    case .endReason: if let reason = delivery.call.texts.endReason { writer.escape(delivery.call.bytes, reason) }
    case .missedCallText: append(isVideo ? .missedVideoCall : .missedCall, to: &writer)
    case .newMessageText: append(.newMessage, to: &writer)
    case .newGroupMessageText: append(.newGroupMessage, to: &writer)
    case .groupInvitationText: append(.groupInvitation, to: &writer)
    default: if let value = value(of: name) { appendText(value, to: &writer) }
    }
  }

  private func append(_ text: VisibleText, to writer: inout JSONWriter) {
    writer.bytes.append(contentsOf: text.text(in: language).utf8)
  }

  /// Appends a name as a JSON value; false when there is none.
  private func appendJSON(_ name: TemplateName, to writer: inout JSONWriter) -> Bool {
    if let value = value(of: name) {
      writer.raw(delivery.call.bytes, value.range)
    } else if name == .isVideo {
      writer.boolean(isVideo)
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

  /// The payload's value of a name; nil for what comes from elsewhere and for null.
  private func value(of name: TemplateName) -> JSONScanner.Value? {
    let value: JSONScanner.Value? =
      switch name {
      case .from: fields.from
      case .fromName: fields.fromName
      case .apartmentNumber: fields.apartmentNumber
      case .buildingName: fields.buildingName
      case .channelName: fields.channelName
      case .metadata: fields.metadata
      case .chatID: payload.member("chatId")
      case .metadataMember(let key): fields.metadata.flatMap { payload.member(key, of: $0) }
      case .payloadMember(let key): payload.member(key, of: payload.root)
      default: nil
      }
    return value?.kind == .null ? nil : value
  }

  /// A value's text as the contents of a string: a string's own, a number or a boolean as written, anything else as JSON.
  private func appendText(_ value: JSONScanner.Value, to writer: inout JSONWriter) {
    switch value.kind {
    case .string: writer.append(delivery.call.bytes, value.contents)
    case .number, .boolean: writer.append(delivery.call.bytes, value.range)
    case .object, .array: writer.escape(delivery.call.bytes, value.range)
    case .null: break
    }
  }

  private var isVideo: Bool {
    if delivery.callKind.elementsEqual(Self.videoCall) { return true }
    guard let value = value(of: .metadataMember(Self.isVideoKey)) else { return false }
    return payload.boolean(value) ?? (payload.contents(value)?.elementsEqual(Self.true) ?? false)
  }

  /// The device's, else the app's, else English.
  private var language: Language {
    delivery.locale.flatMap { Language(locale: $0) } ?? appLanguage ?? .english
  }

  private static let `true` = Array("true".utf8)
  private static let `false` = Array("false".utf8)
  private static let call = Array("call".utf8)
  private static let videoCall = Array("video_call".utf8)
  private static let isVideoKey = Array("isVideo".utf8)
}
