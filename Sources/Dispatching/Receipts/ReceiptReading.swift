// What Expo's answer to a request for receipts means for each ticket. Pure.

internal import Providers
internal import Queue

/// The receipts of one batch, sorted: to be settled, reported, or asked for again.
struct ReceiptReading {
  private(set) var results: [ReceiptResult] = []
  /// Tickets that have no receipt yet.
  private(set) var missing: [String] = []
  /// The failures and their tokens.
  private(set) var failures: [ReceiptFailure] = []

  init(_ found: [String: PushOutcome], of due: [DueReceipt]) {
    for receipt in due {
      guard var outcome = found[receipt.ticket] else {
        missing.append(receipt.ticket)
        continue
      }
      // The token was dead when the push was sent. A token registered later is not affected.
      if case .tokenInvalid(let reason, _) = outcome {
        outcome = .tokenInvalid(reason: reason, since: receipt.sentAtMilliseconds)
      }
      let reason = outcome.failureReason
      results.append(ReceiptResult(ticket: receipt.ticket, reason: reason))
      if reason != nil { failures.append(ReceiptFailure(token: receipt.token, outcome: outcome)) }
    }
  }
}
