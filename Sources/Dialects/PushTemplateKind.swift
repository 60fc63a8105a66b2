// The kinds of templates and their names.

internal import PushModel

enum PushTemplateKind: String, CaseIterable, Sendable {
  case invite
  case cancel
  case missedCall = "missed_call"
  case message
  case groupMessage = "group_message"
  case groupInvite = "group_invite"

  /// The kind of a delivery, or nil for a notification of a kind that is not known here.
  /// - Parameter callKind: as the backend wrote it; gives the kind of a notification.
  init?(_ kind: PushKind, callKind: ArraySlice<UInt8>) {
    switch kind {
    case .invite: self = .invite
    case .cancel: self = .cancel
    case .missedCall: self = .missedCall
    case .notification:
      guard let found = Self(rawValue: String(decoding: callKind, as: UTF8.self)), found.isNotification else {
        return nil
      }
      self = found
    }
  }

  /// The kind's index.
  var index: Int {
    switch self {
    case .invite: 0
    case .cancel: 1
    case .missedCall: 2
    case .message: 3
    case .groupMessage: 4
    case .groupInvite: 5
    }
  }

  var pushKind: PushKind {
    switch self {
    case .invite: .invite
    case .cancel: .cancel
    case .missedCall: .missedCall
    case .message, .groupMessage, .groupInvite: .notification
    }
  }

  /// Whether it is shown and is not part of a ringing call.
  var isNotification: Bool { self != .invite && self != .cancel }
}
