// What became of one of Expo's tickets.

/// What a receipt said.
public struct ReceiptResult: Sendable, Equatable {
  public var ticket: String
  /// Why the push did not reach APNs or FCM; nil if it did.
  public var reason: String?

  public init(ticket: String, reason: String?) {
    self.ticket = ticket
    self.reason = reason
  }
}
