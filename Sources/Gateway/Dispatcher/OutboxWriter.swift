// Results on their way into the outbox: one queue a kind, each written in batches until it is written.

import Logging
import Queue
import Runtime

/// Gathers results and writes them down. Confined to its dispatcher.
final class OutboxWriter {
  private let endings: OutboxQueue<Ending, [Ending]>
  private let parkings: OutboxQueue<Parking, Int>
  private let releases: OutboxQueue<DeliveryLease, Int>
  private let invalidations: OutboxQueue<TokenInvalidation, Int>
  private let holds: OutboxQueue<InvalidationHold, Int>
  private let corrections: OutboxQueue<EnvironmentCorrection, Int>

  init(store: any OutboxStore, logger: Logger) {
    endings = OutboxQueue(logger) { batch throws(OutboxError) in
      let settlements = batch.map(\.settlement)
      if try await store.settle(settlements) == batch.count { return batch }
      // Leases were lost, or this is a second time after an answer that was: history knows what became of which.
      let written = try await store.settled(among: settlements)
      return batch.filter { written.contains($0.settlement.lease) }
    }
    parkings = OutboxQueue(logger) { batch throws(OutboxError) in try await store.park(batch) }
    releases = OutboxQueue(logger) { batch throws(OutboxError) in try await store.release(batch) }
    invalidations = OutboxQueue(logger) { batch throws(OutboxError) in try await store.invalidate(batch) }
    holds = OutboxQueue(logger) { batch throws(OutboxError) in try await store.hold(batch) }
    corrections = OutboxQueue(logger) { batch throws(OutboxError) in try await store.correct(batch) }
  }

  func settle(_ ending: Ending, _ now: Instant) { endings.add(ending, now) }
  func park(_ parking: Parking, _ now: Instant) { parkings.add(parking, now) }
  func release(_ lease: DeliveryLease, _ now: Instant) { releases.add(lease, now) }
  func invalidate(_ token: TokenInvalidation, _ now: Instant) { invalidations.add(token, now) }
  func hold(_ hold: InvalidationHold, _ now: Instant) { holds.add(hold, now) }
  func correct(_ environment: EnvironmentCorrection, _ now: Instant) { corrections.add(environment, now) }

  /// When a batch leaves if nothing more is added.
  var due: Instant {
    min(
      min(endings.due, parkings.due, releases.due), min(invalidations.due, holds.due, corrections.due))
  }

  var isIdle: Bool {
    endings.isIdle && parkings.isIdle && releases.isIdle && invalidations.isIdle && holds.isIdle
      && corrections.isIdle
  }

  /// Sends off the batches that are due; the dispatcher is pumped again when one has come back.
  ///
  /// - Parameter isLast: do not wait for company.
  func flush(_ now: Instant, isLast: Bool, for dispatcher: isolated Dispatcher) {
    let countLost = { dispatcher.counters.lostLeases += $0 - $1 }
    // A hold goes before the tokens that caused it, so that these are quarantined.
    holds.flush(now, isLast: isLast, for: dispatcher)
    endings.flush(now, isLast: isLast, for: dispatcher) { count, written in
      dispatcher.counters.note(written, ofBatch: count, dispatcher.loop.now)
    }
    parkings.flush(now, isLast: isLast, for: dispatcher, didWrite: countLost)
    releases.flush(now, isLast: isLast, for: dispatcher, didWrite: countLost)
    invalidations.flush(now, isLast: isLast, for: dispatcher)
    corrections.flush(now, isLast: isLast, for: dispatcher)
  }
}

/// Results of one kind, and what the outbox answers to a batch of them. Confined to its dispatcher.
private final class OutboxQueue<Element: Sendable, Answer: Sendable> {
  private var batcher = SettlementBatcher<Element>()
  private let logger: Logger
  /// Runs on its caller's executor: no batch changes threads.
  private let write: nonisolated(nonsending) @Sendable ([Element]) async throws(OutboxError) -> Answer

  init(
    _ logger: Logger, write: nonisolated(nonsending) @escaping @Sendable ([Element]) async throws(OutboxError) -> Answer
  ) {
    self.logger = logger
    self.write = write
  }

  var isIdle: Bool { batcher.isIdle }
  var due: Instant { batcher.due ?? .distantFuture }

  func add(_ element: Element, _ now: Instant) { batcher.add(element, now) }

  func flush(
    _ now: Instant, isLast: Bool, for dispatcher: isolated Dispatcher,
    didWrite: @escaping (_ count: Int, Answer) -> Void = { _, _ in }
  ) {
    while let batch = batcher.take(now, isLast: isLast) {
      Task {
        do throws(OutboxError) {
          didWrite(batch.count, try await write(batch))
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
