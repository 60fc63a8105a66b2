// The only source of time. Decisions take `now` as an argument; only effects read a clock.

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// A point on the monotonic time line, in nanoseconds since an arbitrary start.
///
/// It does not jump with the wall clock, and it counts the time a machine sleeps, so a deadline as an `Instant` stays valid.
public struct Instant: Comparable, Hashable, Sendable {
  /// Nanoseconds since the clock's own start.
  public var nanoseconds: Int64

  public init(nanoseconds: Int64) {
    self.nanoseconds = nanoseconds
  }

  /// Later than every instant a clock gives.
  public static let distantFuture = Instant(nanoseconds: .max)

  public static func < (left: Instant, right: Instant) -> Bool { left.nanoseconds < right.nanoseconds }

  /// The instant `duration` later; the last possible instant if that overflows.
  public static func + (instant: Instant, duration: Nanoseconds) -> Instant {
    let (sum, overflow) = instant.nanoseconds.addingReportingOverflow(duration.count)
    return Instant(nanoseconds: overflow ? (duration.count > 0 ? .max : .min) : sum)
  }

  public static func - (instant: Instant, duration: Nanoseconds) -> Instant {
    instant + (.zero - duration)
  }

  /// The time from `right` to `left`.
  public static func - (left: Instant, right: Instant) -> Nanoseconds {
    let (difference, overflow) = left.nanoseconds.subtractingReportingOverflow(right.nanoseconds)
    return Nanoseconds(overflow ? (left > right ? .max : .min) : difference)
  }
}

/// A duration in whole nanoseconds: like `Duration`, but in one machine word. What overflows is the longest possible duration: times in the
/// tables and in what providers answer may be anything.
public struct Nanoseconds: Comparable, Hashable, Sendable {
  public var count: Int64

  public init(_ count: Int64) {
    self.count = count
  }

  public static let zero = Nanoseconds(0)
  public static func microseconds(_ count: Int64) -> Nanoseconds { Nanoseconds(1_000) * count }
  public static func milliseconds(_ count: Int64) -> Nanoseconds { Nanoseconds(1_000_000) * count }
  public static func seconds(_ count: Int64) -> Nanoseconds { Nanoseconds(1_000_000_000) * count }

  /// Whole milliseconds, rounded towards zero.
  public var milliseconds: Int64 { count / 1_000_000 }
  /// Whole microseconds, rounded towards zero.
  public var microseconds: Int64 { count / 1_000 }
  /// Seconds as a fraction, for metrics.
  public var seconds: Double { Double(count) / 1e9 }

  public static func < (left: Nanoseconds, right: Nanoseconds) -> Bool { left.count < right.count }
  public static func + (left: Nanoseconds, right: Nanoseconds) -> Nanoseconds {
    let (sum, overflow) = left.count.addingReportingOverflow(right.count)
    return Nanoseconds(overflow ? (right.count > 0 ? .max : .min) : sum)
  }
  public static func - (left: Nanoseconds, right: Nanoseconds) -> Nanoseconds {
    let (difference, overflow) = left.count.subtractingReportingOverflow(right.count)
    return Nanoseconds(overflow ? (right.count < 0 ? .max : .min) : difference)
  }
  public static func * (left: Nanoseconds, right: Int64) -> Nanoseconds {
    let (product, overflow) = left.count.multipliedReportingOverflow(by: right)
    return Nanoseconds(overflow ? ((left.count < 0) == (right < 0) ? .max : .min) : product)
  }
  public static func / (left: Nanoseconds, right: Int64) -> Nanoseconds { Nanoseconds(left.count / right) }
}

/// Gives the time. The gateway uses `SystemClock`; tests and simulations pass their own.
public protocol GatewayClock: Sendable {
  /// Now, on the monotonic time line.
  func now() -> Instant
  /// Now, on the wall: milliseconds since 1970. It may jump; use it only for what leaves the process (JWT `iat`, log lines).
  func wallMilliseconds() -> Int64
}

/// The operating system's clocks.
public struct SystemClock: GatewayClock {
  public init() {}

  public func now() -> Instant {
    #if os(Linux)
    let clock = CLOCK_BOOTTIME  // unlike CLOCK_MONOTONIC it counts the time a virtual machine was suspended
    #else
    let clock = CLOCK_MONOTONIC
    #endif
    return Instant(nanoseconds: Self.read(clock))
  }

  public func wallMilliseconds() -> Int64 { wallMicroseconds() / 1_000 }

  /// Now, on the wall: microseconds since 1970, for log lines.
  public func wallMicroseconds() -> Int64 { Self.read(CLOCK_REALTIME) / 1_000 }

  /// The processor time that this thread has used: unlike time on a clock, it does not count what others do on a busy
  /// machine.
  public static var threadProcessorTime: Nanoseconds { Nanoseconds(read(CLOCK_THREAD_CPUTIME_ID)) }

  private static func read(_ clock: clockid_t) -> Int64 {
    var time = timespec()
    unsafe clock_gettime(clock, &time)
    return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
  }
}
