// A queue of elements of one kind that wait to be written into the outbox. Pure.
//
// If the database refuses a batch for its data, because another transaction holds a lock, or because it takes too long, the batch is
// split in halves until the culprit is alone. So one bad, locked or slow row never stops the others. If a batch fails for any other
// reason, it is written again after a pause. Nothing is dropped.

internal import Queue
internal import Runtime

/// Collects elements into batches, and keeps each batch until it is written.
struct WriteQueue<Element> {
  /// What follows when a batch failed.
  enum Trouble {
    /// The cause is temporary: the batch is written again later.
    case passing
    /// The cause is an element of the batch: it is written again in two halves.
    case split
    /// This element is locked: it is written again, alone, after a pause.
    case locked
    /// The same for an element that takes too long.
    case slow
    /// The database refuses this element: the caller decides.
    case culprit(Element)
  }

  /// Pauses after failures: 250 ms, doubling, at most 4 s.
  private static var pauses: (first: Nanoseconds, doublings: Int) { (.milliseconds(250), 4) }
  /// The pause before elements that were set apart are tried again, and how many are tried at a time.
  private static var apartPause: Nanoseconds { .seconds(5) }
  private static var apartAtOnce: Int { 10 }
  /// Pauses before locked and slow elements are tried again: 500 ms, doubling, at most 4 s. Each try blocks the connection while the
  /// server waits for the lock, or works.
  private static var lockPauses: (first: Nanoseconds, doublings: Int) { (.milliseconds(500), 3) }

  private var batcher = SettlementBatcher<Element>()
  /// Parts of refused batches, each written as a batch of its own.
  private var parts: [[Element]] = []
  private var partsUnderWay = 0
  private var notBefore = Instant(nanoseconds: .min)
  private var failures = 0
  /// Elements that are refused even alone and without texts.
  private(set) var apart: [Element] = []
  private var nextApart = Instant.distantFuture
  /// Elements that another transaction has locked, or that alone reach the time limit of a statement.
  private var locked: [Element] = []
  private var nextLocked = Instant.distantFuture
  private var lockFailures = 0

  /// Number of elements that are neither written nor under way.
  var count: Int { batcher.count + parts.reduce(0) { $0 + $1.count } + apart.count + locked.count }
  /// Whether nothing is left except elements that were set apart.
  var isIdle: Bool { batcher.isIdle && parts.isEmpty && partsUnderWay == 0 && locked.isEmpty }

  /// When the next batch is due if nothing more is added.
  var due: Instant {
    var due = batcher.due.map { max($0, notBefore) } ?? .distantFuture
    if !parts.isEmpty, partsUnderWay == 0 { due = min(due, notBefore) }
    if !locked.isEmpty { due = min(due, max(nextLocked, notBefore)) }
    return apart.isEmpty ? due : min(due, nextApart)
  }

  mutating func add(_ element: Element, _ now: Instant) { batcher.add(element, now) }

  /// Sets an element apart that the database refuses and that must not be lost.
  mutating func setApart(_ element: Element, _ now: Instant) {
    apart.append(element)
    nextApart = min(nextApart, now + Self.apartPause)
  }

  /// Enqueues an element to be written alone.
  mutating func addAlone(_ element: Element) { parts.append([element]) }

  /// The next batch if it is due. The caller reports its end.
  ///
  /// - Parameter isLast: do not wait for a larger batch.
  mutating func next(_ now: Instant, isLast: Bool) -> WriteBatch<Element>? {
    if nextApart <= now, !apart.isEmpty {
      for element in apart.prefix(Self.apartAtOnce) { parts.append([element]) }
      apart.removeFirst(min(apart.count, Self.apartAtOnce))
      nextApart = apart.isEmpty ? .distantFuture : now + Self.apartPause
    }
    guard notBefore <= now else { return nil }
    if nextLocked <= now {
      for element in locked { parts.append([element]) }
      locked = []
      nextLocked = .distantFuture
    }
    if partsUnderWay == 0, !parts.isEmpty {
      partsUnderWay = 1
      return WriteBatch(elements: parts.removeFirst(), isPart: true)
    }
    return batcher.dequeue(now, isLast: isLast).map { WriteBatch(elements: $0, isPart: false) }
  }

  /// A batch was written.
  mutating func didWrite(_ batch: WriteBatch<Element>) {
    failures = 0
    if locked.isEmpty, parts.isEmpty { lockFailures = 0 }
    finish(batch)
  }

  /// A batch was not written.
  mutating func didFail(_ batch: WriteBatch<Element>, _ code: OutboxError.Code, _ now: Instant) -> Trouble {
    finish(batch)
    let isAlone = batch.elements.count == 1
    switch code {
    case .refusedRows, .locked: break
    case .tooSlow:
      // The server may be slow as a whole.
      if !isAlone { pause(now) }
    default:
      pause(now)
      parts.insert(batch.elements, at: 0)
      return .passing
    }
    if isAlone {
      guard code != .refusedRows else { return .culprit(batch.elements[0]) }
      addLocked(batch.elements[0], now)
      return code == .locked ? .locked : .slow
    }
    let half = batch.elements.count / 2
    parts.insert(contentsOf: [Array(batch.elements[..<half]), Array(batch.elements[half...])], at: 0)
    return .split
  }

  /// Enqueues an element whose row is locked, to be written alone after a pause.
  mutating func addLocked(_ element: Element, _ now: Instant) {
    locked.append(element)
    nextLocked = now + Nanoseconds(Self.lockPauses.first.count << min(lockFailures, Self.lockPauses.doublings))
    lockFailures += 1
  }

  private mutating func pause(_ now: Instant) {
    notBefore = now + Nanoseconds(Self.pauses.first.count << min(failures, Self.pauses.doublings))
    failures += 1
  }

  private mutating func finish(_ batch: WriteBatch<Element>) {
    if batch.isPart { partsUnderWay -= 1 } else { batcher.didEnd() }
  }
}

/// Elements that are written together.
struct WriteBatch<Element> {
  let elements: [Element]
  /// Whether it was refused or failed before, in this batch or a larger one.
  let isPart: Bool
}
