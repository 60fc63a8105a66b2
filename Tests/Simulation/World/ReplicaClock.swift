// The clock of one replica's machine: monotonic, a little too fast or too slow, and now and then it jumps ahead, as it does when
// a virtual machine was suspended.

import Runtime

/// From true time to what a replica's clock shows.
struct ReplicaClock {
  /// How much too fast (or too slow) a clock may be: a hundred times what a bad quartz is.
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
