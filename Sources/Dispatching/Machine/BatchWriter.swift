// Everything that waits to be written into the outbox: one queue for each kind, written in batches. Pure.

internal import Logging
internal import Queue
internal import Runtime

/// Collects the outcomes of deliveries and tokens, and makes batches of them.
struct BatchWriter {
  /// A batch under way.
  private enum UnderWay {
    case settle(WriteBatch<HeldDelivery>, [Settlement])
    /// Only a part was written. A query asks which one.
    case settledAmong(WriteBatch<HeldDelivery>, [Settlement])
    case park(WriteBatch<HeldDelivery>)
    case disown(WriteBatch<DeliveryLease>)
    case parkUnusable(WriteBatch<Parking>)
    case invalidate(WriteBatch<TokenInvalidation>)
    case hold(WriteBatch<InvalidationHold>)
    case correct(WriteBatch<EnvironmentCorrection>)
  }

  /// The result of a batch.
  enum Outcome {
    /// The first deliveries are settled. The others belonged to another gateway by then.
    case settled([(HeldDelivery, Settlement)], lost: [HeldDelivery])
    /// These deliveries are back in the outbox, or belonged to another gateway already. `count` of them were ours.
    case returned([HeldDelivery], count: Int)
    /// Number of unknown rows that were given up.
    case disowned(count: Int)
    /// Nothing is left to do, or the batch is written again.
    case nothing
  }

  private var settlements = WriteQueue<HeldDelivery>()
  private var parkings = WriteQueue<HeldDelivery>()
  private var strays = WriteQueue<DeliveryLease>()
  private var unusable = WriteQueue<Parking>()
  private var invalidations = WriteQueue<TokenInvalidation>()
  private var holds = WriteQueue<InvalidationHold>()
  private var corrections = WriteQueue<EnvironmentCorrection>()
  private var underWay: [Int: UnderWay] = [:]
  private var batches = 0
  /// The batches and log lines of this turn, which the machine removes.
  private(set) var writes: [(batch: Int, write: OutboxWrite)] = []
  private(set) var lines: [DispatcherLogEntry] = []

  /// What ends late is written alone: whether it was ours is then certain, and others do not wait for it.
  mutating func settle(_ entry: HeldDelivery, _ now: Instant) {
    if entry.isLate { settlements.addAlone(entry) } else { settlements.add(entry, now) }
  }
  mutating func park(_ entry: HeldDelivery, _ now: Instant) { parkings.add(entry, now) }
  mutating func disown(_ stray: DeliveryLease, _ now: Instant) { strays.add(stray, now) }
  mutating func park(unusable parking: Parking, _ now: Instant) { unusable.add(parking, now) }
  mutating func invalidate(_ token: TokenInvalidation, _ now: Instant) { invalidations.add(token, now) }
  mutating func hold(_ hold: InvalidationHold, _ now: Instant) { holds.add(hold, now) }
  mutating func correct(_ environment: EnvironmentCorrection, _ now: Instant) { corrections.add(environment, now) }

  /// When the next batch is due if nothing more is added.
  var due: Instant {
    min(
      min(settlements.due, min(parkings.due, strays.due)),
      min(min(unusable.due, invalidations.due), min(holds.due, corrections.due)))
  }

  /// Whether no batch is under way.
  var isQuiet: Bool { underWay.isEmpty }

  /// Whether everything is written except what the database refuses.
  var isIdle: Bool {
    settlements.isIdle && parkings.isIdle && strays.isIdle && unusable.isIdle && invalidations.isIdle && holds.isIdle
      && corrections.isIdle && underWay.isEmpty
  }

  /// Number of deliveries whose settlement or parking the database refuses.
  var apartCount: Int { settlements.apart.count + parkings.apart.count }

  /// Number of deliveries that wait to be written.
  var backlog: Int { settlements.count + parkings.count }

  /// Empties `writes` and `lines` after the caller has read them.
  mutating func didTake() {
    writes.removeAll(keepingCapacity: true)
    lines.removeAll(keepingCapacity: true)
  }

  /// Makes the batches that are due.
  ///
  /// - Parameter isLast: do not wait for larger batches.
  mutating func flush(_ now: Instant, isLast: Bool) {
    // A hold is written before the tokens that caused it, so that these are quarantined.
    while let batch = holds.next(now, isLast: isLast) { start(.hold(batch), .hold(batch.elements)) }
    while let batch = settlements.next(now, isLast: isLast) {
      let settlements = batch.elements.map(\.settlement)
      start(.settle(batch, settlements), .settle(settlements))
    }
    while let batch = parkings.next(now, isLast: isLast) { start(.park(batch), .park(batch.elements.map(\.parking))) }
    while let batch = strays.next(now, isLast: isLast) { start(.disown(batch), .disown(batch.elements)) }
    while let batch = unusable.next(now, isLast: isLast) { start(.parkUnusable(batch), .park(batch.elements)) }
    while let batch = invalidations.next(now, isLast: isLast) { start(.invalidate(batch), .invalidate(batch.elements)) }
    while let batch = corrections.next(now, isLast: isLast) { start(.correct(batch), .correct(batch.elements)) }
  }

  private mutating func start(_ batch: UnderWay, _ write: OutboxWrite) {
    batches += 1
    underWay[batches] = batch
    writes.append((batches, write))
  }

  // MARK: - Answers

