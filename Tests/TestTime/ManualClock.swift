// A clock that only the test moves.

import Runtime
import Synchronization

public final class ManualClock: GatewayClock {
  private let time = Mutex(Instant(nanoseconds: 0))

  public init() {}

  public func now() -> Instant { time.withLock { $0 } }
  public func wallMilliseconds() -> Int64 { 0 }
  public func advance(_ duration: Nanoseconds) { time.withLock { $0 = $0 + duration } }
}
