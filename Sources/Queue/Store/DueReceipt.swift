// One of Expo's tickets.

/// A ticket whose receipt is to be looked up now.
public struct DueReceipt: Sendable {
  /// The ticket's id at Expo.
  public var ticket: String
  /// The device token the push went to.
  public var token: [UInt8]
  /// When the push was sent, in milliseconds since 1970. The receipt says nothing about a token registered later.
  public var sentAtMilliseconds: Int64

  public init(ticket: String, token: [UInt8], sentAtMilliseconds: Int64) {
    self.ticket = ticket
    self.token = token
    self.sentAtMilliseconds = sentAtMilliseconds
  }
}
