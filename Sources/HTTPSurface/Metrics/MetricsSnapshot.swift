// What a scrape tells of: copies, taken on the gateway's loop in one go, or what there is before the gateway runs.

import Dispatching
import Providers
import Queue
import Runtime

/// The gateway at one moment.
struct MetricsSnapshot: Sendable {
  /// One lane of ours as it is now.
  struct Lane: Sendable {
    var condition: LaneCondition
    var provider = ProviderCondition()
    /// How much the provider's clock is ahead of ours; zero until it was measured.
    var clockSkew = Nanoseconds.zero
  }

  var counters: DispatcherCounters
  /// In the order of the first of `counters.lanes`.
  var lanes: [Lane]
  var outbox = OutboxCounters()
  /// Tickets whose receipts never came, by app.
  var lostReceipts: [String: Int] = [:]

  /// Before anything has happened: every series at zero.
  init(lanes: [(app: String, provider: ProviderKind)]) {
    counters = DispatcherCounters(lanes: lanes)
    self.lanes = lanes.map { _ in
      Lane(
        condition: LaneCondition(
          lane: 0, window: 0, capacity: 0, inFlight: 0, circuit: .closed, wait: .zero, perSecond: 0))
    }
  }

  init(counters: DispatcherCounters, lanes: [Lane]) {
    self.counters = counters
    self.lanes = lanes
  }
}