  /// A batch was answered.
  mutating func didWrite(
    _ batch: Int, _ answer: Result<OutboxWriteAnswer, OutboxError>, _ now: Instant
  ) -> Outcome {
    guard let written = underWay.removeValue(forKey: batch) else { return .nothing }
    switch answer {
    case .success(.count(let count)): return didWrite(written, count, now)
    case .success(.settled(let keys)):
      guard case .settledAmong(let batch, let settlements) = written else { return .nothing }
      return didFind(keys, batch, settlements, now)
    case .failure(let error):
      didFail(written, error, now)
      return .nothing
    }
  }

  private mutating func didWrite(_ written: UnderWay, _ count: Int, _ now: Instant) -> Outcome {
    switch written {
    case .settle(let batch, let settlements):
      guard count >= settlements.count else {
        if let late = batch.elements.first, late.isLate { return didMiss(late, batch, now) }
        // Leases were lost, or the batch was written before and that answer was lost. History tells which.
        start(.settledAmong(batch, settlements), .settledAmong(settlements))
        return .nothing
      }
      self.settlements.didWrite(batch)
      return .settled(Array(zip(batch.elements, settlements)), lost: [])
    case .settledAmong: return .nothing
    case .park(let batch):
      parkings.didWrite(batch)
      return .returned(batch.elements, count: count)
    case .disown(let batch):
      strays.didWrite(batch)
      return .disowned(count: count)
    case .parkUnusable(let batch): unusable.didWrite(batch)
    case .invalidate(let batch): invalidations.didWrite(batch)
    case .hold(let batch): holds.didWrite(batch)
    case .correct(let batch): corrections.didWrite(batch)
    }
    return .nothing
  }

  private mutating func didFind(
    _ keys: Set<DeliveryKey>, _ batch: WriteBatch<HeldDelivery>, _ settlements: [Settlement], _ now: Instant
  ) -> Outcome {
    self.settlements.didWrite(batch)
    var written: [(HeldDelivery, Settlement)] = []
    var lost: [HeldDelivery] = []
    for (entry, settlement) in zip(batch.elements, settlements) {
      if keys.contains(entry.key) {
        written.append((entry, settlement))
      } else if entry.lease != settlement.lease {
        self.settlements.add(entry, now)  // it is ours again, by another claim
      } else {
        lost.append(entry)
      }
    }
    return .settled(written, lost: lost)
  }

  /// A late ending has found no row. It is written once more, because another gateway may have been writing it.
  private mutating func didMiss(_ entry: HeldDelivery, _ batch: WriteBatch<HeldDelivery>, _ now: Instant) -> Outcome {
    settlements.didWrite(batch)
    guard entry.repeatsLate() else { return .settled([], lost: [entry]) }
    settlements.addLocked(entry, now)
    return .nothing
  }

  // MARK: - Failures

  private mutating func didFail(_ written: UnderWay, _ error: OutboxError, _ now: Instant) {
    switch written {
    case .settle(let batch, _), .settledAmong(let batch, _):
      guard let culprit = fail(batch, in: \.settlements, error, now) else { return }
      setApart(culprit, \.settlements, now)
    case .park(let batch):
      guard let culprit = fail(batch, in: \.parkings, error, now) else { return }
      setApart(culprit, \.parkings, now)
    case .disown(let batch):
      if let culprit = fail(batch, in: \.strays, error, now) { strays.setApart(culprit, now) }
    case .parkUnusable(let batch):
      if let culprit = fail(batch, in: \.unusable, error, now) { unusable.setApart(culprit, now) }
    // If an invalidation is lost, the next push to the token brings it again.
    case .invalidate(let batch): _ = fail(batch, in: \.invalidations, error, now)
    case .hold(let batch): _ = fail(batch, in: \.holds, error, now)
    case .correct(let batch): _ = fail(batch, in: \.corrections, error, now)
    }
  }

  /// Handles the one element that the database refuses.
  private mutating func fail<Element>(
    _ batch: WriteBatch<Element>, in queue: WritableKeyPath<BatchWriter, WriteQueue<Element>>, _ error: OutboxError,
    _ now: Instant
  ) -> Element? {
    let all: Logger.Metadata = ["reason": "\(error)", "count": .stringConvertible(batch.elements.count)]
    let one = Self.about(batch.elements[0], ["reason": "\(error)"])
    switch self[keyPath: queue].didFail(batch, error.code, now) {
    case .passing:
      lines.append(DispatcherLogEntry(.warning, "Writing results to the outbox failed; it is tried again", all))
    case .locked:
      lines.append(
        DispatcherLogEntry(
          .warning, "A result waits for another transaction, which has locked its row; the others are written", one))
    case .slow:
      lines.append(DispatcherLogEntry(.warning, "A result takes too long to write; the others are written", one))
    case .split:
      lines.append(
        DispatcherLogEntry(.warning, "The database refuses a batch of results; it is written in parts", all))
    case .culprit(let element):
      lines.append(DispatcherLogEntry(.error, "The database refuses a result", one))
      return element
    }
    return nil
  }

  /// Writes an outcome again without its texts. If that is refused, too, it is retried at intervals.
  private mutating func setApart(
    _ entry: HeldDelivery, _ queue: WritableKeyPath<BatchWriter, WriteQueue<HeldDelivery>>, _ now: Instant
  ) {
    if entry.isStripped {
      self[keyPath: queue].setApart(entry, now)
    } else {
      entry.strip()
      self[keyPath: queue].addAlone(entry)
    }
  }

  private static func about(_ element: some Any, _ metadata: Logger.Metadata) -> Logger.Metadata {
    guard let entry = element as? HeldDelivery else { return metadata }
    return metadata.merging(
      ["outbox_id": .stringConvertible(entry.key.outboxID), "n": .stringConvertible(entry.key.pushNumber)]) { $1 }
  }
}
