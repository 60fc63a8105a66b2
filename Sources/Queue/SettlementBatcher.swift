// Collects settlements until a batch is worth a round trip. Pure.

public import Runtime

/// A queue that is flushed when it is large enough or old enough. The number of batches under way is bounded.
public struct SettlementBatcher<Element> {
  public struct Limits: Sendable {
    /// A batch of at least this size leaves at once.
    public var worthwhile = 250
    /// Maximum size of a batch.
    public var most = 1000
    /// Maximum time an element waits for a larger batch.
    public var age: Nanoseconds = .milliseconds(5)
    /// Maximum number of batches under way. While there are that many, elements collect into larger batches.
    public var underWay = 2
    public init() {}
  }

  private let limits: Limits
  private var waiting: [Element] = []
  private var oldest = Instant(nanoseconds: .max)
  private var underWay = 0

  public init(limits: Limits = Limits()) {
    self.limits = limits
  }

  /// Elements not known to be written yet, without those under way.
  public var count: Int { waiting.count }
  public var isIdle: Bool { waiting.isEmpty && underWay == 0 }

  public mutating func add(_ element: Element, _ now: Instant) {
    if waiting.isEmpty { oldest = now }
    waiting.append(element)
  }

  /// When `dequeue` will have a batch if nothing more is added; nil when that does not depend on time.
  public var due: Instant? {
    guard !waiting.isEmpty, underWay < limits.underWay else { return nil }
    return waiting.count >= limits.worthwhile ? Instant(nanoseconds: .min) : oldest + limits.age
  }

  /// The next batch if it is due. The caller reports its end with `didEnd`.
  ///
  /// - Parameter isLast: do not wait for a larger batch.
  public mutating func dequeue(_ now: Instant, isLast: Bool = false) -> [Element]? {
    guard let due, isLast || due <= now else { return nil }
    let batch = Array(waiting.prefix(limits.most))
    waiting.removeFirst(batch.count)
    oldest = now  // elements that are left have waited, but their batch is full or follows within `age`
    underWay += 1
    return batch
  }

  /// A batch is no longer under way.
  public mutating func didEnd() {
    underWay -= 1
  }
}
