// Things of one kind on their way into the outbox. Pure.
//
// A batch that the database refuses for what is in it, or because another transaction holds a lock, is split in halves until the
// culprit is alone: one bad or locked row never stops its neighbours. For any other reason a batch is written again after a
// pause, and nothing is dropped.

internal import Queue
internal import Runtime

/// Gathers elements into batches, and keeps each batch until it is written.
struct WriteQueue<Element> {
  /// What is wrong with a batch.
  enum Trouble {
    /// Nothing that lasts: it is written again later.
    case passing
    /// Something in it: it is written again in two halves.
    case split
    /// This one is locked: it is written again, alone, after a pause.
    case locked
    /// This one: the caller has it.
    case culprit(Element)
  }

  /// Pauses after failures: 250 ms, doubling, at most 4 s.
  private static var pauses: (first: Nanoseconds, doublings: Int) { (.milliseconds(250), 4) }
  /// Before what was set apart is tried again, and how many of it at a time.
  private static var apartPause: Nanoseconds { .seconds(5) }
  private static var apartAtOnce: Int { 10 }
  /// Pauses before locked elements are tried again: 500 ms, doubling, at most 4 s. Each try holds up the connection for as long as
  /// the server waits for a lock.
  private static var lockPauses: (first: Nanoseconds, doublings: Int) { (.milliseconds(500), 3) }

  private var batcher: SettlementBatcher<Element>
  /// Parts of refused batches, each to be written by itself.
  private var parts: [[Element]] = []
  private var partsUnderWay = 0
  private var notBefore = Instant(nanoseconds: .min)
  private var failures = 0
  /// What is refused even by itself and without its texts.
  private(set) var apart: [Element] = []
  private var nextApart = Instant.distantFuture
  /// What another transaction has locked.
  private var locked: [Element] = []
  private var nextLocked = Instant.distantFuture
  private var lockFailures = 0

  init(limits: SettlementBatcher<Element>.Limits = SettlementBatcher<Element>.Limits()) {
    batcher = SettlementBatcher(limits: limits)
  }

  /// Elements that are neither written nor under way.
  var count: Int { batcher.count + parts.reduce(0) { $0 + $1.count } + apart.count + locked.count }
  /// Nothing is left but what is set apart.
  var isIdle: Bool { batcher.isIdle && parts.isEmpty && partsUnderWay == 0 && locked.isEmpty }

  /// When a batch leaves if nothing more is added.
  var due: Instant {
    var due = batcher.due.map { max($0, notBefore) } ?? .distantFuture
    if !parts.isEmpty, partsUnderWay == 0 { due = min(due, notBefore) }
    if !locked.isEmpty { due = min(due, max(nextLocked, notBefore)) }
    return apart.isEmpty ? due : min(due, nextApart)
  }

  mutating func add(_ element: Element, _ now: Instant) { batcher.add(element, now) }

  /// Sets an element apart, that is refused and must not be lost.
  mutating func setApart(_ element: Element, _ now: Instant) {
    apart.append(element)
    nextApart = min(nextApart, now + Self.apartPause)
  }

  /// Puts an element in line that is to be written by itself.
  mutating func addAlone(_ element: Element) { parts.append([element]) }

  /// The next batch if it is due; the caller reports its end.
  ///
  /// - Parameter isLast: do not wait for company.
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
    guard code == .refusedRows || code == .locked else {
      notBefore = now + Nanoseconds(Self.pauses.first.count << min(failures, Self.pauses.doublings))
      failures += 1
      parts.insert(batch.elements, at: 0)
      return .passing
    }
    if batch.elements.count == 1 {
      guard code == .locked else { return .culprit(batch.elements[0]) }
      locked.append(batch.elements[0])
      nextLocked = now + Nanoseconds(Self.lockPauses.first.count << min(lockFailures, Self.lockPauses.doublings))
      lockFailures += 1
      return .locked
    }
    let half = batch.elements.count / 2
    parts.insert(contentsOf: [Array(batch.elements[..<half]), Array(batch.elements[half...])], at: 0)
    return .split
  }

  private mutating func finish(_ batch: WriteBatch<Element>) {
    if batch.isPart { partsUnderWay -= 1 } else { batcher.didFlush() }
  }
}

/// Elements that are written together.
struct WriteBatch<Element> {
  let elements: [Element]
  /// It was refused or failed before, in this or a larger batch.
  let isPart: Bool
}
