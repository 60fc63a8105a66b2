// Whether the promises were kept: nothing lost, nothing sent twice without a reason, nothing late, and no failure that was not
// asked for.

/// The result of a load.
struct LoadVerdict: Equatable, Sendable {
  enum Result: String, Sendable {
    case good, bad
    /// Nothing was enqueued, the run was stopped, or not all deliveries were settled.
    case incomplete

    /// Of the program.
    var exitCode: Int32 {
      switch self {
      case .good: 0
      case .bad: 1
      case .incomplete: 2
      }
    }
  }

  /// Number of deliveries whose call was committed.
  var enqueued = 0
  var settled = 0
  /// Neither finished nor lost when the test ended.
  var owed = 0
  /// Committed, but neither settled nor owed; or settled as delivered, and not in the simulators' log, which is complete until then.
  var lost = 0
  /// Settled as delivered, and answered after the end of what could be read of the simulators' log.
  var unseen = 0
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
  /// Number of calls by the answer to them: `committed` or the SQLSTATE, or the status over HTTP.
  var answers: [String: Int]
  /// Number of calls that were to be enqueued, and of those that were refused.
  var calls: Int
  var refused: Int
  /// The conditions of the run, and what was measured.
  private(set) var requirements: [LoadRequirement.Outcome] = []
  /// Why the run ended early; nil if it did not.
  var cut: String?
  /// Whether there was a log of the simulators to check against.
  let hasLog: Bool

  /// - Parameter cut: why the run ended early; nil if it did not.
  init(_ ledger: LoadLedger, requirements: [LoadRequirement] = [], isBulk: Bool = false, cut: String? = nil) {
    hasLog = ledger.hasLog
    self.cut = cut
    answers = ledger.answers
    calls = ledger.answers.values.reduce(0, +)
    refused = ledger.refusedCount
    for delivery in ledger.deliveries where delivery.isEnqueued { add(delivery, logEnd: ledger.logEnd) }
    guard !requirements.isEmpty else { return }
    let stages = LoadLatencies(ledger, of: nil, isBulk: isBulk).stages
    let histograms = Dictionary(uniqueKeysWithValues: stages.map { ($0.stage, $0.histogram) })
    let verdict = self
    self.requirements = requirements.map { $0.outcome(verdict, histograms) }
  }

  private mutating func add(_ delivery: LoadDelivery, logEnd: Int64) {
    enqueued += 1
    if let outcome = delivery.outcome {
      settled += 1
      outcomes[outcome, default: 0] += 1
      if outcome.isDelivered {
        if hasLog, delivery.isUnseen {
          if delivery.endedAt <= logEnd { lost += 1 } else { unseen += 1 }
        }
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

  var delivered: Int { settled - failed }
  var failedUnasked: Int { failed - failedAsAsked }

  /// A broken promise is certain, however the run would have gone on. A condition is judged only when the run is complete.
  var result: Result {
    if !certainFaults.isEmpty { return .bad }
    if !gaps.isEmpty { return .incomplete }
    return requirements.allSatisfy(\.isMet) ? .good : .bad
  }

  var isGood: Bool { result == .good }

  /// Why the run is not GOOD, in one clause each; empty if it is.
  var reasons: [String] {
    certainFaults + gaps + requirements.filter { !$0.isMet }.map { "\($0.requirement.text) is not met" }
  }

  private var certainFaults: [String] {
    var faults: [String] = []
    if lost > 0 { faults.append("\(lost) lost") }
    if duplicated > 0 { faults.append("\(duplicated) duplicated") }
    if late > 0 { faults.append("\(late) late") }
    if failedUnasked > 0, !limits(.failed), !limits(.delivered) {
      faults.append("\(failedUnasked) failed without a requested fault, and no condition allows it")
    }
    if refused > 0, !limits(.refused) {
      faults.append("\(refused) of \(calls) calls refused, and no condition allows it")
    }
    return faults
  }

  private var gaps: [String] {
    var gaps: [String] = []
    if let cut { gaps.append(cut) }
    if enqueued == 0 { gaps.append("nothing was enqueued") }
    if owed > 0 { gaps.append("\(owed) not settled") }
    if unseen > 0 {
      gaps.append(
        "\(unseen) delivered, but the simulators' log ends before that: they are frozen, or it is another log")
    }
    return gaps
  }

  /// Whether a condition decides about this count, instead of the rule that it is 0.
  private func limits(_ count: LoadRequirement.Count) -> Bool {
    requirements.contains { $0.requirement.metric == .count(count) }
  }

  /// What nobody looked at, in one clause each.
  var unchecked: [String] {
    hasLog
      ? []
      : ["whether a push arrived at all", "whether it arrived more than once", "when it arrived"]
  }

  /// The result in one line.
  var line: String {
    var parts = ["\(lost) lost", "\(duplicated) duplicated", "\(late) late", "\(failed) failed"]
    if failedAsAsked > 0 { parts[3] += " (\(failedAsAsked) of them with a requested fault)" }
    if owed > 0 { parts.append("\(owed) owed") }
    if unseen > 0 { parts.append("\(unseen) not in the log yet") }
    if refused > 0 { parts.append("\(refused) calls refused") }
    return "\(result.rawValue.uppercased()): " + parts.joined(separator: ", ") + " of \(enqueued) deliveries"
      + (unchecked.isEmpty ? "" : ". Not checked without a simulators' log: " + unchecked.joined(separator: ", "))
  }
}
