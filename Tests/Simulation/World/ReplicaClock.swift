// The clock of a replica's machine: monotonic, a little too fast or too slow. It sometimes jumps ahead, as after a
// suspended virtual machine resumes.

import Runtime

/// Converts true time to the time on a replica's clock.
struct ReplicaClock {
  /// Maximum error of a clock's speed: a hundred times that of a bad quartz.
  static let driftMax = 0.005

  private var trueAnchor: VirtualTime
  private var localAnchor: Int64
  private(set) var drift: Double

  init(startingAt local: Int64, drift: Double, at now: VirtualTime) {
    trueAnchor = now
    localAnchor = local
    self.drift = drift
  }

  func local(at time: VirtualTime) -> Instant {
    Instant(nanoseconds: localAnchor + Int64(Double(time - trueAnchor) * (1 + drift)))
  }

  /// When the clock will show `instant`.
  func trueTime(of instant: Instant) -> VirtualTime {
    trueAnchor + Int64((Double(instant.nanoseconds - localAnchor) / (1 + drift)).rounded(.up))
  }

  mutating func jump(by nanoseconds: Int64, at now: VirtualTime) {
    localAnchor = local(at: now).nanoseconds + nanoseconds
    trueAnchor = now
  }
}
