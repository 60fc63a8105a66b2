// The store of Expo's receipts, as their collector sees it: which are due, what they said, which are looked up again later.

public import Runtime

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
