// How deliveries end.

/// How a delivery ended; the raw values are the codes of `push.history.outcome`.
public enum DeliveryOutcome: UInt8, CaseIterable, Sendable {
  case delivered = 0
  case deliveredLate = 1
  case void = 2
  case expired = 3
  case dead = 4

  /// As `push.delivery_history.outcome` has it.
  public var word: String {
    switch self {
    case .delivered: "delivered"
    case .deliveredLate: "delivered_late"
    case .void: "void"
    case .expired: "expired"
    case .dead: "dead"
    }
  }
}
