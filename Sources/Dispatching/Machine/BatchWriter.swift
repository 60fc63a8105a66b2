// Everything that waits to be written into the outbox: one queue for each kind, written in batches. Pure.

internal import Logging
internal import Queue
internal import Runtime

/// Collects the outcomes of deliveries and tokens, and makes batches of them.
struct BatchWriter {
  /// What waits to be written.
  enum Item {
    case settle(HeldDelivery)
    case park(HeldDelivery)
    case disown(DeliveryLease)
    indirect case parkUnusable(Parking)
    indirect case invalidate(TokenInvalidation)
    indirect case hold(InvalidationHold)
    indirect case correct(EnvironmentCorrection)

    fileprivate var kind: Kind {
      switch self {
      case .settle: .settle
      case .park: .park
      case .disown: .disown
      case .parkUnusable: .parkUnusable
      case .invalidate: .invalidate
      case .hold: .hold
      case .correct: .correct
      }
    }

    var delivery: HeldDelivery? {
      switch self {
      case .settle(let entry), .park(let entry): entry
      default: nil
      }
    }
  }

  /// Each has a queue. They are in the order in which they are written: a hold before the tokens that caused it, so that these are
  /// quarantined.
  fileprivate enum Kind: Int, CaseIterable { case hold, settle, park, disown, parkUnusable, invalidate, correct }

  /// A batch under way.
  private struct UnderWay {
    var kind: Kind
    var batch: WriteBatch<Item>
    /// What was written of deliveries that have ended, which may change meanwhile.
    var settlements: [Settlement] = []

    var deliveries: [HeldDelivery] { batch.elements.compactMap(\.delivery) }
  }

  /// The result of a batch.
  enum Outcome {
    /// The first deliveries are settled. The others belonged to another gateway by then.
    case settled([(HeldDelivery, Settlement)], lost: [HeldDelivery])
    /// These deliveries are back in the outbox, or belonged to another gateway already. `count` of them were ours.
    case returned([HeldDelivery], count: Int)
    /// Number of unknown rows that were given up.
    case disowned(count: Int)
    /// The batch failed: it is written again, or what the database refuses of it is set apart. This is to be logged.
    case log(Logger.Level, Logger.Message, Logger.Metadata)
    /// Nothing is left to do, or the batch is written again.
    case nothing
  }

  /// By `Kind`.
  private var queues = Kind.allCases.map { _ in WriteQueue<Item>() }
  private var underWay: [Int: UnderWay] = [:]
  private var batches = 0

  /// What ends late is written alone: whether it was ours is then certain, and others do not wait for it.
  mutating func add(_ item: Item, _ now: Instant) {
    if case .settle(let entry) = item, entry.isLate { return self[.settle].addAlone(item) }
    self[item.kind].add(item, now)
  }

  private subscript(kind: Kind) -> WriteQueue<Item> {
    get { queues[kind.rawValue] }
    _modify { yield &queues[kind.rawValue] }
  }

  /// When the next batch is due if nothing more is added.
  var due: Instant { queues.reduce(.distantFuture) { min($0, $1.due) } }

  /// Whether no batch is under way.
  var isQuiet: Bool { underWay.isEmpty }

  /// Whether everything is written except what the database refuses.
  var isIdle: Bool { isQuiet && queues.allSatisfy(\.isIdle) }

  /// Number of deliveries whose settlement or parking the database refuses.
  var apartCount: Int { self[.settle].apart.count + self[.park].apart.count }

  /// Number of deliveries that wait to be written.
  var backlog: Int { self[.settle].count + self[.park].count }

  /// Makes the batches that are due.
  ///
  /// - Parameter isLast: do not wait for larger batches.
  mutating func flush(_ now: Instant, isLast: Bool, into actions: inout [DispatcherAction]) {
    for kind in Kind.allCases {
      while let batch = self[kind].next(now, isLast: isLast) {
        start(UnderWay(kind: kind, batch: batch), into: &actions)
      }
    }
  }

  private mutating func start(_ batch: UnderWay, into actions: inout [DispatcherAction]) {
    var batch = batch
    if batch.kind == .settle { batch.settlements = batch.deliveries.map(\.settlement) }
    let items = batch.batch.elements
    let write: OutboxWrite =
      switch batch.kind {
      case .settle: .settle(batch.settlements)
      case .park: .park(batch.deliveries.map(\.parking))
      case .disown: .disown(items.compactMap { if case .disown(let lease) = $0 { lease } else { nil } })
      case .parkUnusable: .park(items.compactMap { if case .parkUnusable(let parking) = $0 { parking } else { nil } })
      case .invalidate: .invalidate(items.compactMap { if case .invalidate(let token) = $0 { token } else { nil } })
      case .hold: .hold(items.compactMap { if case .hold(let hold) = $0 { hold } else { nil } })
      case .correct:
        .correct(items.compactMap { if case .correct(let environment) = $0 { environment } else { nil } })
      }
    start(batch, write, into: &actions)
  }

