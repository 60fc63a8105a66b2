// The counters of webhooks for the metrics.

internal import Synchronization

/// Counts requests by app and result. The number of series does not depend on what receivers answer.
package final class WebhookCounters: Sendable {
  /// The values of the label `result`.
  package enum Result: String, CaseIterable, Sendable {
    /// A status from 200 to 299.
    case acknowledged
    /// Any other status.
    case refused
    /// No answer.
    case unanswered
  }

  private let counts = Mutex<[String: [Result: Int]]>([:])

  package init() {}

  /// These apps have a webhook: their series exist from now on.
  package func add(apps: [String]) {
    counts.withLock { counts in
      for app in apps where counts[app] == nil { counts[app] = [:] }
    }
  }

  package func note(_ app: String, _ answer: WebhookAnswer) {
    let result: Result
    switch answer {
    case .status(200...299, _): result = .acknowledged
    case .status: result = .refused
    case .none: result = .unanswered
    case .withdrawn: return
    }
    counts.withLock { $0[app, default: [:]][result, default: 0] += 1 }
  }

  /// Sorted by app.
  package var snapshot: [(app: String, counts: [Result: Int])] {
    counts.withLock { counts in counts.sorted { $0.key < $1.key }.map { (app: $0.key, counts: $0.value) } }
  }
}
