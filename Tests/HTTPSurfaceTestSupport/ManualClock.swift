// A clock that only the test moves.

import Runtime
import Synchronization

package final class ManualClock: GatewayClock {
  private let time = Mutex(Instant(nanoseconds: 0))

  package init() {}

  package func now() -> Instant { time.withLock { $0 } }
  package func wallMilliseconds() -> Int64 { 0 }
  package func advance(_ duration: Nanoseconds) { time.withLock { $0 = $0 + duration } }
}
