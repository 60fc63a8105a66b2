// Whether the promises were kept: nothing lost, nothing sent twice without a reason, nothing late.

/// The result of a load.
struct LoadVerdict: Equatable, Sendable {
  /// Number of deliveries whose call was committed.
  var enqueued = 0
  var settled = 0
  /// Neither finished nor lost when the test ended.
  var owed = 0
  /// Committed, but neither settled nor owed; or settled as delivered, and no simulator accepted it.
  var lost = 0
  /// More accepted requests than the record explains, or more than one settlement.
  var duplicated = 0
  /// A request was received (without the log: sent) after the deadline.
  var late = 0
  /// Settled but not delivered, and how many of these requested a fault.
  var failed = 0
  var failedAsAsked = 0
  /// Settled deliveries by outcome.
  var outcomes: [LoadDelivery.Outcome: Int] = [:]
  /// Accepted requests after the first one of each delivery, explained or not.
  var repeats = 0

  init(_ ledger: LoadLedger) {
    for delivery in ledger.deliveries where delivery.isEnqueued { add(delivery, hasLog: ledger.hasLog) }
  }

  private mutating func add(_ delivery: LoadDelivery, hasLog: Bool) {
    enqueued += 1
    if let outcome = delivery.outcome {
      settled += 1
      outcomes[outcome, default: 0] += 1
      if outcome.isDelivered {
        if hasLog && delivery.receivedCount == 0 { lost += 1 }
      } else {
        failed += 1
        if delivery.isFaulty { failedAsAsked += 1 }
      }
    } else if delivery.isOwed {
      owed += 1
    } else {
      lost += 1
    }
    repeats += max(0, Int(delivery.receivedCount) - 1)
    if delivery.receivedCount > delivery.explainedRequests || delivery.settlements > 1 { duplicated += 1 }
    let lastRequest = hasLog ? delivery.lastReceivedAt : delivery.sentAt
    if delivery.deadlineAt > 0 && lastRequest > delivery.deadlineAt { late += 1 }
  }

  /// Whether no promise was broken. Deliveries that the provider refused, or that are still owed, break none.
  var isGood: Bool { lost == 0 && duplicated == 0 && late == 0 }

  /// The result in one line.
  var line: String {
    var parts = ["\(lost) lost", "\(duplicated) duplicated", "\(late) late", "\(failed) failed"]
    if failedAsAsked > 0 { parts[3] += " (\(failedAsAsked) of them with a requested fault)" }
    if owed > 0 { parts.append("\(owed) owed") }
    return "\(isGood ? "GOOD" : "BAD"): " + parts.joined(separator: ", ") + " of \(enqueued) deliveries"
  }
}
