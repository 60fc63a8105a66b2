// A clock for connections to other programs, which a busy machine may stop for seconds.

import Runtime

/// Goes five times as slowly as the system's clock. So a time limit that another program must keep, such as the wait for an answer of
/// Postgres, is five times as long; and so is each pause.
public struct SlowClock: GatewayClock {
  private static let factor: Int64 = 5

  private let begun = SystemClock().now()

  public init() {}

  public func now() -> Instant { begun + (SystemClock().now() - begun) / Self.factor }
  public func wallMilliseconds() -> Int64 { SystemClock().wallMilliseconds() }
}

extension EventLoop {
  /// A loop with a slow clock.
  public static func slow(_ name: String) -> EventLoop { EventLoop(name: name, clock: SlowClock()) }
}
