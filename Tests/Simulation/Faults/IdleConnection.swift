// A connection that the network forgets while it is idle: what is sent over it then is dropped, and nobody is told.
//
// Only some seeds have them, in the lanes of Expo, whose connections nobody probes, and these have no other faults. So every ring is owed
// in time.

import Runtime

/// The connection of one provider to Expo.
struct IdleConnection {
  private static let idleTime: VirtualTime = 4_000_000_000

  private var random: SplitMix64
  private var usedAt: VirtualTime = 0
  private var isForgotten = false

  /// Whether a seed has them.
  static func areForgotten(_ seed: UInt64) -> Bool { seed % 64 == 26 }

  init(_ seed: UInt64, replica: Int, lane: Int) {
    // Draws of their own, so that other seeds stay as they are.
    let place = UInt64(replica * 8 + lane)
    random = SplitMix64(seed: (seed &* 64 &+ place) &* 0x9E37_79B9_7F4A_7C15)
  }

  /// Sends a request over it. Returns whether it arrives.
  mutating func use(_ now: VirtualTime) -> Bool {
    if usedAt + Self.idleTime <= now, random.chance(0.5) { isForgotten = true }
    usedAt = now
    return !isForgotten
  }

  /// Somebody has waited in vain for an answer: the next request makes a new connection.
  mutating func replace(_ now: VirtualTime) {
    usedAt = now
    isForgotten = false
  }
}
