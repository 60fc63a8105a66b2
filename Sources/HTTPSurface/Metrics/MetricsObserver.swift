// Copies all counters on the gateway's event loop, in one hop. The text is written elsewhere.

package import Dispatching
package import Queue
import Runtime

/// Reads every counter of one gateway. An actor on the gateway's event loop.
package actor MetricsObserver {
  nonisolated let loop: EventLoop
  package nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  private let dispatcher: Dispatcher
  private let outbox: PostgresOutbox
  private let receipts: [ReceiptCollector]

  package init(dispatcher: Dispatcher, outbox: PostgresOutbox, receipts: [ReceiptCollector]) {
    loop = outbox.loop
    self.dispatcher = dispatcher
    self.outbox = outbox
    self.receipts = receipts
  }

  func snapshot() -> MetricsSnapshot {
    var snapshot = dispatcher.assumeIsolated { $0.snapshot() }
    snapshot.outbox = outbox.assumeIsolated { $0.counters }
    snapshot.isDatabaseReady =
      dispatcher.assumeIsolated { $0.isDatabaseReady } && outbox.assumeIsolated { $0.obstacles.isEmpty }
    for collector in receipts {
      collector.assumeIsolated { snapshot.lostReceipts[$0.app] = $0.givenUpCount }
    }
    return snapshot
  }
}

extension Dispatcher {
  /// The counters and the current state of the lanes.
  func snapshot() -> MetricsSnapshot {
    MetricsSnapshot(
      counters: counters,
      lanes: conditions(loop.now).enumerated().map { index, condition in
        MetricsSnapshot.Lane(
          condition: condition.lane, provider: condition.provider, clockSkew: clockSkews[index] ?? .zero)
      })
  }
}
