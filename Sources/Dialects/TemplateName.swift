// The names that are allowed between ${ and } in a template.

internal import Runtime

/// Where a placeholder's text comes from.
enum TemplateName: Equatable, Sendable {
  // baseCallData
  case callID
  /// The call's id if it is a UUID, else a UUID derived from it.
  case callUUID
  case from
  case fromName
  case apartmentNumber
  case buildingName
  case channelName
  case metadata
  /// The chat a message is in, by the payload's `chatId`.
  case chatID
  /// A member of `metadata`: `metadata.photo`.
  case metadataMember([UInt8])
  /// Any other member of the payload: `payload.doorCode`.
  case payloadMember([UInt8])
  /// A text in `data` of the recipient's entry: `recipient.phone`.
  case recipientMember([UInt8])

  // Values of the gateway
  /// When this attempt is sent, by the database's clock: milliseconds since 1970.
  case timestamp
  /// The call's deadline: milliseconds since 1970.
  case expiresAt
  /// The same in seconds, for `apns-expiration`.
  case expiresAtSeconds
  /// The call's id if it fits into a collapse id, else its SHA-256.
  case collapseID
  /// The number of unread messages, from `badge` in the recipient's `data`, else in the payload: a whole number, or missing.
  case badge
  /// Grows with every push of one call.
  case sequence
  case userID
  /// The device's locale (BCP 47).
  case locale
  /// `true` for a video call.
  case isVideo
  /// `video_call` for a video call, else `call`.
  case callType
  /// The end reason that the backend gave; missing while the call rings.
  case endReason
  /// "Incoming call" or "Incoming video call" in the device's language.
  case incomingCallText
  /// "Call ended" in the device's language.
  case callEndedText
  /// "Missed call" or "Missed video call" in the device's language.
  case missedCallText
  /// "New message", "New group message" and "Group invitation" in the device's language.
  case newMessageText
  case newGroupMessageText
  case groupInvitationText
  /// The text of a message, from the payload's `text`; missing unless the app shows texts.
  case messageText
  /// Android's channel for missed calls, if the app's configuration names one.
  case missedCallChannel

  private static let plain: [(name: String, value: TemplateName)] = [
    ("callId", .callID), ("from", .from), ("fromName", .fromName), ("apartmentNumber", .apartmentNumber),
    ("buildingName", .buildingName), ("channelName", .channelName), ("metadata", .metadata), ("timestamp", .timestamp),
    ("expiresAt", .expiresAt), ("seq", .sequence), ("userId", .userID), ("locale", .locale), ("isVideo", .isVideo),
    ("callType", .callType), ("reason", .endReason), ("chatId", .chatID), ("missedCallText", .missedCallText),
    ("newMessageText", .newMessageText), ("newGroupMessageText", .newGroupMessageText),
    ("groupInvitationText", .groupInvitationText), ("incomingCallText", .incomingCallText),
    ("expiresAtSeconds", .expiresAtSeconds), ("callUuid", .callUUID), ("callEndedText", .callEndedText),
    ("collapseId", .collapseID), ("badge", .badge), ("messageText", .messageText),
    ("missedCallChannel", .missedCallChannel),
  ]

  /// Every name that takes no suffix, for error messages.
  static var plainNames: [String] { plain.map(\.name) }

  init?(_ text: String) {
    if let found = Self.plain.first(where: { $0.name == text }) {
      self = found.value
      return
    }
    let parts = text.split(separator: ".", maxSplits: 1, omittingEmptySubsequences: false)
    guard parts.count == 2, !parts[1].isEmpty else { return nil }
    switch parts[0] {
    case "metadata": self = .metadataMember(Array(parts[1].utf8))
    case "payload": self = .payloadMember(Array(parts[1].utf8))
    case "recipient": self = .recipientMember(Array(parts[1].utf8))
    default: return nil
    }
  }

  /// The name as written in templates, for error messages.
  var spelling: String {
    switch self {
    case .metadataMember(let key): "metadata." + String(decoding: key, as: UTF8.self)
    case .payloadMember(let key): "payload." + String(decoding: key, as: UTF8.self)
    case .recipientMember(let key): "recipient." + String(decoding: key, as: UTF8.self)
    default: Self.plain.first { $0.value == self }?.name ?? ""
    }
  }
}
