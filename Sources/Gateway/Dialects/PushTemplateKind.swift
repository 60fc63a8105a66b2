// What a template is for, by the names templates are filed under.

internal import Providers
internal import Queue

enum PushTemplateKind: String, CaseIterable, Sendable {
  case invite
  case cancel
  case missedCall = "missed_call"
  case notification

  init(_ kind: DeliveryKind) {
    self =
      switch kind {
      case .invite: .invite
      case .cancel: .cancel
      case .missedCall: .missedCall
      case .notification: .notification
      }
  }

  var pushKind: PushKind {
    switch self {
    case .invite: .invite
    case .cancel: .cancel
    case .missedCall: .missedCall
    case .notification: .notification
    }
  }
}

/// The device's system, where that changes what it must be sent.
enum DevicePlatform: String, CaseIterable, Sendable {
  case ios
  case android
}
