// When receipts are asked for next. Pure.

internal import Runtime

/// The rhythm of one app's receipt collector.
struct ReceiptSchedule: Sendable {
  /// The longest pause after failures, unless the provider asks for more.
  private static let failedMost = Nanoseconds.seconds(60)

  /// Between two looks when nothing more is due.
  let interval: Nanoseconds
  private var failures = 0
  private(set) var next = Instant(nanoseconds: .min)

  /// - Parameter receiptAfter: how long after sending a receipt can be read; looked for about four times in that time, at
  ///   least every ten seconds.
  init(receiptAfter: Nanoseconds) {
    interval = max(.milliseconds(20), min(.seconds(10), receiptAfter / 4))
  }

  /// Receipts were read; `isFull` when there may be more of them due now.
  mutating func didRead(isFull: Bool, _ now: Instant) {
    failures = 0
    next = isFull ? now : now + interval
  }

  /// Nothing could be read; `after` is how long the provider wants to be left alone.
  mutating func didFail(after: Nanoseconds?, _ now: Instant) {
    let pause = min(Self.failedMost, Nanoseconds(interval.count << min(failures, 10)))
    failures += 1
    next = now + max(pause, after ?? .zero)
  }
}
