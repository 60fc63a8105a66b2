// The stages of a delivery and their latencies.

/// The start and end of a latency.
enum LoadStage: String, CaseIterable, Sendable {
  /// Scheduled → the commit returned.
  case enqueue
  /// The commit returned → a simulator had the request.
  case commitToRequest = "commit_to_request"
  /// Scheduled → a simulator had the request; without its log, the gateway had sent it.
  case request
  /// Scheduled → the gateway had the answer.
  case answer
  /// Scheduled → settled in Postgres.
  case settle

  /// For people.
  ///
  /// - Parameter isBulk: whether calls were scheduled for the time of their commit.
  func title(isBulk: Bool) -> String {
    let start = isBulk || self == .commitToRequest ? "committed" : "scheduled"
    return switch self {
    case .enqueue: "\(start) → committed"
    case .commitToRequest, .request: "\(start) → request"
    case .answer: "\(start) → answered"
    case .settle: "\(start) → settled"
    }
  }

  /// The stages that are reported.
  static func all(isBulk: Bool) -> [LoadStage] { isBulk ? [.request, .answer, .settle] : allCases }

  /// Microseconds; nil if the delivery has not reached the end of the stage.
  func latency(of delivery: LoadDelivery, hasLog: Bool) -> Int64? {
    let request = hasLog ? delivery.firstReceivedAt : delivery.sentAt
    let (start, end) =
      switch self {
      case .enqueue: (delivery.scheduledAt, delivery.committedAt)
      case .commitToRequest: (delivery.committedAt, request)
      case .request: (delivery.scheduledAt, request)
      case .answer: (delivery.scheduledAt, delivery.answeredAt)
      case .settle: (delivery.scheduledAt, delivery.finishedAt)
      }
    return start > 0 && end > 0 ? end - start : nil
  }
}

/// The latencies of all stages, over some deliveries.
struct LoadLatencies: Sendable {
  /// nil for all.
  let provider: LoadProvider?
  /// The stages that at least one delivery completed.
  let stages: [(stage: LoadStage, histogram: LatencyHistogram)]

  /// - Parameter provider: only its deliveries; nil for all.
  init(_ ledger: LoadLedger, of provider: LoadProvider?, isBulk: Bool) {
    self.provider = provider
    var stages = LoadStage.all(isBulk: isBulk).map { (stage: $0, histogram: LatencyHistogram()) }
    for delivery in ledger.deliveries where delivery.isEnqueued && (provider == nil || delivery.provider == provider) {
      for index in stages.indices {
        guard let latency = stages[index].stage.latency(of: delivery, hasLog: ledger.hasLog) else { continue }
        stages[index].histogram.record(latency)
      }
    }
    self.stages = stages.filter { $0.histogram.count > 0 }
  }

  var title: String { provider?.name ?? "all" }
}
