// The data of a scrape: copies made in one hop to the gateway's event loop, or zeros before the gateway runs.

import Dispatching
import Providers
import Queue
import Runtime

/// The state of the gateway at one moment.
struct MetricsSnapshot: Sendable {
  /// The state of one lane.
  struct Lane: Sendable {
    var condition: LaneCondition
    var provider = ProviderCondition()
    /// How far the provider's clock is ahead of this machine's; zero until it is measured.
    var clockSkew = Nanoseconds.zero
  }

  var counters: DispatcherCounters
  /// In the order of the first elements of `counters.lanes`.
  var lanes: [Lane]
  var outbox = OutboxCounters()
  /// Whether deliveries are claimed from the database.
  var isDatabaseReady = false
  /// Number of tickets whose receipts never came, by app.
  var lostReceipts: [String: Int] = [:]

  /// The snapshot before anything has happened: every series is zero.
  init(lanes: [LaneName]) {
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

  /// Adds what an earlier dispatcher of the same database has counted. The states stay.
  mutating func addCounters(of earlier: MetricsSnapshot) {
    counters.add(earlier.counters)
    outbox.add(earlier.outbox)
    for (app, count) in earlier.lostReceipts { lostReceipts[app, default: 0] += count }
  }
}
