// Receipts as their collector sees them: what is due, what was said, what is looked up again later.

public import Runtime

/// A ticket whose receipt is to be looked up now.
public struct DueReceipt: Sendable {
  /// The ticket's id at Expo.
  public var ticket: String
  /// The device token the push went to.
  public var token: [UInt8]
  /// When it was sent, in milliseconds since 1970: a token registered later is not meant.
  public var sentAtMilliseconds: Int64

  public init(ticket: String, token: [UInt8], sentAtMilliseconds: Int64) {
    self.ticket = ticket
    self.token = token
    self.sentAtMilliseconds = sentAtMilliseconds
  }
}

/// What a receipt said.
public struct ReceiptVerdict: Sendable, Equatable {
  public var ticket: String
  /// Why the push did not reach the phone's own service; nil: it did.
  public var reason: String?

  public init(ticket: String, reason: String?) {
    self.ticket = ticket
    self.reason = reason
  }
}

/// Keeps tickets across restarts, and gives each to one replica at a time.
public protocol ReceiptStore: Sendable {
  /// Up to `max` due tickets of an app, which nobody else gets before `lease` is over.
  func claimReceipts(app: String, max: Int, lease: Nanoseconds) async throws(OutboxError) -> [DueReceipt]
  /// Writes down what receipts said; returns how many were still open.
  func settleReceipts(app: String, _ verdicts: [ReceiptVerdict]) async throws(OutboxError) -> Int
  /// There is no receipt yet: to be looked up again after `delay`.
  func postponeReceipts(app: String, _ tickets: [String], by delay: Nanoseconds) async throws(OutboxError) -> Int
  /// Forgets tickets whose receipts are gone (24 hours after sending); returns how many.
  func giveUpReceipts(app: String) async throws(OutboxError) -> Int
}
