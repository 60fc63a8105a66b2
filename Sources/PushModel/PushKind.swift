// What a push is for.

/// What a push is for. Decides its push type, topic and priority (docs/protocols.md). The raw values are the codes of
/// `push.delivery.kind`.
public enum PushKind: UInt8, CaseIterable, Sendable {
  case invite = 0
  case cancel = 1
  case missedCall = 2
  case notification = 3

  /// As `push.deliveries.kind` has it.
  public var word: String {
    switch self {
    case .invite: "invite"
    case .cancel: "cancel"
    case .missedCall: "missed_call"
    case .notification: "notification"
    }
  }

  /// Whether people see each push of it: two missed calls stay two, while a phone makes one call of two invites.
  public var isVisible: Bool {
    switch self {
    case .missedCall, .notification: true
    case .invite, .cancel: false
    }
  }
}
