// A clock that stands until it is told to go on.

import Runtime
import Synchronization

final class ManualClock: GatewayClock {
  private let time = Mutex(Instant(nanoseconds: 0))
  func now() -> Instant { time.withLock { $0 } }
  func wallMilliseconds() -> Int64 { 0 }
  func advance(_ duration: Nanoseconds) { time.withLock { $0 = $0 + duration } }
}
