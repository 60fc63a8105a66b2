// The API's counters for the metrics.

internal import Synchronization

/// Counts requests by operation and status, and refusals by reason. The number of series does not depend on what
/// clients send.
package final class APICounters: Sendable {
  /// The statuses with a series of their own. Any other status is counted as `other`.
  static let statuses = [200, 202, 204, 400, 401, 403, 404, 405, 409, 413, 415, 422, 429, 500, 503]
  /// The label for requests whose path or method belongs to no operation.
  static let noOperation = "none"

  struct Snapshot: Sendable {
    fileprivate(set) var requests: [String: [String: Int]] = [:]
    fileprivate(set) var refusals: [APIRefusal.Reason: Int] = [:]
    fileprivate(set) var refusedTokens: [APIOperation: Int] = [:]

    /// - Parameter status: one of `statuses`; nil for all others together.
    func requests(_ operation: APIOperation?, _ status: Int?) -> Int {
      requests[operation?.rawValue ?? APICounters.noOperation]?[status.map(String.init) ?? "other"] ?? 0
    }
  }

  private let counts = Mutex(Snapshot())

  var snapshot: Snapshot { counts.withLock { $0 } }

  /// - Parameter operation: nil if the path belongs to no operation.
  func note(_ operation: APIOperation?, status: Int, _ refusal: APIRefusal.Reason?, refusedTokens: Int = 0) {
    let status = Self.statuses.contains(status) ? String(status) : "other"
    counts.withLock { counts in
      counts.requests[operation?.rawValue ?? Self.noOperation, default: [:]][status, default: 0] += 1
      if let refusal { counts.refusals[refusal, default: 0] += 1 }
      if let operation, refusedTokens > 0 { counts.refusedTokens[operation, default: 0] += refusedTokens }
    }
  }
}

extension APIOperation {
  /// The status of success.
  var success: Int {
    switch self {
    case .enqueueCall: 202
    case .registerDevice, .dropDevice: 204
    case .addRecipients, .answerCall, .declineCall, .endCall, .reportRinging, .readCall, .notifyMatrix, .pushGorush: 200
    }
  }

  /// Whether the operation changes nothing.
  var isReading: Bool { self == .readCall }
}
