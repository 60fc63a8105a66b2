// How far the provider's clock is from ours, and when to speak of it.

internal import Runtime

/// Decides which answers are looked at and which differences are worth a warning. Reads no clock.
struct ClockSkewMeter {
  /// Answers are looked at so often, and the first of each connection besides.
  static let interval = Nanoseconds.seconds(60)
  /// A difference above which tokens and expirations begin to be at risk.
  static let toleranceMax = Nanoseconds.seconds(5)
  /// A difference that stays is warned of so often.
  static let warningInterval = Nanoseconds.seconds(3600)

  private var dueAt = Instant(nanoseconds: .min)
  /// Connections are numbered in the order in which they are opened.
  private var newestConnection = -1
  private var warned: (skew: Nanoseconds, at: Instant)?

  /// Whether to measure with the answer that has come on this connection to a request that left at this time.
  func isDue(_ connection: Int, sentAt: Instant) -> Bool { connection > newestConnection || sentAt >= dueAt }

  /// The provider's clock minus ours; nil when the answer has no date that can be read.
  ///
  /// - Parameters:
  ///   - date: the `date` header: whole seconds, cut off, so that half a second is added.
  ///   - wallMilliseconds: our clock when the answer came.
  mutating func measure(
    _ date: ArraySlice<UInt8>?, on connection: Int, now: Instant, wallMilliseconds: Int64
  ) -> Nanoseconds? {
    newestConnection = max(newestConnection, connection)
    dueAt = now + Self.interval
    guard let seconds = date.flatMap({ HTTPDate.seconds(Array($0)) }) else { return nil }
    return .milliseconds(seconds * 1000 + 500 - wallMilliseconds)
  }

  /// Whether a measured difference is to be warned of: it is large, and it is new or an hour has passed.
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
