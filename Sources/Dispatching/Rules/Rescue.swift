// When a ring that got no answer is handed on to another gateway, and how many are. Pure.
//
// A provider that is slow today must not be taken for one that does not answer, so the time follows the latest answers. A ring that
// is handed on may ring twice: while the provider answers, few are.

internal import Runtime

/// The patience of one lane with its provider.
struct Rescue {
  /// The shortest and the longest time after which a ring is handed on.
  static let patience = Nanoseconds.milliseconds(1_200)...Nanoseconds.seconds(4)
  /// When a ring is looked at again that could not be handed on, because too many were.
  static let interval = Nanoseconds.milliseconds(250)
  /// How much longer a ring waits that has not left its provider's queue.
  static let respite = Nanoseconds.milliseconds(100)
  /// Number of latencies that are remembered.
  private static let remembered = 8
  /// Rings that may be handed on at once; the time after which it is one more; and how many more each push sent adds.
  private static let (most, every, share) = (10.0, Nanoseconds.seconds(6), 0.02)

  /// A ring is handed on when it has waited this long: twice the median of the last answers, at most 1.5 times the longest. A path that
  /// was slow may die, too, so there is a bound.
  private(set) var time: Nanoseconds
  private let patience: ClosedRange<Nanoseconds>
  private var latencies: [Nanoseconds] = []
  private var credit = Self.most
  private var creditAt = Instant(nanoseconds: .min)

  init(_ patience: ClosedRange<Nanoseconds> = Self.patience) {
    self.patience = patience
    time = patience.lowerBound
  }

  /// The same where the lane is sick: an answer is unlikely there, and counts also if it comes late.
  var shortTime: Nanoseconds { time / 4 }

  mutating func didSend() { credit = min(credit + Self.share, Self.most) }

  mutating func didAnswer(after latency: Nanoseconds) {
    if latencies.count == Self.remembered { latencies.removeFirst() }
    latencies.append(latency)
    guard latency * 3 > patience.lowerBound * 2 || time > patience.lowerBound else { return }
    let ordered = latencies.sorted()
    let wanted = min(ordered[ordered.count / 2] * 2, ordered[ordered.count - 1] * 3 / 2)
    time = min(max(patience.lowerBound, wanted), patience.upperBound)
  }

  /// Whether one more ring may be handed on without an answer. If so, it is counted.
  mutating func spend(_ now: Instant) -> Bool {
    if creditAt < now {
      if creditAt.nanoseconds > .min { credit = min(credit + (now - creditAt).seconds / Self.every.seconds, Self.most) }
      creditAt = now
    }
    guard credit >= 1 else { return false }
    credit -= 1
    return true
  }
}
