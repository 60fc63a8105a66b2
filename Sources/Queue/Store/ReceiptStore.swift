// The store of Expo's receipts, as their collector sees it: which are due, what they said, which are looked up again later.

public import Runtime

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

/// Keeps tickets across restarts. Gives each ticket to one replica at a time.
public protocol ReceiptStore: Sendable {
  /// At most `max` due tickets of an app. No other replica gets them before `lease` is over.
  func claimReceipts(app: String, max: Int, lease: Nanoseconds) async throws(OutboxError) -> [DueReceipt]
  /// Records what receipts said. Returns how many of them were still open.
  func settleReceipts(app: String, _ results: [ReceiptResult]) async throws(OutboxError) -> Int
  /// Looks the receipts of these tickets up again after `delay`, because there are none yet.
  func postponeReceipts(app: String, _ tickets: [String], by delay: Nanoseconds) async throws(OutboxError) -> Int
  /// Deletes tickets whose receipts are gone (24 hours after sending). Returns how many.
  func giveUpReceipts(app: String) async throws(OutboxError) -> Int
}
