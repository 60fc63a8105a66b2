// Measures the difference between the provider's clock and ours, and decides when to warn.

internal import Runtime

/// Decides which answers are measured and which differences need a warning. Reads no clock.
struct ClockSkewMeter {
  /// Interval between measurements. The first answer of each connection is measured, too.
  static let interval = Nanoseconds.seconds(60)
  /// Maximum difference without a warning. Above it, tokens may be refused and expirations may be wrong.
  static let toleranceMax = Nanoseconds.seconds(5)
  /// Interval between warnings while the difference stays the same.
  static let warningInterval = Nanoseconds.seconds(3600)

  private var dueAt = Instant(nanoseconds: .min)
  /// The highest connection number measured so far. Connections are numbered in the order in which they are opened.
  private var newestConnection = -1
  private var warned: (skew: Nanoseconds, at: Instant)?

  /// Whether to measure the answer on this connection to a request sent at this time.
  func isDue(_ connection: Int, sentAt: Instant) -> Bool { connection > newestConnection || sentAt >= dueAt }

  /// The provider's clock minus ours; nil if the answer has no readable date.
  ///
  /// - Parameters:
  ///   - date: the `date` header. It is truncated to whole seconds, so half a second is added.
  ///   - wallMilliseconds: our clock when the answer arrived.
  mutating func measure(
    _ date: ArraySlice<UInt8>?, on connection: Int, now: Instant, wallMilliseconds: Int64
  ) -> Nanoseconds? {
    newestConnection = max(newestConnection, connection)
    dueAt = now + Self.interval
    guard let seconds = date.flatMap({ HTTPDate.seconds(Array($0)) }) else { return nil }
    return .milliseconds(seconds * 1000 + 500 - wallMilliseconds)
  }

  /// Whether to warn of a measured difference: it is large, and either it is new or the last warning is an hour old.
  mutating func warns(of skew: Nanoseconds, now: Instant) -> Bool {
    guard Self.magnitude(skew) > Self.toleranceMax else {
      warned = nil
      return false
    }
    if let warned, now < warned.at + Self.warningInterval, Self.magnitude(skew - warned.skew) <= Self.toleranceMax {
      return false
    }
    warned = (skew, now)
    return true
  }

  private static func magnitude(_ skew: Nanoseconds) -> Nanoseconds { Nanoseconds(abs(skew.count)) }
}
