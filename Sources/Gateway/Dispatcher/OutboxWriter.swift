// Results on their way into the outbox: one queue a kind, each written in batches until it is written.

import Logging
import Queue
import Runtime

/// Gathers results and writes them down. Confined to its dispatcher.
final class OutboxWriter {
  private let settlements: OutboxQueue<Settlement>
  private let parkings: OutboxQueue<Parking>
  private let releases: OutboxQueue<DeliveryLease>
  private let invalidations: OutboxQueue<TokenInvalidation>
  private let holds: OutboxQueue<InvalidationHold>
  private let corrections: OutboxQueue<EnvironmentCorrection>

  init(store: any OutboxStore, logger: Logger) {
    settlements = OutboxQueue(logger) { batch throws(OutboxError) in try await store.settle(batch) }
    parkings = OutboxQueue(logger) { batch throws(OutboxError) in try await store.park(batch) }
    releases = OutboxQueue(logger) { batch throws(OutboxError) in try await store.release(batch) }
    invalidations = OutboxQueue(logger) { batch throws(OutboxError) in try await store.invalidate(batch) }
    holds = OutboxQueue(logger) { batch throws(OutboxError) in try await store.hold(batch) }
    corrections = OutboxQueue(logger) { batch throws(OutboxError) in try await store.correct(batch) }
  }

  func settle(_ settlement: Settlement, _ now: Instant) { settlements.add(settlement, now) }
  func park(_ parking: Parking, _ now: Instant) { parkings.add(parking, now) }
  func release(_ lease: DeliveryLease, _ now: Instant) { releases.add(lease, now) }
  func invalidate(_ token: TokenInvalidation, _ now: Instant) { invalidations.add(token, now) }
  func hold(_ hold: InvalidationHold, _ now: Instant) { holds.add(hold, now) }
  func correct(_ environment: EnvironmentCorrection, _ now: Instant) { corrections.add(environment, now) }

  /// When a batch leaves if nothing more is added.
  var due: Instant {
    min(
      min(settlements.due, parkings.due, releases.due), min(invalidations.due, holds.due, corrections.due))
  }

  var isIdle: Bool {
    settlements.isIdle && parkings.isIdle && releases.isIdle && invalidations.isIdle && holds.isIdle
      && corrections.isIdle
  }

  /// Sends off the batches that are due; the dispatcher is pumped again when one has come back.
  ///
  /// - Parameter isLast: do not wait for company.
  func flush(_ now: Instant, isLast: Bool, for dispatcher: isolated Dispatcher) {
    let countLost = { dispatcher.counters.lostLeases += $0 }
    // A hold goes before the tokens that caused it, so that these are quarantined.
    holds.flush(now, isLast: isLast, for: dispatcher)
    settlements.flush(now, isLast: isLast, for: dispatcher, lost: countLost)
    parkings.flush(now, isLast: isLast, for: dispatcher, lost: countLost)
    releases.flush(now, isLast: isLast, for: dispatcher, lost: countLost)
    invalidations.flush(now, isLast: isLast, for: dispatcher)
    corrections.flush(now, isLast: isLast, for: dispatcher)
  }
}

/// Results of one kind. Confined to its dispatcher.
private final class OutboxQueue<Element: Sendable> {
  private var batcher = SettlementBatcher<Element>()
  private let logger: Logger
  private let write: @Sendable ([Element]) async throws(OutboxError) -> Int

  init(_ logger: Logger, write: @escaping @Sendable ([Element]) async throws(OutboxError) -> Int) {
    self.logger = logger
    self.write = write
  }

  var isIdle: Bool { batcher.isIdle }
  var due: Instant { batcher.due ?? .distantFuture }

  func add(_ element: Element, _ now: Instant) { batcher.add(element, now) }

  func flush(
    _ now: Instant, isLast: Bool, for dispatcher: isolated Dispatcher, lost: @escaping (Int) -> Void = { _ in }
  ) {
    while let batch = batcher.take(now, isLast: isLast) {
      Task {
        do throws(OutboxError) {
          let written = try await write(batch)
          lost(batch.count - written)
          batcher.didFlush()
        } catch {
          batcher.didFail(batch, dispatcher.loop.now)
          logger.warning("Writing results to the outbox failed; it is tried again", metadata: ["reason": "\(error)"])
        }
        dispatcher.planPump()
      }
    }
  }
}
