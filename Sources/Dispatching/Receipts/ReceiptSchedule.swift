// When to ask for receipts next. Pure.

internal import Runtime

/// The schedule of one app's receipt collector.
struct ReceiptSchedule: Sendable {
  /// Maximum pause after failures, unless the provider asks for a longer one.
  private static let failedMost = Nanoseconds.seconds(60)

  /// The interval of look-ups while nothing more is due.
  let interval: Nanoseconds
  private var failures = 0
  private(set) var next = Instant(nanoseconds: .min)

  /// - Parameter receiptAfter: how long after sending a receipt can be read. Receipts are looked for about four times within that
  ///   time, at least every ten seconds.
  init(receiptAfter: Nanoseconds) {
    interval = max(.milliseconds(20), min(.seconds(10), receiptAfter / 4))
  }

  /// Receipts were read. `isFull`: more of them may be due now.
  mutating func didRead(isFull: Bool, _ now: Instant) {
    failures = 0
    next = isFull ? now : now + interval
  }

  /// Nothing could be read. `after` is the pause the provider asked for.
  mutating func didFail(after: Nanoseconds?, _ now: Instant) {
    let pause = min(Self.failedMost, Nanoseconds(interval.count << min(failures, 10)))
    failures += 1
    next = now + max(pause, after ?? .zero)
  }
}