  private mutating func start(_ batch: UnderWay, _ write: OutboxWrite, into actions: inout [DispatcherAction]) {
    batches += 1
    underWay[batches] = batch
    actions.append(.write(batch: batches, write))
  }

  // MARK: - Answers

  /// A batch was answered.
  mutating func didWrite(
    _ batch: Int, _ answer: Result<OutboxWriteAnswer, OutboxError>, _ now: Instant,
    into actions: inout [DispatcherAction]
  ) -> Outcome {
    guard let written = underWay.removeValue(forKey: batch) else { return .nothing }
    switch answer {
    case .success(.count(let count)) where count < written.settlements.count:
      if let late = written.deliveries.first, late.isLate { return didMiss(late, written, now) }
      // Leases were lost, or the batch was written before and that answer was lost. History tells which.
      start(written, .settledAmong(written.settlements), into: &actions)
      return .nothing
    case .success(let answer):
      self[written.kind].didWrite(written.batch)
      return switch (written.kind, answer) {
      case (.settle, .settled(let keys)): divide(written, keys, now)
      case (.settle, _): .settled(Array(zip(written.deliveries, written.settlements)), lost: [])
      case (.park, .count(let count)): .returned(written.deliveries, count: count)
      case (.disown, .count(let count)): .disowned(count: count)
      default: .nothing
      }
    case .failure(let error): return didFail(written, error, now)
    }
  }

  /// History has only these of a batch.
  private mutating func divide(_ written: UnderWay, _ keys: Set<DeliveryKey>, _ now: Instant) -> Outcome {
    var settled: [(HeldDelivery, Settlement)] = []
    var lost: [HeldDelivery] = []
    for (entry, settlement) in zip(written.deliveries, written.settlements) {
      if keys.contains(entry.key) {
        settled.append((entry, settlement))
      } else if entry.lease != settlement.lease {
        self[.settle].add(.settle(entry), now)  // it is ours again, by another claim
      } else {
        lost.append(entry)
      }
    }
    return .settled(settled, lost: lost)
  }

  /// A late ending has found no row. It is written once more, because another gateway may have been writing it.
  private mutating func didMiss(_ entry: HeldDelivery, _ written: UnderWay, _ now: Instant) -> Outcome {
    self[.settle].didWrite(written.batch)
    guard entry.repeatsLate() else { return .settled([], lost: [entry]) }
    self[.settle].addLocked(.settle(entry), now)
    return .nothing
  }

  private mutating func didFail(_ written: UnderWay, _ error: OutboxError, _ now: Instant) -> Outcome {
    let items = written.batch.elements
    let all: Logger.Metadata = ["reason": "\(error)", "count": .stringConvertible(items.count)]
    var one: Logger.Metadata = ["reason": "\(error)"]
    if let key = items[0].delivery?.key {
      one["outbox_id"] = .stringConvertible(key.outboxID)
      one["n"] = .stringConvertible(key.pushNumber)
    }
    let trouble = self[written.kind].didFail(written.batch, error.code, now)
    if case .culprit(let item) = trouble { setApart(item, now) }
    return switch trouble {
    case .passing: .log(.warning, "Writing results to the outbox failed; it is tried again", all)
    case .split: .log(.warning, "The database refuses a batch of results; it is written in parts", all)
    case .locked:
      .log(.warning, "A result waits for another transaction, which has locked its row; the others are written", one)
    case .slow: .log(.warning, "A result takes too long to write; the others are written", one)
    case .culprit: .log(.error, "The database refuses a result", one)
    }
  }

  /// What the database refuses is written again without its texts. If that is refused, too, it is tried again at intervals. If an
  /// invalidation is lost, the next push to the token brings it again.
  private mutating func setApart(_ item: Item, _ now: Instant) {
    switch item {
    case .invalidate, .hold, .correct: break
    case .settle(let entry) where entry.strip(), .park(let entry) where entry.strip(): self[item.kind].addAlone(item)
    default: self[item.kind].setApart(item, now)
    }
  }
}
