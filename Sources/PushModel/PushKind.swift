// The kinds of pushes.

/// The purpose of a push. Decides its push type, topic and priority (docs/protocols.md). The raw values are the codes of
/// `push.delivery.kind`.
public enum PushKind: UInt8, CaseIterable, Sendable {
  case invite = 0
  case cancel = 1
  case missedCall = 2
  case notification = 3

  /// The text in `push.deliveries.kind`.
  public var word: String {
    switch self {
    case .invite: "invite"
    case .cancel: "cancel"
    case .missedCall: "missed_call"
    case .notification: "notification"
    }
  }

  /// Whether people see every push of this kind. Two missed calls are shown twice; two invites of a call ring once.
  public var isVisible: Bool {
    switch self {
    case .missedCall, .notification: true
    case .invite, .cancel: false
    }
  }
}
